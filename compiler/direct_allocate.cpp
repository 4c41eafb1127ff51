#include "compiler/direct_allocate.h"

#include <algorithm>
#include <bit>

#include "compiler/sass_encode.h"

namespace srjit::direct {
namespace {

using sass::Form;
using sass::Pipe;
using sass::Timing;

constexpr int kLongestStall = 15;
constexpr int kBranchStall = 5;
constexpr int kReadDelay = 2;        // between a read of fixed latency and a write of variable latency
constexpr int kPredicateDelay = 13;  // no reader of a predicate needs more
constexpr int kRegisterDelay = 6;    // no reader of a register needs more
constexpr int kMostTruths = int{kFreePredicates};

// Fills in a form as the second of two instructions; `representatives` has the first form of each kind.
void setDelays(Form form, const std::vector<Form>& representatives, unsigned architecture, Delays& delays) {
  const auto byte = [](unsigned delay) { return static_cast<std::uint8_t>(delay); };
  for (std::size_t kind = 0; kind < representatives.size(); ++kind) {
    const Form first = representatives[kind];
    delays.value[kind] = byte(sass::registerDelay(first, form));
    delays.overwrite[kind] = byte(sass::overwriteDelay(first, form, false));
    delays.guarded_overwrite[kind] = byte(sass::overwriteDelay(first, form, true));
  }
  delays.condition = byte(sass::predicateDelay(form, form, false, architecture));
  delays.guard = byte(sass::predicateDelay(form, form, true, architecture));
}

bool areAlikeAsFirst(Form a, Form b) {
  for (std::size_t f = 0; f < kFormFacts.size(); ++f) {
    const auto second = static_cast<Form>(f);
    if (sass::registerDelay(a, second) != sass::registerDelay(b, second)) return false;
    for (const bool guarded : {false, true}) {
      if (sass::overwriteDelay(a, second, guarded) != sass::overwriteDelay(b, second, guarded)) return false;
    }
  }
  return true;
}

DelayTable delayTable(unsigned architecture) {
  DelayTable table{};
  std::vector<Form> representatives;
  for (std::size_t f = 0; f < table.size(); ++f) {
    const auto form = static_cast<Form>(f);
    const auto found = std::ranges::find_if(representatives, [&](Form other) { return areAlikeAsFirst(form, other); });
    table[f].kind = static_cast<std::uint8_t>(found - representatives.begin());
    if (found == representatives.end()) representatives.push_back(form);
  }
  representatives.resize(std::min(representatives.size(), Delays::kKinds));
  for (std::size_t f = 0; f < table.size(); ++f) {
    setDelays(static_cast<Form>(f), representatives, architecture, table[f]);
  }
  return table;
}

bool isVariable(const FormFacts& facts) { return facts.timing == Timing::kVariable; }
bool isBranch(Form form) { return factsOf(form).pipe == Pipe::kControl; }
bool isStore(Form form) { return form == Form::kStg || form == Form::kStg64; }

}  // namespace

Allocator::Allocator(unsigned architecture) : architecture_(architecture) {
  static const std::vector<std::pair<unsigned, DelayTable>> kTables = [] {
    std::vector<std::pair<unsigned, DelayTable>> tables;
    for (const unsigned each : sass::architectures()) tables.emplace_back(each, delayTable(each));
    return tables;
  }();
  delays_ = &std::ranges::find(kTables, architecture, &std::pair<unsigned, DelayTable>::first)->second;
}

void Allocator::begin(const Code& code, const RegisterFile& file) {
  values_ = code.values();
  truths_ = code.truths();
  free_ = registerSet(0, file.limit - 1) | registerSet(file.limit - 1);
  free_ &= ~file.reserved;
  used_ = file.reserved;
  to_write_ = to_read_ = just_read_ = 0;
  free_predicates_ = ((1U << kFreePredicates) - 1) << kFirstFreePredicate;
  live_ = live_truths_ = 0;
  registers_.fill({});
  predicates_.fill({});
  barriers_.fill({});
  busy_ = 0;
  issued_ = -1;
  spacing_ = 1;
  finished_ = 0;
  branches_.clear();
  exits_.clear();
  targets_.clear();
}

bool Allocator::run(const Code& code, Scheduler& scheduler, const RegisterFile& file, std::vector<sass::Word>& words) {
  begin(code, file);
  words_ = &words;
  first_ = words.size();
  while (const auto at = scheduler.next({.values = live_ >= file.values, .truths = live_truths_ >= kMostTruths})) {
    if (place(*at, code.operation(*at))) continue;
    words.resize(first_);
    return false;
  }
  sass::setStall(words.back(), kBranchStall, false);
  setBranchOffsets();
  return true;
}

void Allocator::setBranchOffsets() const {
  for (const Branch& branch : branches_) {
    const auto target = std::ranges::find(targets_, branch.target, &Target::operation);
    const std::uint32_t to = target != targets_.end() ? target->position : 0;
    sass::setBranchOffset((*words_)[first_ + branch.position],
                          (to - (branch.position + 1)) * std::uint32_t{sizeof(sass::Word)}, architecture_);
  }
}

bool Allocator::place(std::uint32_t at, const Operation& operation) {
  const FormFacts& facts = factsOf(operation.form);
  const Delays& delays = (*delays_)[static_cast<std::size_t>(operation.form)];
  Issue issue{.now = issued_ + spacing_,
              .instruction = {.form = operation.form,
                              .negated = operation.negated,
                              .magnitude = operation.magnitude,
                              .immediate = operation.immediate,
                              .modifier = operation.modifier,
                              .control = {.stall = 0}}};
  spacing_ = 1;
  if (operation.synchronized) {
    waitFor(busy_, issue);
    issue.now = std::max(issue.now, finished_);
  }
  readSources(operation, facts, delays, issue);
  if (operation.guard != kAlways) issue.instruction.guard = readPredicate(operation.guard, delays.guard, issue);
  issue.instruction.condition = readPredicate(operation.condition, delays.condition, issue);
  if (!prepareDestination(operation, facts, delays, issue) || !preparePredicate(operation, delays, issue)) return false;
  markIssue(operation, facts, delays, issue);
  emit(issue);
  if (operation.synchronized || isBranch(operation.form)) markControl(at, operation);
  return true;
}

// Barriers in use among whose registers are some of those.
Allocator::BarrierSet Allocator::barriersOf(RegisterSet written, RegisterSet read) const {
  BarrierSet found = 0;
  for (unsigned b = 0; b < kBarriers; ++b) {
    const RegisterSet common = (barriers_[b].written & written) | (barriers_[b].read & read);
    found |= (common != 0 ? 1U : 0U) << b;
  }
  return found;
}

void Allocator::waitFor(BarrierSet barriers, Issue& issue) {
  issue.instruction.control.wait_mask |= static_cast<std::uint8_t>(barriers);
  busy_ &= ~barriers;
  for (; barriers != 0; barriers &= barriers - 1) {
    Barrier& waited = barriers_[static_cast<std::size_t>(std::countr_zero(barriers))];
    issue.now = std::max(issue.now, waited.set + static_cast<Cycle>(sass::kBarrierDelay));
    waited = {};
  }
  to_write_ = to_read_ = 0;
  for (const Barrier& other : barriers_) {
    to_write_ |= other.written;
    to_read_ |= other.read;
  }
}

void Allocator::readSources(const Operation& operation, const FormFacts& facts, const Delays& delays, Issue& issue) {
  RegisterSet sources = 0, freed = 0;
  int freed_count = 0;
  for (std::size_t i = 0; i < operation.sources.size(); ++i) {
    Code::Operand& source = values_[operation.sources[i]];
    const std::int32_t if_last = --source.reads >> 31;
    const std::uint32_t place = source.place;
    issue.instruction.sources[i] = static_cast<std::uint8_t>(place);
    const Written& written = registers_[place];
    issue.now = std::max(issue.now, written.at + delays.value[written.kind]);
    const RegisterSet registers = registerSet(place, facts.sources[i]);
    sources |= registers;
    freed |= registers & static_cast<RegisterSet>(std::int64_t{if_last});
    freed_count += facts.sources[i] & if_last;
  }
  if ((sources & to_write_) != 0) waitFor(barriersOf(sources, 0), issue);
  issue.sources = sources;
  free_ |= freed;
  live_ -= freed_count;
}

std::uint8_t Allocator::readPredicate(PredicateId predicate, Cycle delay, Issue& issue) {
  Code::Operand& truth = truths_[predicate / 2];
  const std::int32_t if_last = --truth.reads >> 31;
  free_predicates_ |= (1U << truth.place) & static_cast<unsigned>(if_last);
  live_truths_ += if_last;
  issue.now = std::max(issue.now, predicates_[truth.place].at + delay);
  return static_cast<std::uint8_t>(truth.place | (predicate & 1U) * sass::kNot);
}

// The first of so many free registers, aligned; kZero if there are none.
unsigned Allocator::findFree(unsigned width) const {
  const RegisterSet quiet = free_ & ~(to_write_ | to_read_);
  if (width == 1) {
    const RegisterSet found = quiet != 0 ? quiet : free_;
    return found != 0 ? static_cast<unsigned>(std::countr_zero(found)) : sass::kZero;
  }
  for (RegisterSet found : {quiet, free_}) {
    found &= (found >> 1) & 0x5555555555555555;
    if (width == 4) found &= (found >> 2) & 0x1111111111111111;
    if (found != 0) return static_cast<unsigned>(std::countr_zero(found));
  }
  return sass::kZero;
}

// The first register for a value of so many, which are taken unless nobody reads them; kZero if there is none.
unsigned Allocator::take(ValueId value, unsigned width) {
  const unsigned first = findFree(width);
  if (first == sass::kZero) return first;
  Code::Operand* const parts = &values_[value];
  parts[0].place = first;
  if (width == 4) {
    for (unsigned part = 0; part < 4; ++part) {
      parts[part].place = first + part;
      if (parts[part].reads >= 0) free_ &= ~registerSet(first + part);
    }
  } else if (parts[0].reads >= 0) {
    free_ &= ~registerSet(first, width);
  }
  used_ |= registerSet(first, width);
  live_ += static_cast<int>(width);
  return first;
}

bool Allocator::prepareDestination(const Operation& operation, const FormFacts& facts, const Delays& delays,
                                   Issue& issue) {
  const unsigned width = facts.results;
  if (width == 0 || operation.destination == kRz) return true;
  const bool is_value = operation.destination >= kFirstValue;
  const unsigned first = is_value ? take(operation.destination, width) : operation.destination;
  if (first == sass::kZero) return false;
  issue.instruction.destination = static_cast<std::uint8_t>(first);
  const RegisterSet results = registerSet(first, width);
  if ((results & (to_write_ | to_read_)) != 0) waitFor(barriersOf(results, results), issue);
  const bool waits_for_read = ((results & just_read_) != 0) & isVariable(facts);
  issue.now = std::max(issue.now, issued_ + (waits_for_read ? kReadDelay : 0));
  const auto& overwrite = operation.guard == kAlways ? delays.overwrite : delays.guarded_overwrite;
  unsigned r = first;
  do {
    issue.now = std::max(issue.now, registers_[r].at + overwrite[registers_[r].kind]);
  } while (++r < first + width);
  return true;
}

bool Allocator::preparePredicate(const Operation& operation, const Delays& delays, Issue& issue) {
  if (operation.predicate == kAlways) return true;
  Code::Operand& truth = truths_[operation.predicate / 2];
  if (operation.predicate >= 2 * kFirstPredicate) {
    if (free_predicates_ == 0) return false;
    truth.place = static_cast<std::uint32_t>(std::countr_zero(free_predicates_));
    if (truth.reads >= 0) free_predicates_ &= ~(1U << truth.place);
    ++live_truths_;
  }
  issue.instruction.predicate = static_cast<std::uint8_t>(truth.place);
  const Written& written = predicates_[truth.place];
  issue.now = std::max(issue.now, written.at + delays.overwrite[written.kind]);
  return true;
}

unsigned Allocator::takeBarrier() const {
  if (busy_ != kAllBarriers) return static_cast<unsigned>(std::countr_one(busy_));
  unsigned best = 0;
  for (unsigned b = 1; b < kBarriers; ++b) {
    if (barriers_[b].set < barriers_[best].set) best = b;
  }
  return best;
}

void Allocator::markIssue(const Operation& operation, const FormFacts& facts, const Delays& delays, Issue& issue) {
  const unsigned destination = issue.instruction.destination;
  const unsigned width = destination != sass::kZero ? facts.results : 0;
  if (isVariable(facts)) {
    const RegisterSet written = registerSet(destination, width);
    const unsigned number = takeBarrier();
    busy_ |= 1U << number;
    Barrier& barrier = barriers_[number];
    barrier.set = issue.now;
    barrier.read |= issue.sources;
    barrier.written |= written;
    to_read_ |= issue.sources;
    to_write_ |= written;
    just_read_ = 0;
    auto& control = issue.instruction.control;
    (isStore(operation.form) ? control.read_barrier : control.write_barrier) = static_cast<std::uint8_t>(number);
    return;
  }
  just_read_ = issue.sources;
  const Written written{issue.now, delays.kind};
  Cycle latency = facts.latency;
  if (width != 0) {
    registers_[destination] = written;
    if (width == 2) registers_[destination + 1] = written;
    latency = kRegisterDelay;
  } else if (operation.predicate != kAlways) {
    predicates_[issue.instruction.predicate] = written;
    latency = kPredicateDelay;
  }
  finished_ = std::max(finished_, issue.now + latency);
}

// Stall and yield of an instruction are known with the next one.
void Allocator::emit(const Issue& issue) {
  if (words_->size() != first_) {
    Cycle stall = issue.now - issued_;
    for (; stall > kLongestStall; stall -= kLongestStall) {
      sass::setStall(words_->back(), kLongestStall, false);
      words_->push_back(sass::encodeFields({.form = Form::kNop, .control = {.stall = 0}}));
    }
    sass::setStall(words_->back(), static_cast<unsigned>(stall), stall < 4);
  }
  words_->push_back(sass::encodeFields(issue.instruction));
  issued_ = issue.now;
}

// What is said of branches, and of operations that may be their targets. After emit().
void Allocator::markControl(std::uint32_t at, const Operation& operation) {
  const auto position = static_cast<std::uint32_t>(words_->size() - first_ - 1);
  if (operation.synchronized) targets_.push_back({at, position});
  if (!isBranch(operation.form)) return;
  spacing_ = kBranchStall;
  if (operation.form == Form::kExit) exits_.push_back(position);
  if (operation.form == Form::kBra) branches_.push_back({position, operation.immediate});
  // An indexed branch adds an offset from the beginning of the code.
  if (operation.form == Form::kBrx) branches_.push_back({position, 0});
}

}  // namespace srjit::direct

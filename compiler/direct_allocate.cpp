#include "compiler/direct_allocate.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>

namespace srjit::direct {
namespace {

using sass::Form;
using sass::Pipe;
using sass::Timing;

constexpr std::size_t kForms = kFormFacts.size();
static_assert(kForms <= kFormSlots);
constexpr int kLongestStall = 15;
constexpr int kBranchStall = 5;
constexpr int kReadDelay = 2;        // between a read of fixed latency and a write of variable latency
constexpr int kPredicateDelay = 13;  // no reader of a predicate needs more
constexpr int kRegisterDelay = 6;    // no reader of a register needs more

DelayTable delayTable(unsigned architecture) {
  DelayTable table(kForms * kFormSlots);
  const auto byte = [](unsigned delay) { return static_cast<std::uint8_t>(delay); };
  for (std::size_t first = 0; first < kForms; ++first) {
    for (std::size_t second = 0; second < kForms; ++second) {
      const auto a = static_cast<Form>(first), b = static_cast<Form>(second);
      table[first * kFormSlots + second] = {
          byte(sass::registerDelay(a, b)), byte(sass::predicateDelay(a, b, false, architecture)),
          byte(sass::predicateDelay(a, b, true, architecture)), byte(sass::overwriteDelay(a, b, false)),
          byte(sass::overwriteDelay(a, b, true))};
    }
  }
  return table;
}

bool isVariable(Form form) { return factsOf(form).timing == Timing::kVariable; }
bool isBranch(Form form) { return factsOf(form).pipe == Pipe::kControl; }
bool isStore(Form form) { return form == Form::kStg || form == Form::kStg64; }

}  // namespace

Allocator::Allocator(unsigned architecture) {
  static const std::vector<std::pair<unsigned, DelayTable>> kTables = [] {
    std::vector<std::pair<unsigned, DelayTable>> tables;
    for (const unsigned each : sass::architectures()) tables.emplace_back(each, delayTable(each));
    return tables;
  }();
  delays_ = std::ranges::find(kTables, architecture, &std::pair<unsigned, DelayTable>::first)->second.data();
}

void Allocator::begin(const Code& code, RegisterSet reserved, unsigned limit) {
  places_.resize(code.values().size());
  std::iota(places_.begin(), places_.begin() + kFirstValue, std::uint8_t{0});
  predicate_places_.resize(code.predicates().size());
  uses_.resize(code.values().size());
  std::ranges::transform(code.values(), uses_.begin(), &Code::Uses::count);
  std::fill_n(uses_.begin(), kFirstValue, 0);
  predicate_uses_ = code.predicates();
  free_ = registerSet(0, limit - 1) | RegisterSet{1} << (limit - 1);
  free_ &= ~reserved;
  to_write_ = to_read_ = just_read_ = 0;
  registers_used_ = static_cast<unsigned>(std::bit_width(reserved));
  free_predicates_ = ((1U << kFreePredicates) - 1) << kFirstFreePredicate;
  registers_.fill({});
  predicates_.fill({});
  barriers_.fill({});
  issued_ = -1;
  spacing_ = 1;
  finished_ = 0;
  branches_.clear();
  positions_.resize(code.size());
}

bool Allocator::run(const Code& code, std::span<const std::uint32_t> order, RegisterSet reserved, unsigned limit,
                    std::vector<sass::Instruction>& out) {
  begin(code, reserved, limit);
  out.clear();
  for (const std::uint32_t at : order) {
    const Operation& operation = code.operation(at);
    sass::Instruction instruction{.form = operation.form,
                                  .negated = operation.negated,
                                  .magnitude = operation.magnitude,
                                  .immediate = operation.immediate,
                                  .modifier = operation.modifier};
    if (!place(operation, instruction)) return false;
    emit(instruction, out);
    positions_[at] = static_cast<std::uint32_t>(out.size() - 1);
    if (isBranch(operation.form)) branches_.emplace_back(at, positions_[at]);
  }
  setBranchOffsets(code, out);
  return true;
}

void Allocator::setBranchOffsets(const Code& code, std::vector<sass::Instruction>& out) const {
  for (const auto& [at, position] : branches_) {
    const Operation& operation = code.operation(at);
    if (operation.form != Form::kBra && operation.form != Form::kBrx) continue;
    // An indexed branch adds an offset from the beginning of the code.
    const std::uint32_t target = operation.form == Form::kBra ? positions_[operation.immediate] : 0;
    out[position].immediate = (target - (position + 1)) * std::uint32_t{sizeof(sass::Word)};
  }
}

bool Allocator::place(const Operation& operation, sass::Instruction& instruction) {
  now_ = issued_ + spacing_;
  spacing_ = isBranch(operation.form) ? kBranchStall : 1;
  if (operation.synchronized) {
    for (unsigned barrier = 0; barrier < kBarriers; ++barrier) waitFor(barrier, instruction);
    now_ = std::max(now_, finished_);
  }
  readSources(operation, instruction);
  if (operation.guard != kAlways) {
    instruction.guard = static_cast<std::uint8_t>(readPredicate(operation, operation.guard, true));
  }
  if (operation.condition != kAlways) {
    instruction.condition = static_cast<std::uint8_t>(readPredicate(operation, operation.condition, false));
  }
  if (!prepareDestination(operation, instruction) || !preparePredicate(operation, instruction)) return false;
  markIssue(operation, instruction);
  return true;
}

void Allocator::waitFor(unsigned barrier, sass::Instruction& instruction) {
  Barrier& waited = barriers_[barrier];
  if (!waited.is_busy) return;
  instruction.control.wait_mask |= static_cast<std::uint8_t>(1U << barrier);
  now_ = std::max(now_, waited.set + static_cast<Cycle>(sass::kBarrierDelay));
  waited = {};
  to_write_ = to_read_ = 0;
  for (const Barrier& other : barriers_) {
    to_write_ |= other.written;
    to_read_ |= other.read;
  }
}

void Allocator::waitForPending(RegisterSet registers, bool for_writers_alone, sass::Instruction& instruction) {
  for (unsigned barrier = 0; barrier < kBarriers; ++barrier) {
    const Barrier& candidate = barriers_[barrier];
    const RegisterSet set = for_writers_alone ? candidate.written : candidate.written | candidate.read;
    if ((set & registers) != 0) waitFor(barrier, instruction);
  }
}

void Allocator::readSources(const Operation& operation, sass::Instruction& instruction) {
  const FormFacts& facts = factsOf(operation.form);
  RegisterSet sources = 0, freed = 0;
  for (std::size_t i = 0; i < operation.sources.size(); ++i) {
    const ValueId source = operation.sources[i];
    const unsigned first = places_[source];
    instruction.sources[i] = static_cast<std::uint8_t>(first);
    const RegisterSet any = source != kRz ? ~RegisterSet{0} : 0;
    const RegisterSet registers = registerSet(first % kMostRegisters, facts.sources[i]) & any;
    sources |= registers;
    const Written& written = registers_[first % kMostRegisters];
    const Cycle ready = written.at + delaysOf(written.form, operation.form).value;
    now_ = std::max(now_, source != kRz ? ready : 0);
    freed |= --uses_[source] == 0 ? registers : 0;
  }
  if ((sources & to_write_) != 0) waitForPending(sources, true, instruction);
  sources_ = sources;
  free_ |= freed;
}

unsigned Allocator::readPredicate(const Operation& operation, PredicateId predicate, bool as_guard) {
  unsigned number = predicate / 2;
  if (number >= kFirstPredicate) {
    const unsigned value = number - kFirstPredicate;
    number = predicate_places_[value];
    if (--predicate_uses_[value].count == 0) free_predicates_ |= 1U << number;
  }
  const Written& written = predicates_[number];
  if (written.at + kPredicateDelay > now_) {
    const Delays& delays = delaysOf(written.form, operation.form);
    now_ = std::max(now_, written.at + (as_guard ? delays.guard : delays.condition));
  }
  return number | ((predicate & 1) != 0 ? sass::kNot : 0U);
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

// The first register for a value of so many, which are taken from then on; kZero if there is none.
unsigned Allocator::take(ValueId value, unsigned width) {
  const unsigned first = findFree(width);
  if (first == sass::kZero) return first;
  std::uint8_t* const places = &places_[value];
  places[0] = static_cast<std::uint8_t>(first);
  if (width == 4 || uses_[value] != 0) free_ &= ~registerSet(first, width);
  if (width == 4) {
    for (unsigned part = 0; part < 4; ++part) {
      places[part] = static_cast<std::uint8_t>(first + part);
      if (uses_[value + part] == 0) free_ |= registerSet(first + part);
    }
  }
  registers_used_ = std::max(registers_used_, first + width);
  return first;
}

bool Allocator::prepareDestination(const Operation& operation, sass::Instruction& instruction) {
  const unsigned width = factsOf(operation.form).results;
  if (width == 0 || operation.destination == kRz) return true;
  const bool is_value = operation.destination >= kFirstValue;
  const unsigned first = is_value ? take(operation.destination, width) : operation.destination;
  if (first == sass::kZero) return false;
  instruction.destination = static_cast<std::uint8_t>(first);
  const RegisterSet results = registerSet(first, width);
  if ((results & (to_write_ | to_read_)) != 0) waitForPending(results, false, instruction);
  if ((results & just_read_) != 0 && isVariable(operation.form)) now_ = std::max(now_, issued_ + kReadDelay);
  unsigned r = first;
  do {
    const Delays& delays = delaysOf(registers_[r].form, operation.form);
    const int delay = operation.guard == kAlways ? delays.overwrite : delays.guarded_overwrite;
    now_ = std::max(now_, registers_[r].at + delay);
  } while (++r < first + width);
  return true;
}

bool Allocator::preparePredicate(const Operation& operation, sass::Instruction& instruction) {
  unsigned number = operation.predicate / 2;
  if (number == sass::kTrue) return true;
  if (number >= kFirstPredicate) {
    if (free_predicates_ == 0) return false;
    const unsigned value = number - kFirstPredicate;
    number = static_cast<unsigned>(std::countr_zero(free_predicates_));
    predicate_places_[value] = static_cast<std::uint8_t>(number);
    if (predicate_uses_[value].count != 0) free_predicates_ &= ~(1U << number);
  }
  instruction.predicate = static_cast<std::uint8_t>(number);
  const Written& written = predicates_[number];
  now_ = std::max(now_, written.at + delaysOf(written.form, operation.form).overwrite);
  return true;
}

unsigned Allocator::takeBarrier() const {
  unsigned best = 0;
  for (unsigned barrier = 0; barrier < kBarriers; ++barrier) {
    if (!barriers_[barrier].is_busy) return barrier;
    if (barriers_[barrier].set < barriers_[best].set) best = barrier;
  }
  return best;
}

void Allocator::markIssue(const Operation& operation, sass::Instruction& instruction) {
  const FormFacts& facts = factsOf(operation.form);
  const bool has_result = instruction.destination != sass::kZero && facts.results != 0;
  if (isVariable(operation.form)) {
    const RegisterSet written = has_result ? registerSet(instruction.destination, facts.results) : 0;
    const unsigned number = takeBarrier();
    Barrier& barrier = barriers_[number];
    barrier.is_busy = true;
    barrier.set = now_;
    barrier.read |= sources_;
    barrier.written |= written;
    to_read_ |= sources_;
    to_write_ |= written;
    just_read_ = 0;
    auto& control = instruction.control;
    (isStore(operation.form) ? control.read_barrier : control.write_barrier) = static_cast<std::uint8_t>(number);
    return;
  }
  just_read_ = sources_;
  const Written written{now_, static_cast<std::uint32_t>(operation.form)};
  if (has_result) {
    for (unsigned part = 0; part < facts.results; ++part) registers_[instruction.destination + part] = written;
    finished_ = std::max(finished_, now_ + kRegisterDelay);
  } else if (instruction.predicate != sass::kTrue) {
    predicates_[instruction.predicate] = written;
    finished_ = std::max(finished_, now_ + kPredicateDelay);
  } else {
    finished_ = std::max(finished_, now_ + Cycle{facts.latency});
  }
}

void Allocator::emit(const sass::Instruction& instruction, std::vector<sass::Instruction>& out) {
  if (!out.empty()) {
    Cycle stall = now_ - issued_;
    for (; stall > kLongestStall; stall -= kLongestStall) {
      out.back().control.stall = kLongestStall;
      out.push_back({.form = Form::kNop});
    }
    out.back().control.stall = static_cast<std::uint8_t>(stall);
    out.back().control.yield = stall < 4;
  }
  out.push_back(instruction);
  out.back().control.stall = kBranchStall;
  issued_ = now_;
}

}  // namespace srjit::direct

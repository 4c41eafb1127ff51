#include "compiler/direct/allocate.h"

#include <algorithm>
#include <array>
#include <bit>

#include "compiler/direct/registers.h"
#include "compiler/target/architecture.h"

namespace srjit::direct {
namespace {

using sass::Pipe;
using sass::Timing;

constexpr int kLongestStall = 15;
constexpr std::uint32_t kWordBytes = sizeof(sass::Word);
constexpr int kMostLiveTruths = int{kFreePredicates};

constexpr auto kInstructions = [] {
  std::array<sass::Form, sass::kForms> all{};
  for (std::size_t f = 0; f < all.size(); ++f) all[f] = static_cast<sass::Form>(f);
  return all;
}();

// Whether every later instruction needs the same delays after either, as writers of a register or predicate.
bool areAlikeAsFirst(sass::Form a, sass::Form b) {
  return std::ranges::all_of(kInstructions, [&](sass::Form second) {
    if (sass::registerDelay(a, second) != sass::registerDelay(b, second)) return false;
    for (const bool guarded : {false, true}) {
      if (sass::overwriteDelay(a, second, guarded) != sass::overwriteDelay(b, second, guarded)) return false;
      if (sass::predicateDelay(a, second, guarded) != sass::predicateDelay(b, second, guarded)) return false;
    }
    return true;
  });
}

/// Kinds of forms, each with its first form, and that of every form.
struct FormKinds {
  std::vector<sass::Form> representatives;
  std::array<std::uint8_t, kInstructions.size()> kinds{};

  FormKinds() {
    for (const sass::Form form : kInstructions) {
      const auto isLike = [&](sass::Form other) { return areAlikeAsFirst(form, other); };
      const auto like = std::ranges::find_if(representatives, isLike);
      kinds.at(static_cast<std::size_t>(form)) = static_cast<std::uint8_t>(like - representatives.begin());
      if (like == representatives.end()) representatives.push_back(form);
    }
  }
};

OpcodeRow rowOf(sass::Form form, const FormKinds& kinds, unsigned architecture) {
  const auto byte = [](unsigned number) { return static_cast<std::uint8_t>(number); };
  OpcodeRow row{};
  row.facts = factsOf(opcodeOf(form));
  row.facts.timing = sass::timingOf(form, architecture);
  row.encoding = sass::encodingOf(form);
  for (std::size_t kind = 0; kind < kinds.representatives.size(); ++kind) {
    const sass::Form first = kinds.representatives[kind];
    row.value.at(kind) = byte(sass::registerDelay(first, form));
    row.overwrite.at(kind) = byte(sass::overwriteDelay(first, form, false));
    row.guarded_overwrite.at(kind) = byte(sass::overwriteDelay(first, form, true));
    row.condition.at(kind) = byte(sass::predicateDelay(first, form, false, architecture));
    row.guard.at(kind) = byte(sass::predicateDelay(first, form, true, architecture));
  }
  row.kind = kinds.kinds.at(static_cast<std::size_t>(form));
  const bool is_double = row.facts.pipe == Pipe::kDouble, is_fixed = row.facts.timing == Timing::kFixed;
  row.read_delay = byte(is_fixed || is_double ? 0 : sass::kReadDelay);
  for (const sass::Form reader : kInstructions) {
    row.settling = std::max(row.settling, byte(sass::registerDelay(form, reader)));
    for (const bool as_guard : {false, true}) {  // the longer of the two
      row.truth_settling =
          std::max(row.truth_settling, byte(sass::predicateDelay(form, reader, as_guard, architecture)));
    }
  }
  row.is_rare = row.facts.pipe == Pipe::kControl ? 1 : 0;
  return row;
}

// Of two instructions: the delays suffice for both. The upper one is issued a cycle later.
OpcodeRow rowOf(const OpcodePair& pair, const FormKinds& kinds, unsigned architecture) {
  OpcodeRow row = rowOf(pair.lower, kinds, architecture);
  row.is_rare = 1;
  row.half = static_cast<std::uint8_t>(pair.half);
  if (!pair.upper) return row;
  row.upper = &sass::encodingOf(*pair.upper);
  const OpcodeRow upper = rowOf(*pair.upper, kinds, architecture);
  const auto extend = [](OpcodeRow::Delays& delays, const OpcodeRow::Delays& others) {
    std::ranges::transform(delays, others, delays.begin(), [](std::uint8_t of_lower, std::uint8_t of_upper) {
      return std::max(of_lower, static_cast<std::uint8_t>(of_upper - std::min<int>(of_upper, 1)));
    });
  };
  extend(row.value, upper.value);
  extend(row.overwrite, upper.overwrite);
  extend(row.guarded_overwrite, upper.guarded_overwrite);
  extend(row.condition, upper.condition);
  extend(row.guard, upper.guard);
  row.read_delay = std::max(row.read_delay, upper.read_delay);
  row.settling = std::max(row.settling, upper.settling);
  return row;
}

OpcodeTable tableFor(const FormKinds& kinds, unsigned architecture) {
  OpcodeTable table{};
  const auto last = std::ranges::transform(kInstructions, table.begin(), [&](sass::Form form) {
                      return rowOf(form, kinds, architecture);
                    }).out;
  std::ranges::transform(kOpcodePairs, last, [&](const OpcodePair& pair) { return rowOf(pair, kinds, architecture); });
  for (std::size_t f = 0; f < table.size(); ++f) {
    const OpcodeFacts& facts = kOpcodeFacts[f];
    table[f].facts.results = facts.results;
    table[f].facts.sources = facts.sources;
    for (std::size_t i = 0; i < 3; ++i) {
      table[f].source_masks[i] = static_cast<std::uint8_t>((1U << facts.sources[i]) - 1);
      if (table[f].upper != nullptr && facts.sources[i] == 1) table[f].keeps_sources = 1;
    }
  }
  return table;
}

constexpr std::uint64_t bitsOfStall(unsigned cycles, bool yield) {
  return std::uint64_t{cycles} << (sass::kStallAt - 64) | std::uint64_t{yield} << (sass::kYieldAt - 64);
}
// Stands for all predicates in a barrier's set of written registers. No register has that number.
constexpr RegisterSet kAnyTruth = registerSet(kMostRegisters - sass::kHiddenRegisters);
constexpr std::uint64_t kIdle = sass::bitsOf({.stall = 0});
constexpr std::uint64_t kBarrierBits =
    std::uint64_t{7} << (sass::kWriteBarrierAt - 64) | std::uint64_t{7} << (sass::kReadBarrierAt - 64);

bool isVariable(const OpcodeFacts& facts) { return facts.timing == Timing::kVariable; }
bool isBranch(const OpcodeFacts& facts) { return facts.pipe == Pipe::kControl; }
bool isStore(Opcode opcode) { return opcode == Opcode::kStg || opcode == Opcode::kStg64; }
/// From the issue of a branch, or of a call, whose branch is its second instruction, to that of the target.
int cyclesToTarget(Opcode opcode) {
  constexpr int kOfBranch = int{sass::kBranchStall};
  if (opcode == Opcode::kCall) return kOfBranch + 1;
  return isBranch(factsOf(opcode)) ? kOfBranch : 0;
}
unsigned upperOf(unsigned place) { return place == sass::kZero ? place : place + 1; }

}  // namespace

/// The instruction being emitted.
struct Allocator::Issue {
  const OpcodeRow& row;
  Cycle now;  ///< the earliest cycle of its issue
  sass::Word word;
  RegisterSet sources = 0, freed = 0, results = 0;
  unsigned predicate = sass::kTrue;  ///< the predicate that it writes
};

Allocator::Allocator(unsigned architecture) : architecture_(architecture) {
  static const std::vector<std::pair<unsigned, OpcodeTable>> kTables = [] {
    std::vector<std::pair<unsigned, OpcodeTable>> tables;
    const FormKinds kinds;
    for (const unsigned each : directArchitectures()) tables.emplace_back(each, tableFor(kinds, each));
    return tables;
  }();
  table_ = &std::ranges::find(kTables, architecture, &std::pair<unsigned, OpcodeTable>::first)->second;
}

void Allocator::begin(const Code& code, const RegisterFile& file) {
  code_ = &code;
  values_ = code.values();
  truths_ = code.truths();
  free_ = registerSet(0, file.limit - 1) | registerSet(file.limit - 1);
  free_ &= ~(file.reserved | file.of_subroutines);
  used_ = file.reserved;
  of_subroutines_ = file.of_subroutines;
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
  calls_.clear();
  exits_.clear();
  targets_.clear();
}

bool Allocator::run(const Code& code, Scheduler& scheduler, const RegisterFile& file, std::uint32_t subroutines,
                    std::vector<sass::Word>& words) {
  begin(code, file);
  subroutines_ = subroutines;
  if (origins_ != nullptr) origins_->clear();
  words_ = &words;
  first_ = words.size();
  if (!(origins_ != nullptr ? placeAll<true>(scheduler, file) : placeAll<false>(scheduler, file))) return false;
  words.back().high |= bitsOfStall(sass::kBranchStall, false);
  setBranchOffsets();
  return true;
}

// A template, since most runs are not traced and the loop is hot.
template <bool kTraced>
bool Allocator::placeAll(Scheduler& scheduler, const RegisterFile& file) {
  for (;;) {
    const std::uint32_t at = scheduler.next(live_ >= file.values, live_truths_ >= kMostLiveTruths);
    if (at == Scheduler::kEnd) return true;
    if (!place(at, code_->operation(at))) {
      words_->resize(first_);
      return false;
    }
    // With the waiting Nops before it.
    if constexpr (kTraced) origins_->resize(words_->size() - first_, at);
  }
}

void Allocator::setBranchOffsets() const {
  for (const Place& branch : branches_) {
    const auto target = std::ranges::lower_bound(targets_, branch.operation, {}, &Place::operation);
    const bool is_start = target == targets_.end() || target->operation != branch.operation;
    sass::putBranchOffset((*words_)[first_ + branch.position],
                          ((is_start ? 0 : target->position) - (branch.position + 1)) * kWordBytes, architecture_);
  }
  for (const std::uint32_t call : calls_) {
    const std::uint64_t to = std::uint64_t{call + 2} * kWordBytes;
    (*words_)[first_ + call].low |= to * sass::encodingOf(sass::Form::kMovI).immediate_low;
  }
}

bool Allocator::place(std::uint32_t at, const Operation& operation) {
  const OpcodeRow& row = (*table_)[static_cast<std::size_t>(operation.opcode)];
  const bool is_rare = (row.is_rare | static_cast<unsigned>(operation.synchronized)) != 0;
  return is_rare ? placeRare(at, operation, row) : placeInstruction(operation, row, operation.immediate, false, false);
}

// A result in a given register is like one in a machine register.
bool Allocator::placeInPlace(std::uint32_t at, const Operation& operation) {
  const OpcodeRow& row = (*table_)[static_cast<std::size_t>(operation.opcode)];
  const ValueId place = values_[operation.sources[0]].place;
  values_[operation.destination].place = place;
  Operation placed = operation;
  placed.in_place = false;
  placed.destination = place;
  if (!placeRare(at, placed, row)) return false;
  free_ &= ~registerSet(place, row.facts.results);
  live_ += row.facts.results;
  return true;
}

bool Allocator::placeRare(std::uint32_t at, const Operation& operation, const OpcodeRow& row) {
  if (operation.in_place) return placeInPlace(at, operation);
  std::uint32_t immediate = operation.immediate, upper_immediate = immediate;
  if (operation.opcode == Opcode::kCall) {
    if (live_truths_ > 0) return false;  // a subroutine uses all predicates
    immediate = 0;                       // until setBranchOffsets()
  }
  if (at == subroutines_) free_ = of_subroutines_;
  if (operation.opcode == Opcode::kMovPairI) {
    const std::uint64_t bits = code_->wideLiteralAt(operation.immediate);
    immediate = static_cast<std::uint32_t>(bits);
    upper_immediate = static_cast<std::uint32_t>(bits >> 32);
  }
  if (!placeInstruction(operation, row, immediate, operation.synchronized, row.keeps_sources != 0)) return false;
  markControl(at, operation);
  // The lower register of a pair is even. Fields are changed by exclusive or.
  if (row.half != 0) row.encoding.putSource(words_->back(), 0, sass::kZero ^ 1U);
  if (row.upper != nullptr) emitUpper(operation, row, upper_immediate);
  if (operation.opcode == Opcode::kCall) markCall(operation);
  return true;
}

bool Allocator::placeInstruction(const Operation& operation, const OpcodeRow& row, std::uint32_t immediate,
                                 bool is_synchronized, bool keeps_sources) {
  Issue issue{.row = row,
              .now = issued_ + spacing_,
              .word = row.encoding.begin(operation.negated, operation.magnitude, operation.modifier, immediate)};
  issue.word.high |= kIdle;
  spacing_ = 1;
  if (is_synchronized) {
    waitFor(busy_, issue);
    issue.now = std::max(issue.now, finished_ - cyclesToTarget(operation.opcode));
  }
  if (operation.guard != kAlways) sass::putGuard(issue.word, readPredicate(operation.guard, row.guard, issue));
  if (operation.condition != kAlways) {
    row.encoding.putCondition(issue.word, readPredicate(operation.condition, row.condition, issue));
  }
  readSources(operation, issue);
  if (!keeps_sources) free_ |= issue.freed;
  if (!writeRegisters(operation, issue) || !writePredicate(operation, issue)) return false;
  if (keeps_sources) free_ |= issue.freed;
  isVariable(row.facts) ? signal(operation, issue) : finish(operation, issue);
  emit(issue);
  return true;
}

// Active barriers that guard any of these registers.
Allocator::BarrierSet Allocator::barriersOf(RegisterSet written, RegisterSet read) const {
  BarrierSet found = 0;
  for (unsigned b = 0; b < kBarriers; ++b) {
    const RegisterSet common = (barriers_[b].written & written) | (barriers_[b].read & read);
    found |= (common != 0 ? 1U : 0U) << b;
  }
  return found;
}

void Allocator::waitFor(BarrierSet barriers, Issue& issue) {
  issue.word.high |= std::uint64_t{barriers} << (sass::kWaitAt - 64);
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

// Active barriers that guard any predicate the operation reads.
Allocator::BarrierSet Allocator::barriersOfTruths(const Operation& operation) const {
  TruthSet used = 0;
  for (const PredicateId id : {operation.guard, operation.condition}) used |= 1U << truths_[id / 2].place;
  BarrierSet found = 0;
  for (unsigned b = 0; b < kBarriers; ++b) found |= ((barriers_[b].truths & used) != 0 ? 1U : 0U) << b;
  return found;
}

void Allocator::readSource(const Operation& operation, std::size_t i, Issue& issue) {
  Code::Operand& source = values_[operation.sources[i]];
  const std::int32_t if_last = --source.reads >> 31;
  const std::uint32_t place = source.place;
  const Written& written = registers_[place];
  const RegisterSet registers = RegisterSet{issue.row.source_masks[i]} << place % kMostRegisters;
  issue.row.encoding.putSource(issue.word, i, place);
  issue.now = std::max(issue.now, written.at + issue.row.value[written.kind]);
  issue.sources |= registers;
  issue.freed |= registers & static_cast<RegisterSet>(std::int64_t{if_last});
  live_ -= issue.row.facts.sources[i] & if_last;
}

// Branches on the third source only, which is rare; a branch on the second one predicts badly.
void Allocator::readSources(const Operation& operation, Issue& issue) {
  readSource(operation, 0, issue);
  readSource(operation, 1, issue);
  if (operation.sources[2] != kRz) readSource(operation, 2, issue);
  if ((issue.sources & to_write_) != 0) {
    const bool reads_truth = (issue.sources & to_write_ & kAnyTruth) != 0;
    waitFor(barriersOf(issue.sources & ~kAnyTruth, 0) | (reads_truth ? barriersOfTruths(operation) : 0), issue);
  }
}

unsigned Allocator::readPredicate(PredicateId predicate, const OpcodeRow::Delays& delays, Issue& issue) {
  Code::Operand& truth = truths_[predicate / 2];
  const std::int32_t if_last = --truth.reads >> 31;
  free_predicates_ |= (1U << truth.place) & static_cast<unsigned>(if_last);
  live_truths_ += if_last;
  const Written& written = predicates_[truth.place];
  issue.now = std::max(issue.now, written.at + delays[written.kind]);
  issue.sources |= kAnyTruth;
  return truth.place | (predicate & 1U) * sass::kNot;
}

// The first of `width` adjacent, aligned free registers; kZero if there are none.
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

// Allocates `width` registers for a value and returns the first. Those of a value that is never read stay free. kZero
// if there are too few.
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

bool Allocator::writeRegisters(const Operation& operation, Issue& issue) {
  const OpcodeRow& row = issue.row;
  const unsigned width = row.facts.results;
  if (width == 0 || operation.destination == kRz) return true;
  const bool is_value = operation.destination >= kFirstValue;
  const unsigned first = is_value ? take(operation.destination, width) : operation.destination;
  if (first == kRz) return false;
  row.encoding.putDestination(issue.word, first);
  const RegisterSet results = registerSet(first, width);
  issue.results = results;
  if ((results & (to_write_ | to_read_)) != 0) waitFor(barriersOf(results, results), issue);
  const Cycle read_delay = (results & just_read_) != 0 ? row.read_delay : 0;
  issue.now = std::max(issue.now, issued_ + read_delay);
  const auto& overwrite = operation.guard == kAlways ? row.overwrite : row.guarded_overwrite;
  for (unsigned r = first; r < first + width; ++r) {
    issue.now = std::max(issue.now, registers_[r].at + overwrite[registers_[r].kind]);
  }
  return true;
}

bool Allocator::writePredicate(const Operation& operation, Issue& issue) {
  if (operation.predicate == kAlways) return true;
  Code::Operand& truth = truths_[operation.predicate / 2];
  if (operation.predicate >= 2 * kFirstPredicate) {
    if (truth.reads < 0) return true;  // never read
    if (free_predicates_ == 0) return false;
    truth.place = static_cast<std::uint32_t>(std::countr_zero(free_predicates_));
    free_predicates_ &= ~(1U << truth.place);
    ++live_truths_;
  }
  issue.predicate = truth.place;
  issue.row.encoding.putPredicate(issue.word, truth.place);
  const Written& written = predicates_[truth.place];
  issue.now = std::max(issue.now, written.at + issue.row.overwrite[written.kind]);
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

// Variable latency: assigns a barrier that signals the results.
void Allocator::signal(const Operation& operation, Issue& issue) {
  const unsigned number = takeBarrier();
  busy_ |= 1U << number;
  Barrier& barrier = barriers_[number];
  barrier.set = issue.now;
  barrier.read |= issue.sources;
  barrier.written |= issue.results;
  to_read_ |= issue.sources;
  to_write_ |= issue.results;
  if (issue.predicate != sass::kTrue) {
    barrier.truths |= 1U << issue.predicate;
    barrier.written |= kAnyTruth;
    to_write_ |= kAnyTruth;
  }
  just_read_ = 0;
  const unsigned at = isStore(operation.opcode) ? sass::kReadBarrierAt : sass::kWriteBarrierAt;
  issue.word.high ^= std::uint64_t{number ^ sass::kNoBarrier} << (at - 64);
}

// Fixed latency: records when the results are ready.
void Allocator::finish(const Operation& operation, const Issue& issue) {
  const OpcodeFacts& facts = issue.row.facts;
  just_read_ = issue.sources;
  const Written written{issue.now, issue.row.kind};
  Cycle latency = facts.latency;
  if (issue.results != 0) {
    const auto first = static_cast<std::size_t>(std::countr_zero(issue.results));
    registers_[first] = written;
    if (facts.results == 2) registers_[first + 1] = written;
    latency = issue.row.settling;
  } else if (operation.predicate != kAlways) {
    predicates_[issue.predicate] = written;
    latency = issue.row.truth_settling;
  }
  finished_ = std::max(finished_, issue.now + latency);
}

// Stall and yield of an instruction depend on the next one, so they are set when that is emitted.
void Allocator::emit(const Issue& issue) {
  if (issued_ >= 0) {
    Cycle stall = issue.now - issued_;
    for (; stall > kLongestStall; stall -= kLongestStall) {
      words_->back().high |= bitsOfStall(kLongestStall, false);
      words_->push_back(sass::encode({.form = sass::Form::kNop, .control = {.stall = 0}}, architecture_));
    }
    words_->back().high |= bitsOfStall(static_cast<unsigned>(stall), stall < 4);
  }
  words_->push_back(issue.word);
  issued_ = issue.now;
}

// The second of two instructions, one cycle after the first. Results and barriers are one cycle later, too.
void Allocator::emitUpper(const Operation& operation, const OpcodeRow& row, std::uint32_t immediate) {
  const sass::Encoding& encoding = *row.upper;
  const std::uint64_t barriers = words_->back().high & kBarrierBits;
  Issue issue{.row = row,
              .now = issued_ + 1,
              .word = encoding.begin(operation.negated, operation.magnitude, operation.modifier, immediate)};
  issue.word.high |= barriers;
  for (std::size_t i = 0; i < operation.sources.size(); ++i) {
    const unsigned place = values_[operation.sources[i]].place;
    encoding.putSource(issue.word, i, row.facts.sources[i] == 1 ? place : upperOf(place));
  }
  const unsigned first = values_[operation.destination].place;
  encoding.putDestination(issue.word, upperOf(first));
  const auto numberOf = [&](PredicateId predicate) {
    return truths_[predicate / 2].place | (predicate & 1U) * sass::kNot;
  };
  if (operation.guard != kAlways) sass::putGuard(issue.word, numberOf(operation.guard));
  if (operation.condition != kAlways) encoding.putCondition(issue.word, numberOf(operation.condition));
  if (isVariable(row.facts)) {
    barriers_[barriers >> (sass::kWriteBarrierAt - 64) & 7].set = issue.now;
  } else {
    registers_[first].at = registers_[first + 1].at = issue.now;
    finished_ = std::max(finished_, issue.now + row.settling);
  }
  emit(issue);
}

// Records branches, and operations that may be their targets. Call after emit().
void Allocator::markControl(std::uint32_t at, const Operation& operation) {
  const auto position = static_cast<std::uint32_t>(words_->size() - first_ - 1);
  if (operation.synchronized) targets_.push_back({at, position});
  if (!isBranch(factsOf(operation.opcode))) return;
  spacing_ = sass::kBranchStall;
  if (operation.opcode == Opcode::kExit) exits_.push_back(position);
  if (operation.opcode == Opcode::kBra) branches_.push_back({operation.immediate, position});
  // An indexed branch adds an offset from the start of the code.
  if (operation.opcode == Opcode::kBrx) branches_.push_back({0, position});
}

// Records a call. Call after both of its instructions were emitted.
void Allocator::markCall(const Operation& operation) {
  const auto branch = static_cast<std::uint32_t>(words_->size() - first_ - 1);
  spacing_ = sass::kBranchStall;
  calls_.push_back(branch - 1);
  branches_.push_back({operation.immediate, branch});
}

}  // namespace srjit::direct

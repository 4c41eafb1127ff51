#include "compiler/direct_allocate.h"

#include <algorithm>
#include <bit>

namespace srjit::direct {
namespace {

using sass::Form;
using sass::Pipe;
using sass::Timing;

constexpr std::size_t kForms = kFormFacts.size();
constexpr int kLongestStall = 15;
constexpr int kBranchStall = 5;
constexpr int kReadDelay = 2;  // between a read of fixed latency and a write of variable latency

/// sass' delays between two forms, without a call.
struct Delays {
  std::uint8_t value, condition, guard, overwrite, guarded_overwrite;
};

const Delays* delayTable() {
  static const std::vector<Delays> kTable = [] {
    std::vector<Delays> table(kForms * kForms);
    for (std::size_t first = 0; first < kForms; ++first) {
      for (std::size_t second = 0; second < kForms; ++second) {
        const auto a = static_cast<Form>(first), b = static_cast<Form>(second);
        const auto byte = [](unsigned delay) { return static_cast<std::uint8_t>(delay); };
        table[first * kForms + second] = {byte(sass::registerDelay(a, b)), byte(sass::predicateDelay(a, b, false)),
                                          byte(sass::predicateDelay(a, b, true)),
                                          byte(sass::overwriteDelay(a, b, false)),
                                          byte(sass::overwriteDelay(a, b, true))};
      }
    }
    return table;
  }();
  return kTable.data();
}

const Delays& delaysOf(std::uint8_t first, Form second) {
  static const Delays* const kDelays = delayTable();
  return kDelays[first * kForms + static_cast<std::size_t>(second)];
}

bool isVariable(Form form) { return factsOf(form).timing == Timing::kVariable; }
bool isBranch(Form form) { return factsOf(form).pipe == Pipe::kControl; }
bool isStore(Form form) { return form == Form::kStg || form == Form::kStg64; }

}  // namespace

void Allocator::begin(const Code& code, const RegisterSet& reserved, unsigned limit) {
  places_.resize(code.valueCount());
  predicate_places_.resize(code.predicateCount());
  uses_ = code.uses();
  predicate_uses_ = code.predicateUses();
  free_ = pending_ = {};
  registers_used_ = 0;
  for (unsigned r = 0; r < limit; ++r) {
    if (!reserved.has(r)) free_.add(r);
  }
  for (unsigned r = 0; r < 256; ++r) {
    if (reserved.has(r)) registers_used_ = r + 1;
  }
  free_predicates_ = ((1U << kFreePredicates) - 1) << kFirstFreePredicate;
  registers_.fill({});
  predicates_.fill({});
  barriers_.fill({});
  issued_ = -1;
  spacing_ = 1;
  finished_ = 0;
  positions_.assign(code.size(), 0);
}

bool Allocator::run(const Code& code, std::span<const std::uint32_t> order, const RegisterSet& reserved, unsigned limit,
                    std::vector<sass::Instruction>& out) {
  begin(code, reserved, limit);
  out.clear();
  for (const std::uint32_t at : order) {
    if (!place(code.operations()[at])) return false;
    emit(out);
    positions_[at] = static_cast<std::uint32_t>(out.size() - 1);
  }
  setBranchOffsets(code, order, out);
  return true;
}

void Allocator::setBranchOffsets(const Code& code, std::span<const std::uint32_t> order,
                                 std::vector<sass::Instruction>& out) const {
  for (const std::uint32_t at : order) {
    const Operation& operation = code.operations()[at];
    const std::uint32_t next = positions_[at] + 1;
    // An indexed branch adds an offset from the beginning of the code.
    const std::uint32_t target = operation.form == Form::kBra ? positions_[operation.immediate] : 0;
    if (operation.form != Form::kBra && operation.form != Form::kBrx) continue;
    out[positions_[at]].immediate = (target - next) * std::uint32_t{sizeof(sass::Word)};
  }
}

bool Allocator::place(const Operation& operation) {
  now_ = issued_ + spacing_;
  spacing_ = isBranch(operation.form) ? kBranchStall : 1;
  instruction_ = {.form = operation.form,
                  .negated = operation.negated,
                  .magnitude = operation.magnitude,
                  .immediate = operation.immediate,
                  .modifier = operation.modifier};
  if (operation.synchronized) {
    for (unsigned barrier = 0; barrier < kBarriers; ++barrier) waitFor(barrier);
    now_ = std::max(now_, finished_);
  }
  readSources(operation);
  instruction_.guard = static_cast<std::uint8_t>(readPredicate(operation, operation.guard, true));
  instruction_.condition = static_cast<std::uint8_t>(readPredicate(operation, operation.condition, false));
  if (!prepareDestination(operation) || !preparePredicate(operation)) return false;
  markIssue(operation);
  return true;
}

void Allocator::waitFor(unsigned barrier) {
  Barrier& waited = barriers_[barrier];
  if (!waited.is_busy) return;
  instruction_.control.wait_mask |= static_cast<std::uint8_t>(1U << barrier);
  now_ = std::max(now_, waited.set + static_cast<Cycle>(sass::kBarrierDelay));
  waited = {};
  pending_ = {};
  for (const Barrier& other : barriers_) {
    if (!other.is_busy) continue;
    pending_.addAll(other.written);
    pending_.addAll(other.read);
  }
}

void Allocator::waitForPending(unsigned r, bool for_writers_alone) {
  if (!pending_.has(r)) return;
  for (unsigned barrier = 0; barrier < kBarriers; ++barrier) {
    if (barriers_[barrier].written.has(r) || (!for_writers_alone && barriers_[barrier].read.has(r))) waitFor(barrier);
  }
}

void Allocator::readSources(const Operation& operation) {
  const FormFacts& facts = factsOf(operation.form);
  for (std::size_t i = 0; i < operation.sources.size(); ++i) {
    const unsigned first = registerOf(operation.sources[i]);
    instruction_.sources[i] = static_cast<std::uint8_t>(first);
    if (first == sass::kZero) continue;
    for (unsigned r = first; r < first + facts.sources[i]; ++r) {
      waitForPending(r, true);
      const Place& place = registers_[r];
      if (place.writer != kNoWriter) {
        now_ = std::max(now_, place.written + delaysOf(place.writer, operation.form).value);
      }
    }
    if (operation.sources[i] < kFirstValue) continue;
    for (unsigned part = 0; part < facts.sources[i]; ++part) {
      if (--uses_[operation.sources[i] - kFirstValue + part] == 0) free_.add(first + part);
    }
  }
}

unsigned Allocator::readPredicate(const Operation& operation, PredicateId predicate, bool as_guard) {
  unsigned number = predicate / 2;
  if (number >= kFirstPredicate) {
    const unsigned value = number - kFirstPredicate;
    number = predicate_places_[value];
    if (--predicate_uses_[value] == 0) free_predicates_ |= 1U << number;
  }
  const Place& place = predicates_[number];
  if (place.writer != kNoWriter) {
    const Delays& delays = delaysOf(place.writer, operation.form);
    now_ = std::max(now_, place.written + (as_guard ? delays.guard : delays.condition));
  }
  return number | ((predicate & 1) != 0 ? sass::kNot : 0U);
}

unsigned Allocator::findFree(unsigned width, const RegisterSet& avoided) const {
  for (unsigned i = 0; i < RegisterSet::kWords; ++i) {
    std::uint64_t found = free_.word(i) & ~avoided.word(i);
    if (width >= 2) found &= (found >> 1) & 0x5555555555555555;
    if (width == 4) found &= (found >> 2) & 0x1111111111111111;
    if (found != 0) return 64 * i + static_cast<unsigned>(std::countr_zero(found));
  }
  return sass::kZero;
}

bool Allocator::prepareDestination(const Operation& operation) {
  const FormFacts& facts = factsOf(operation.form);
  if (facts.results == 0 || operation.destination == kRz) return true;
  unsigned first = operation.destination;
  if (first >= kFirstValue) {
    const unsigned value = first - kFirstValue;
    first = findFree(facts.results, pending_);
    if (first == sass::kZero) first = findFree(facts.results, {});
    if (first == sass::kZero) return false;
    for (unsigned part = 0; part < facts.results; ++part) {
      places_[value + part] = static_cast<std::uint8_t>(first + part);
      if (uses_[value + part] != 0) free_.remove(first + part);
    }
    registers_used_ = std::max(registers_used_, first + facts.results);
  }
  instruction_.destination = static_cast<std::uint8_t>(first);
  for (unsigned r = first; r < first + facts.results; ++r) {
    waitForPending(r, false);
    const Place& place = registers_[r];
    if (isVariable(operation.form)) now_ = std::max(now_, place.read + kReadDelay);
    if (place.writer == kNoWriter) continue;
    const Delays& delays = delaysOf(place.writer, operation.form);
    now_ = std::max(now_, place.written + (operation.guard == kAlways ? delays.overwrite : delays.guarded_overwrite));
  }
  return true;
}

bool Allocator::preparePredicate(const Operation& operation) {
  unsigned number = operation.predicate / 2;
  if (number == sass::kTrue) return true;
  if (number >= kFirstPredicate) {
    if (free_predicates_ == 0) return false;
    const unsigned value = number - kFirstPredicate;
    number = static_cast<unsigned>(std::countr_zero(free_predicates_));
    predicate_places_[value] = static_cast<std::uint8_t>(number);
    if (predicate_uses_[value] != 0) free_predicates_ &= ~(1U << number);
  }
  instruction_.predicate = static_cast<std::uint8_t>(number);
  const Place& place = predicates_[number];
  if (place.writer != kNoWriter) {
    now_ = std::max(now_, place.written + delaysOf(place.writer, operation.form).overwrite);
  }
  return true;
}

unsigned Allocator::takeBarrier() {
  unsigned best = 0;
  for (unsigned barrier = 0; barrier < kBarriers; ++barrier) {
    if (!barriers_[barrier].is_busy) return barrier;
    if (barriers_[barrier].set < barriers_[best].set) best = barrier;
  }
  return best;
}

void Allocator::markIssue(const Operation& operation) {
  const FormFacts& facts = factsOf(operation.form);
  const auto form = static_cast<std::uint8_t>(operation.form);
  RegisterSet read, written;
  for (std::size_t i = 0; i < instruction_.sources.size(); ++i) {
    if (instruction_.sources[i] == sass::kZero) continue;
    for (unsigned part = 0; part < facts.sources[i]; ++part) read.add(instruction_.sources[i] + part);
  }
  if (isVariable(operation.form)) {
    for (unsigned part = 0; instruction_.destination != sass::kZero && part < facts.results; ++part) {
      written.add(instruction_.destination + part);
      registers_[instruction_.destination + part].writer = kNoWriter;
    }
    const unsigned number = takeBarrier();
    Barrier& barrier = barriers_[number];
    barrier.is_busy = true;
    barrier.set = now_;
    barrier.read.addAll(read);
    barrier.written.addAll(written);
    pending_.addAll(read);
    pending_.addAll(written);
    auto& control = instruction_.control;
    (isStore(operation.form) ? control.read_barrier : control.write_barrier) = static_cast<std::uint8_t>(number);
    return;
  }
  for (std::size_t i = 0; i < instruction_.sources.size(); ++i) {
    for (unsigned part = 0; part < facts.sources[i]; ++part) {
      if (instruction_.sources[i] != sass::kZero) registers_[instruction_.sources[i] + part].read = now_;
    }
  }
  if (instruction_.destination != sass::kZero) {
    for (unsigned part = 0; part < facts.results; ++part) {
      Place& place = registers_[instruction_.destination + part];
      place.written = now_;
      place.writer = form;
    }
  }
  if (instruction_.predicate != sass::kTrue) {
    predicates_[instruction_.predicate].written = now_;
    predicates_[instruction_.predicate].writer = form;
  }
  const Cycle latency = facts.pipe == Pipe::kControl     ? kBranchStall
                        : operation.predicate == kAlways ? facts.latency + 2
                                                         : 13;
  finished_ = std::max(finished_, now_ + latency);
}

void Allocator::emit(std::vector<sass::Instruction>& out) {
  if (!out.empty()) {
    Cycle stall = now_ - issued_;
    while (true) {
      out.back().control.stall = static_cast<std::uint8_t>(std::min(stall, kLongestStall));
      out.back().control.yield = stall < 4;
      if (stall <= kLongestStall) break;
      stall -= kLongestStall;
      out.push_back({.form = Form::kNop});
    }
  }
  instruction_.control.stall = kBranchStall;
  out.push_back(instruction_);
  issued_ = now_;
}

}  // namespace srjit::direct

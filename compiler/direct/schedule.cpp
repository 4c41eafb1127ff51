#include "compiler/direct/schedule.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace srjit::direct {
namespace {

// Other warps issue while one waits, so a load's latency in issue slots of this warp is less than in cycles.
constexpr std::uint8_t kLongest = 40;

constexpr std::uint64_t bitOf(std::uint32_t at) { return std::uint64_t{1} << at % 64; }

// The set rotated so that the bit of `first` is bit 0.
std::uint64_t from(std::uint64_t set, std::uint32_t first) { return std::rotr(set, static_cast<int>(first % 64)); }
std::uint32_t firstOf(std::uint64_t set) { return static_cast<std::uint32_t>(std::countr_zero(set)); }

}  // namespace

void Scheduler::begin(const Code& code, const Sections& sections, std::uint32_t window) {
  code_ = &code;
  sections_ = window == 1 ? Sections{.middle = code.size(), .tail = code.size()} : sections;
  outside_ = 0;
  oldest_ = entered_ = sections_.middle;
  window_ = window;
  left_ = known_ = truths_ = 0;
  if (sections_.middle == sections_.tail) return;
  made_.assign(code.values().size(), 0);
  truths_made_.assign(code.truths().size(), 0);
  now_ = 0;
}

// Chooses from the middle section, or from the operations after it.
std::uint32_t Scheduler::choose(bool too_many_values, bool too_many_truths) {
  oldest_ = left_ != 0 ? oldest_ + firstOf(from(left_, oldest_)) : entered_;
  if (entered_ < oldest_ + window_ && !lookAhead()) {
    outside_ = std::max(outside_, sections_.tail);
    return outside_ < code_->size() ? outside_++ : kEnd;
  }
  const std::uint32_t at = too_many_values ? oldest_ : pick(too_many_truths);
  issue(at);
  return at;
}

// Enters operations until the lookahead is full. False when all are issued.
bool Scheduler::lookAhead() {
  while (entered_ < std::min(sections_.tail, oldest_ + kSlots)) {
    enter(entered_++);
    if (left_ == 0) oldest_ = entered_;
  }
  return left_ != 0;
}

// Adds an operation with its dependences: it is issued after the operations that define its operands. Branches only on
// what predicts well.
void Scheduler::enter(std::uint32_t at) {
  const Operation& operation = code_->operation(at);
  if (operation.opcode == Opcode::kNop) return;
  const OperationSet self = bitOf(at);
  OperationSet makers = 0;
  Cycle ready = 0;
  const auto waitFor = [&](Cycle made) {
    const auto bits = static_cast<std::uint32_t>(made);
    const std::uint32_t slot = bits % kSlots;
    const OperationSet is_coming = bits >> 31;
    makers |= is_coming << slot;
    entries_[slot].users |= is_coming << at % kSlots;
    ready = std::max(ready, made);
  };
  waitFor(made_[operation.sources[0]]);
  waitFor(made_[operation.sources[1]]);
  if (operation.sources[2] != kRz) waitFor(made_[operation.sources[2]]);
  if (operation.guard != kAlways) waitFor(truths_made_[operation.guard / 2]);
  if (operation.condition != kAlways) waitFor(truths_made_[operation.condition / 2]);
  entries_[at % kSlots] = {makers, 0, ready};
  const Cycle coming = comingFrom(at);
  made_[operation.destination] = coming;
  if (factsOf(operation.opcode).results == 4) std::fill_n(&made_[operation.destination], 4, coming);
  made_[kRz] = 0;
  if (operation.predicate >= 2 * kFirstPredicate) {
    truths_made_[operation.predicate / 2] = coming;
    truths_ |= self;
  }
  left_ |= self;
  known_ |= OperationSet{makers == 0} << at % kSlots;
}

// Invariant: the oldest operation can be issued, since its operands precede it.
std::uint32_t Scheduler::pick(bool too_many_truths) const {
  OperationSet held = from(truths_, oldest_);
  if (!too_many_truths) held &= held - 1;
  const OperationSet window = (OperationSet{1} << window_) - 1;
  std::uint32_t best = 0;
  Cycle earliest = std::numeric_limits<Cycle>::max();
  for (OperationSet known = from(known_, oldest_) & window & ~held; known != 0; known &= known - 1) {
    const std::uint32_t place = firstOf(known);
    const Cycle ready = std::max(entries_[(oldest_ + place) % kSlots].ready, now_);
    best = ready < earliest ? place : best;
    earliest = std::min(earliest, ready);
  }
  return oldest_ + best;
}

void Scheduler::issue(std::uint32_t at) {
  const Operation& operation = code_->operation(at);
  const OpcodeFacts& facts = factsOf(operation.opcode);
  const Entry& entry = entries_[at % kSlots];
  const OperationSet others = ~bitOf(at);
  left_ &= others;
  known_ &= others;
  truths_ &= others;
  now_ = std::max(now_, entry.ready);
  const Cycle done = now_++ + std::min(facts.latency, kLongest);
  // Unless a later operation writes the same machine register.
  const Cycle coming = comingFrom(at);
  const auto finish = [&](Cycle& made) { made = made == coming ? done : made; };
  finish(made_[operation.destination]);
  if (operation.predicate != kAlways) finish(truths_made_[operation.predicate / 2]);
  if (facts.results == 4) std::fill_n(&made_[operation.destination], 4, done);
  for (OperationSet users = entry.users; users != 0; users &= users - 1) {
    const std::uint32_t user = firstOf(users);
    Entry& waiting = entries_[user];
    waiting.makers &= others;
    waiting.ready = std::max(waiting.ready, done);
    known_ |= OperationSet{waiting.makers == 0} << user;
  }
}

}  // namespace srjit::direct

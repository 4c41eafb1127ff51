#include "compiler/direct_schedule.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace srjit::direct {
namespace {

using sass::Form;

// Other warps issue while one waits, so a load's latency, told in its own instructions, is less than in cycles.
constexpr std::uint8_t kLongest = 40;

constexpr std::uint64_t bitOf(std::uint32_t at) { return std::uint64_t{1} << at % 64; }

// How many places after `first` a set has its first member.
std::uint32_t distance(std::uint64_t set, std::uint32_t first) {
  return static_cast<std::uint32_t>(std::countr_zero(std::rotr(set, static_cast<int>(first % 64))));
}

bool isTruth(const Operation& operation) { return operation.predicate >= 2 * kFirstPredicate; }

}  // namespace

void Scheduler::begin(const Code& code, const Sections& sections, std::uint32_t window) {
  code_ = &code;
  sections_ = sections;
  outside_ = 0;
  oldest_ = entered_ = sections.middle;
  window_ = window;
  made_.assign(code.values().size(), 0);
  truths_made_.assign(code.truths().size(), 0);
  left_ = available_ = truths_ = cycles_ = 0;
  coming_.fill(0);
  now_ = 0;
}

std::optional<std::uint32_t> Scheduler::next(const Limits& limits) {
  if (outside_ < sections_.middle) return outside_++;
  if (!fillWindow()) {
    outside_ = std::max(outside_, sections_.tail);
    return outside_ < code_->size() ? std::optional(outside_++) : std::nullopt;
  }
  const std::uint32_t at = limits.values ? oldest_ : pick(limits);
  issue(at);
  return at;
}

// False when all are issued.
bool Scheduler::fillWindow() {
  do {
    if (left_ == 0 && entered_ == sections_.tail) return false;
    oldest_ = left_ != 0 ? oldest_ + distance(left_, oldest_) : entered_;
    for (const std::uint32_t end = std::min(sections_.tail, oldest_ + window_); entered_ < end; ++entered_) {
      enter(entered_);
    }
  } while ((left_ & bitOf(oldest_)) == 0);
  return true;
}

// Operations come after those that make their operands, so these are in the window or were issued.
void Scheduler::enter(std::uint32_t at) {
  const Operation& operation = code_->operation(at);
  if (operation.form == Form::kNop) return;
  const OperationSet self = bitOf(at);
  OperationSet makers = 0;
  Cycle ready = 0;
  const auto waitFor = [&](Cycle made) {
    const auto bits = static_cast<std::uint32_t>(made);
    makers |= OperationSet{bits >> 31} << bits % kSlots;
    ready = std::max(ready, made);
  };
  for (const ValueId source : operation.sources) waitFor(made_[source]);
  for (const PredicateId read : {operation.guard, operation.condition}) waitFor(truths_made_[read / 2]);
  for (OperationSet rest = makers; rest != 0; rest &= rest - 1) {
    entries_[static_cast<std::size_t>(std::countr_zero(rest))].users |= self;
  }
  entries_[at % kSlots] = {makers, 0, ready};
  const Cycle coming = comingFrom(at);
  made_[operation.destination] = coming;
  if (factsOf(operation.form).results == 4) std::fill_n(&made_[operation.destination], 4, coming);
  made_[kRz] = 0;
  truths_made_[operation.predicate / 2] = coming;
  truths_made_[sass::kTrue] = 0;
  left_ |= self;
  truths_ |= isTruth(operation) ? self : 0;
  if (makers == 0) setReady(at, ready);
}

// A cycle that has passed is as good as the one at hand.
void Scheduler::setReady(std::uint32_t at, Cycle cycle) {
  if (cycle <= now_) {
    available_ |= bitOf(at);
    return;
  }
  coming_[static_cast<std::uint32_t>(cycle) % kSlots] |= bitOf(at);
  cycles_ |= bitOf(static_cast<std::uint32_t>(cycle));
}

// The oldest operation can always be issued, since its operands come before it.
std::uint32_t Scheduler::pick(const Limits& limits) const {
  OperationSet held = truths_;
  if (!limits.truths && held != 0) held &= ~bitOf(oldest_ + distance(held, oldest_));
  if (const OperationSet found = available_ & ~held; found != 0) return oldest_ + distance(found, oldest_);
  const auto now = static_cast<std::uint32_t>(now_);
  for (std::uint64_t cycles = std::rotr(cycles_, static_cast<int>(now % 64)); cycles != 0; cycles &= cycles - 1) {
    const std::uint32_t cycle = now + static_cast<std::uint32_t>(std::countr_zero(cycles));
    const OperationSet found = coming_[cycle % kSlots] & ~held;
    if (found != 0) return oldest_ + distance(found, oldest_);
  }
  return oldest_;
}

void Scheduler::advanceTo(Cycle cycle) {
  const auto now = static_cast<std::uint32_t>(now_);
  while (cycles_ != 0) {
    const std::uint32_t next = now + distance(cycles_, now);
    if (static_cast<Cycle>(next) > cycle) break;
    available_ |= std::exchange(coming_[next % kSlots], 0);
    cycles_ &= ~bitOf(next);
  }
  now_ = cycle;
}

void Scheduler::issue(std::uint32_t at) {
  const Operation& operation = code_->operation(at);
  const FormFacts& facts = factsOf(operation.form);
  const Entry& entry = entries_[at % kSlots];
  if (entry.ready > now_) advanceTo(entry.ready);
  const OperationSet others = ~bitOf(at);
  left_ &= others;
  available_ &= others;
  truths_ &= others;
  const Cycle done = now_ + std::min(facts.latency, kLongest);
  // Unless a later operation of the window writes the same machine register.
  const Cycle coming = comingFrom(at);
  const auto finish = [&](Cycle& made) { made = made == coming ? done : made; };
  finish(made_[operation.destination]);
  finish(truths_made_[operation.predicate / 2]);
  if (facts.results == 4) std::fill_n(&made_[operation.destination], 4, done);
  for (OperationSet users = entry.users; users != 0; users &= users - 1) {
    const auto user = static_cast<std::uint32_t>(std::countr_zero(users));
    Entry& waiting = entries_[user];
    waiting.makers &= others;
    waiting.ready = std::max(waiting.ready, done);
    if (waiting.makers == 0) setReady(user, waiting.ready);
  }
  advanceTo(now_ + 1);
}

}  // namespace srjit::direct

#include "compiler/direct_schedule.h"

#include <algorithm>
#include <bit>

namespace srjit::direct {
namespace {

using sass::Form;

// Other warps issue while one waits, so a load's latency, told in its own instructions, is less than in cycles.
constexpr std::uint32_t kLongest = 40;

constexpr std::uint64_t bitOf(std::uint32_t at) { return std::uint64_t{1} << at % 64; }

// Bits from `first` on.
std::uint64_t rotated(std::uint64_t set, std::uint32_t first) { return std::rotr(set, static_cast<int>(first % 64)); }

bool isTruth(const Operation& operation) { return operation.predicate >= 2 * kFirstPredicate; }

}  // namespace

void Scheduler::run(const Code& code, const Sections& sections, unsigned window, unsigned registers,
                    std::vector<std::uint32_t>& order) {
  begin(code, sections);
  order.clear();
  order.reserve(code.size());
  for (std::uint32_t at = 0; at < begin_; ++at) {
    countLive(code.operation(at));
    order.push_back(at);
  }
  reorder(window, static_cast<int>(registers), order);
  for (std::uint32_t at = end_; at < code.size(); ++at) order.push_back(at);
}

void Scheduler::begin(const Code& code, const Sections& sections) {
  code_ = &code;
  begin_ = sections.middle;
  end_ = sections.tail;
  uses_.resize(code.values().size());
  std::ranges::transform(code.values(), uses_.begin(), &Code::Uses::count);
  std::fill_n(uses_.begin(), kFirstValue, 0);
  predicate_uses_.assign(kFirstPredicate, 0);
  predicate_uses_.resize(kFirstPredicate + code.predicates().size());
  std::ranges::transform(code.predicates(), predicate_uses_.begin() + kFirstPredicate, &Code::Uses::count);
  entries_.resize(end_ - begin_);
  for (std::uint32_t at = begin_; at < end_; ++at) entries_[at - begin_] = {code.order(at).waits_for, 0};
  available_ = truths_ = finished_ = cycles_ = 0;
  coming_.fill(0);
  now_ = 0;
  live_ = live_truths_ = 0;
}

void Scheduler::reorder(unsigned window, int registers, std::vector<std::uint32_t>& order) {
  entered_ = begin_;
  for (std::uint32_t oldest = begin_; oldest < end_;) {
    for (const std::uint32_t end = std::min(end_, oldest + window); entered_ < end; ++entered_) enter(entered_);
    if ((finished_ & bitOf(oldest)) != 0) {
      const auto done = static_cast<std::uint32_t>(std::countr_one(rotated(finished_, oldest)));
      for (const std::uint32_t next = oldest + done; oldest < next; ++oldest) finished_ &= ~bitOf(oldest);
      continue;
    }
    const std::uint32_t at = live_ >= registers ? oldest : pick(oldest);
    issue(at);
    order.push_back(at);
  }
}

void Scheduler::enter(std::uint32_t at) {
  const Operation& operation = code_->operation(at);
  if (operation.form == Form::kNop) {
    finished_ |= bitOf(at);
    return;
  }
  if (isTruth(operation)) truths_ |= bitOf(at);
  const Entry& entry = entries_[at - begin_];
  if (entry.waits_for == 0) setReady(at, entry.ready);
}

// A cycle that has passed is as good as the one at hand.
void Scheduler::setReady(std::uint32_t at, std::uint32_t cycle) {
  const std::uint64_t is_coming = cycle > now_ ? 1 : 0;
  coming_[cycle % kSlots] |= is_coming << at % kSlots;
  cycles_ |= is_coming << cycle % kSlots;
  available_ |= (is_coming ^ 1) << at % kSlots;
}

// The oldest operation can always be issued, since its operands come before it.
std::uint32_t Scheduler::pick(std::uint32_t oldest) const {
  OperationSet held = rotated(truths_, oldest);
  if (live_truths_ < static_cast<int>(kFreePredicates)) held &= held - 1;
  if (const OperationSet found = rotated(available_, oldest) & ~held; found != 0) {
    return oldest + static_cast<std::uint32_t>(std::countr_zero(found));
  }
  for (std::uint64_t cycles = rotated(cycles_, now_); cycles != 0; cycles &= cycles - 1) {
    const std::uint32_t cycle = now_ + static_cast<std::uint32_t>(std::countr_zero(cycles));
    const OperationSet found = rotated(coming_[cycle % kSlots], oldest) & ~held;
    if (found != 0) return oldest + static_cast<std::uint32_t>(std::countr_zero(found));
  }
  return oldest;
}

void Scheduler::advanceTo(std::uint32_t cycle) {
  while (now_ < cycle) {
    ++now_;
    OperationSet& come = coming_[now_ % kSlots];
    available_ |= come;
    come = 0;
    cycles_ &= ~bitOf(now_);
  }
}

void Scheduler::countLive(const Operation& operation) {
  const FormFacts& facts = factsOf(operation.form);
  for (std::size_t i = 0; i < operation.sources.size(); ++i) {
    const bool is_last = --uses_[operation.sources[i]] == 0;
    live_ -= is_last ? facts.sources[i] : 0;
  }
  for (const PredicateId read : {operation.guard, operation.condition}) {
    live_truths_ -= --predicate_uses_[read / 2] == 0 ? 1 : 0;
  }
  live_ += operation.destination >= kFirstValue ? facts.results : 0;
  live_truths_ += isTruth(operation) ? 1 : 0;
}

void Scheduler::issue(std::uint32_t at) {
  const Operation& operation = code_->operation(at);
  advanceTo(entries_[at - begin_].ready);
  finished_ |= bitOf(at);
  available_ &= ~bitOf(at);
  truths_ &= ~bitOf(at);
  countLive(operation);
  const std::uint32_t done = now_ + std::min<std::uint32_t>(factsOf(operation.form).latency, kLongest);
  for (std::uint32_t link = code_->order(at).users; link != Code::kNone; link = code_->link(link)) {
    const std::uint32_t reader = link / Code::kPlaces;
    Entry& waiting = entries_[reader - begin_];
    waiting.ready = std::max(waiting.ready, done);
    if (--waiting.waits_for == 0 && reader < entered_) setReady(reader, waiting.ready);
  }
  advanceTo(now_ + 1);
}

}  // namespace srjit::direct

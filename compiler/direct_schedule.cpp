#include "compiler/direct_schedule.h"

#include <algorithm>
#include <array>
#include <bit>

namespace srjit::direct {
namespace {

using sass::Form;

constexpr std::uint32_t kSlots = 64;  // of the bit sets of the window; more than a window
// Other warps issue while one waits, so a load's latency, told in its own instructions, is less than in cycles.
constexpr std::uint32_t kLongest = 40;

constexpr std::uint64_t bitOf(std::uint32_t at) { return std::uint64_t{1} << at % kSlots; }

}  // namespace

void Scheduler::run(const Code& code, const Sections& sections, unsigned window, unsigned registers,
                    std::vector<std::uint32_t>& order) {
  code_ = &code;
  begin_ = sections.middle;
  end_ = sections.tail;
  uses_ = code.values();
  predicate_uses_ = code.predicates();
  live_ = live_truths_ = 0;
  order.clear();
  for (std::uint32_t at = 0; at < begin_; ++at) {
    countLive(code.operation(at));
    order.push_back(at);
  }
  reorder(window, static_cast<int>(registers), order);
  for (std::uint32_t at = end_; at < code.size(); ++at) order.push_back(at);
}

void Scheduler::reorder(unsigned window, int registers, std::vector<std::uint32_t>& order) {
  entries_.resize(end_ - begin_);
  for (std::uint32_t at = begin_; at < end_; ++at) entries_[at - begin_] = {code_->order(at).waits_for, 0};
  ready_ = finished_ = 0;
  now_ = 0;
  next_truth_ = machinePredicate(kFirstPredicate);
  entered_ = begin_;
  const std::uint64_t all = (std::uint64_t{1} << window) - 1;
  for (std::uint32_t oldest = begin_; oldest < end_;) {
    for (const std::uint32_t end = std::min(end_, oldest + window); entered_ < end; ++entered_) {
      if (code_->operation(entered_).form == Form::kNop) {
        finished_ |= bitOf(entered_);
      } else if (entries_[entered_ - begin_].waits_for == 0) {
        ready_ |= bitOf(entered_);
      }
    }
    if ((finished_ & bitOf(oldest)) != 0) {
      finished_ &= ~bitOf(oldest++);
      continue;
    }
    const std::uint64_t candidates = std::rotr(ready_, static_cast<int>(oldest % kSlots));
    const std::uint32_t at = pick(candidates & (live_ >= registers ? 1 : all), oldest);
    issue(at);
    order.push_back(at);
  }
}

// The oldest operation can always be issued, since its operands come before it.
std::uint32_t Scheduler::pick(std::uint64_t candidates, std::uint32_t oldest) const {
  std::uint32_t best = oldest, earliest = ~0u;
  for (; candidates != 0; candidates &= candidates - 1) {
    const std::uint32_t at = oldest + static_cast<std::uint32_t>(std::countr_zero(candidates));
    const std::uint32_t ready = entries_[at - begin_].ready;
    if (ready >= earliest || !mayIssue(code_->operation(at))) continue;
    if (ready <= now_) return at;
    earliest = ready;
    best = at;
  }
  return best;
}

void Scheduler::countLive(const Operation& operation) {
  const FormFacts& facts = factsOf(operation.form);
  for (std::size_t i = 0; i < operation.sources.size(); ++i) {
    if (operation.sources[i] < kFirstValue) continue;
    if (--uses_[operation.sources[i] - kFirstValue].count == 0) live_ -= facts.sources[i];
  }
  for (const PredicateId read : {operation.guard, operation.condition}) {
    if (read < 2 * kFirstPredicate) continue;
    if (--predicate_uses_[read / 2 - kFirstPredicate].count == 0) --live_truths_;
  }
  if (operation.destination >= kFirstValue) live_ += facts.results;
  if (operation.predicate >= 2 * kFirstPredicate) {
    ++live_truths_;
    next_truth_ = operation.predicate + 2;
  }
}

void Scheduler::issue(std::uint32_t at) {
  const Operation& operation = code_->operation(at);
  now_ = std::max(now_, entries_[at - begin_].ready);
  finished_ |= bitOf(at);
  ready_ &= ~bitOf(at);
  countLive(operation);
  const std::uint32_t done = now_ + std::min<std::uint32_t>(factsOf(operation.form).latency, kLongest);
  for (std::uint32_t link = code_->order(at).users; link != Code::kNone; link = code_->link(link)) {
    const std::uint32_t reader = link / Code::kPlaces;
    Entry& waiting = entries_[reader - begin_];
    waiting.ready = std::max(waiting.ready, done);
    if (--waiting.waits_for == 0 && reader < entered_) ready_ |= bitOf(reader);
  }
  ++now_;
}

}  // namespace srjit::direct

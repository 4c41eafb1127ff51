#include "compiler/direct_schedule.h"

#include <algorithm>
#include <array>
#include <bit>

namespace srjit::direct {
namespace {

using sass::Form;

constexpr std::uint32_t kSlots = 64;  // of the bit set of operations that are ready; more than a window
// Other warps issue while one waits, so a load's latency, told in its own instructions, is less than in cycles.
constexpr std::uint32_t kLongest = 40;

}  // namespace

void Scheduler::run(const Code& code, const Sections& sections, unsigned window, unsigned registers,
                    std::vector<std::uint32_t>& order) {
  code_ = &code;
  begin_ = sections.middle;
  end_ = sections.tail;
  uses_ = code.uses();
  predicate_uses_ = code.predicateUses();
  live_ = live_truths_ = 0;
  order.clear();
  for (std::uint32_t at = 0; at < begin_; ++at) {
    countLive(code.operations()[at]);
    order.push_back(at);
  }
  reorder(window, static_cast<int>(registers), order);
  for (std::uint32_t at = end_; at < code.size(); ++at) order.push_back(at);
}

void Scheduler::depend(std::uint32_t reader, std::uint32_t writer) {
  if (writer < begin_) return;
  Entry& entry = entryOf(writer);
  users_.push_back({reader, entry.users});
  entry.users = static_cast<std::uint32_t>(users_.size() - 1);
  ++entryOf(reader).missing;
}

void Scheduler::link() {
  entries_.assign(end_ - begin_, {});
  users_.clear();
  std::array<std::uint32_t, kFirstValue> touched{};  // one more than the operation that used a machine register last
  next_truth_ = static_cast<std::uint32_t>(code_->predicateCount());
  for (std::uint32_t at = begin_; at < end_; ++at) {
    const Operation& operation = code_->operations()[at];
    for (const ValueId source : operation.sources) {
      if (source >= kFirstValue) depend(at, code_->definitions()[source - kFirstValue]);
    }
    for (const PredicateId read : {operation.guard, operation.condition}) {
      if (read / 2 >= kFirstPredicate) depend(at, code_->predicateDefinitions()[read / 2 - kFirstPredicate]);
    }
    // A machine register that is written here is read by the same operation, and by no other.
    if (operation.destination < kFirstValue && operation.destination != kRz) {
      std::uint32_t& last = touched[operation.destination];
      if (last != 0) depend(at, last - 1);
      last = at + 1;
    }
    if (operation.predicate / 2 >= kFirstPredicate) {
      next_truth_ = std::min(next_truth_, std::uint32_t{operation.predicate} / 2);
    }
  }
}

void Scheduler::reorder(unsigned window, int registers, std::vector<std::uint32_t>& order) {
  link();
  ready_ = 0;
  now_ = 0;
  std::uint32_t oldest = begin_;
  entered_ = begin_;
  while (true) {
    while (oldest < end_ && entryOf(oldest).is_issued) ++oldest;
    if (oldest == end_) return;
    for (; entered_ < std::min(end_, oldest + window); ++entered_) {
      if (code_->operations()[entered_].form == Form::kNop) {
        entryOf(entered_).is_issued = true;
      } else if (entryOf(entered_).missing == 0) {
        ready_ |= std::uint64_t{1} << entered_ % kSlots;
      }
    }
    if (entryOf(oldest).is_issued) continue;
    const std::uint32_t at = pick(oldest, live_ >= registers ? 1 : window);
    issue(at);
    order.push_back(at);
  }
}

bool Scheduler::mayIssue(const Operation& operation) const {
  if (operation.predicate / 2 < kFirstPredicate) return true;
  return operation.predicate / 2 == next_truth_ && live_truths_ < static_cast<int>(kFreePredicates);
}

// The oldest operation can always be issued, since its operands come before it.
std::uint32_t Scheduler::pick(std::uint32_t oldest, unsigned window) const {
  std::uint64_t candidates = std::rotr(ready_, static_cast<int>(oldest % kSlots));
  candidates &= (std::uint64_t{1} << window) - 1;
  std::uint32_t best = oldest, earliest = ~0u;
  for (; candidates != 0; candidates &= candidates - 1) {
    const std::uint32_t at = oldest + static_cast<std::uint32_t>(std::countr_zero(candidates));
    if (!mayIssue(code_->operations()[at])) continue;
    const std::uint32_t ready = entries_[at - begin_].ready;
    if (ready <= now_) return at;
    if (ready < earliest) {
      earliest = ready;
      best = at;
    }
  }
  return best;
}

void Scheduler::countLive(const Operation& operation) {
  const FormFacts& facts = factsOf(operation.form);
  for (std::size_t i = 0; i < operation.sources.size(); ++i) {
    const ValueId source = operation.sources[i];
    if (source < kFirstValue) continue;
    for (unsigned part = 0; part < facts.sources[i]; ++part) live_ -= --uses_[source - kFirstValue + part] == 0 ? 1 : 0;
  }
  for (const PredicateId read : {operation.guard, operation.condition}) {
    if (read / 2 >= kFirstPredicate) live_truths_ -= --predicate_uses_[read / 2 - kFirstPredicate] == 0 ? 1 : 0;
  }
  if (operation.destination >= kFirstValue) {
    for (unsigned part = 0; part < facts.results; ++part) {
      live_ += uses_[operation.destination - kFirstValue + part] != 0 ? 1 : 0;
    }
  }
  if (operation.predicate / 2 >= kFirstPredicate) {
    live_truths_ += predicate_uses_[operation.predicate / 2 - kFirstPredicate] != 0 ? 1 : 0;
  }
}

void Scheduler::issue(std::uint32_t at) {
  const Operation& operation = code_->operations()[at];
  Entry& entry = entryOf(at);
  now_ = std::max(now_, entry.ready);
  entry.is_issued = true;
  ready_ &= ~(std::uint64_t{1} << at % kSlots);
  countLive(operation);
  if (operation.predicate / 2 >= kFirstPredicate) ++next_truth_;
  const std::uint32_t done = now_ + std::min<std::uint32_t>(factsOf(operation.form).latency, kLongest);
  for (std::uint32_t user = entry.users; user != kNone; user = users_[user].next) {
    const std::uint32_t reader = users_[user].operation;
    Entry& waiting = entryOf(reader);
    waiting.ready = std::max(waiting.ready, done);
    if (--waiting.missing == 0 && reader < entered_) ready_ |= std::uint64_t{1} << reader % kSlots;
  }
  ++now_;
}

}  // namespace srjit::direct

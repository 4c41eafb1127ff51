// The order in which operations are issued. Internal to the direct tier.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "compiler/direct/code.h"

namespace srjit::direct {

/// List scheduling in a window over the source order: among the oldest `window` operations not yet issued, the next one
/// is that whose operands are ready first, and the oldest of equal ones. Sets of operations are bit sets. A window of 1
/// is source order, for which nothing is computed. Keeps its work arrays.
class Scheduler {
 public:
  /// `code` must live until its last operation is issued; `window` is 1 to 32. Only the middle section is reordered.
  void begin(const Code& code, const Sections& sections, std::uint32_t window);
  /// The operation that is issued next; kEnd after the last. Skips Nops. If too many values are live, it is the oldest:
  /// source order has low register pressure. If too many predicates are live, it is no operation that writes one,
  /// unless that is the oldest.
  std::uint32_t next(bool too_many_values, bool too_many_truths) {
    while (outside_ < sections_.middle) {
      if (code_->operation(outside_++).opcode != Opcode::kNop) return outside_ - 1;
    }
    return choose(too_many_values, too_many_truths);
  }
  static constexpr std::uint32_t kEnd = ~0U;

 private:
  /// Bit i: operation i modulo kSlots.
  using OperationSet = std::uint64_t;
  static constexpr std::uint32_t kSlots = 64;

  /// The cycle at which a value is ready; before its defining operation is issued, kComing plus the slot of that
  /// operation.
  using Cycle = std::int32_t;
  static constexpr Cycle kComing = std::numeric_limits<Cycle>::min();
  static Cycle comingFrom(std::uint32_t at) { return kComing + static_cast<Cycle>(at % kSlots); }

  /// An operation that was entered and is not issued.
  struct Entry {
    OperationSet makers;  ///< operations not yet issued that define its operands
    OperationSet users;   ///< operations that have it among their makers
    Cycle ready;          ///< when its operands are ready, as far as their makers were issued
  };

  std::uint32_t choose(bool too_many_values, bool too_many_truths);
  bool lookAhead();
  inline void enter(std::uint32_t at);
  inline std::uint32_t pick(bool too_many_truths) const;
  inline void issue(std::uint32_t at);

  const Code* code_ = nullptr;
  Sections sections_{};
  std::uint32_t outside_ = 0;               ///< the next operation that keeps its place
  std::uint32_t oldest_ = 0, entered_ = 0;  ///< bounds of the entered operations, at most kSlots, all of the middle
  std::uint32_t window_ = 1;
  std::vector<Cycle> made_, truths_made_;  ///< by ValueId and by number of a predicate
  std::array<Entry, kSlots> entries_{};
  OperationSet left_ = 0;    ///< entered and not issued
  OperationSet known_ = 0;   ///< of these, those whose makers are all issued
  OperationSet truths_ = 0;  ///< of these, those that write a predicate; these are issued in source order
  Cycle now_ = 0;
};

}  // namespace srjit::direct

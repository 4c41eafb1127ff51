// The order in which operations are issued. Internal to the direct tier.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "compiler/direct/code.h"

namespace srjit::direct {

/// List scheduling in a window over the source order: of the oldest `window` operations that are left, the one whose
/// operands are there first is next, of several the oldest. Sets of operations are sets of bits. A window of 1 is the
/// source order, for which nothing is computed. Keeps its work arrays.
class Scheduler {
 public:
  /// `code` must live until its last operation is issued; `window` is 1 to 32. Only the middle section is put into
  /// another order.
  void begin(const Code& code, const Sections& sections, std::uint32_t window);
  /// The operation that is issued next; kEnd after the last. Nops are left out. If too many values are alive, that is
  /// the oldest, so that the order falls back to that of the source, which is known to need few. If too many predicates
  /// are, none that writes one is next, unless it is the oldest.
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

  /// When a value is there; before the operation that makes it is issued, kComing plus that one's slot.
  using Cycle = std::int32_t;
  static constexpr Cycle kComing = std::numeric_limits<Cycle>::min();
  static Cycle comingFrom(std::uint32_t at) { return kComing + static_cast<Cycle>(at % kSlots); }

  /// Of an operation that was looked at and is not issued.
  struct Entry {
    OperationSet makers;  ///< of its operands, as far as they are not issued
    OperationSet users;   ///< those that it is a maker for
    Cycle ready;          ///< when its operands are there, as far as the makers were issued
  };

  std::uint32_t choose(bool too_many_values, bool too_many_truths);
  bool lookAhead();
  inline void enter(std::uint32_t at);
  inline std::uint32_t pick(bool too_many_truths) const;
  inline void issue(std::uint32_t at);

  const Code* code_ = nullptr;
  Sections sections_{};
  std::uint32_t outside_ = 0;               ///< the next operation that keeps its place
  std::uint32_t oldest_ = 0, entered_ = 0;  ///< of the middle, what is looked at: up to kSlots, of which the first are
  std::uint32_t window_ = 1;                ///< the window
  std::vector<Cycle> made_, truths_made_;   ///< by ValueId and by number of a predicate
  std::array<Entry, kSlots> entries_{};
  OperationSet left_ = 0;    ///< those not issued
  OperationSet known_ = 0;   ///< of these, those whose makers all were
  OperationSet truths_ = 0;  ///< of these, those that write a predicate; they keep their order
  Cycle now_ = 0;
};

}  // namespace srjit::direct

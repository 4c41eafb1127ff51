// The order in which operations are issued. Internal to the direct tier.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "compiler/direct_code.h"

namespace srjit::direct {

/// List scheduling in a window over the source order: of the oldest `window` operations that are left, the first whose
/// operands are there is next, or, if there is none, the one whose operands come first. The window is a set of bits, and
/// so are the operations that get their operands in each of the next cycles. Keeps its work arrays.
class Scheduler {
 public:
  /// What keeps the scheduler from the best choice.
  struct Limits {
    bool values;  ///< so many are alive that the oldest operation is next: the order of the source needs few registers
    bool truths;  ///< no operation that writes a predicate is next, unless it is the oldest
  };

  /// `code` must live until its last operation is issued; `window` is 1 to 32. Only the middle section is put into
  /// another order.
  void begin(const Code& code, const Sections& sections, std::uint32_t window);
  /// The operation that is issued next; nothing after the last. Nops of the middle section are left out.
  std::optional<std::uint32_t> next(const Limits& limits);

 private:
  /// Bit i: operation i modulo kSlots.
  using OperationSet = std::uint64_t;
  static constexpr std::uint32_t kSlots = 64;  ///< more than a window, and than cycles that an operation is waited for

  /// When a value is there; while the operation that makes it is in the window, kComing plus that one's slot.
  using Cycle = std::int32_t;
  static constexpr Cycle kComing = std::numeric_limits<Cycle>::min();
  static Cycle comingFrom(std::uint32_t at) { return kComing + static_cast<Cycle>(at % kSlots); }

  /// Of an operation in the window.
  struct Entry {
    OperationSet makers;  ///< of its operands, as far as they are not issued
    OperationSet users;   ///< those that it is a maker for
    Cycle ready;          ///< when its operands are there
  };

  inline bool fillWindow();
  inline void enter(std::uint32_t at);
  inline void setReady(std::uint32_t at, Cycle cycle);
  inline std::uint32_t pick(const Limits& limits) const;
  inline void issue(std::uint32_t at);
  void advanceTo(Cycle cycle);

  const Code* code_ = nullptr;
  Sections sections_{};
  std::uint32_t outside_ = 0;               ///< the next operation before or after the middle
  std::uint32_t oldest_ = 0, entered_ = 0;  ///< where the window begins and ends
  std::uint32_t window_ = 1;
  std::vector<Cycle> made_, truths_made_;  ///< by ValueId and by number of a predicate
  std::array<Entry, kSlots> entries_;
  OperationSet left_ = 0;                      ///< of the window, those not issued
  OperationSet available_ = 0;                 ///< of these, those whose operands are there
  OperationSet truths_ = 0;                    ///< of these, those that write a predicate; they keep their order
  std::array<OperationSet, kSlots> coming_{};  ///< by cycle modulo kSlots: those whose operands are there from then on
  std::uint64_t cycles_ = 0;                   ///< bit c: coming_[c] is not empty
  Cycle now_ = 0;
};

}  // namespace srjit::direct

// The order in which operations are issued. Internal to the direct tier.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "compiler/direct_code.h"
#include "compiler/direct_select.h"

namespace srjit::direct {

/// List scheduling in a window over the source order: of the oldest `window` operations that are left, the first whose
/// operands are there is next, or, if there is none, the one whose operands come first. Once as many values are alive
/// as there are registers for them, only the oldest is considered, so that the order falls back to that of the source,
/// which is known to need few. The window is a set of bits, and so are the operations that get their operands in each
/// of the next cycles. Keeps its work arrays.
class Scheduler {
 public:
  /// `window` is 1 to 32; `registers` are those for values. The order leaves out Nops.
  void run(const Code& code, const Sections& sections, unsigned window, unsigned registers,
           std::vector<std::uint32_t>& order);

 private:
  /// Bit i: operation i modulo kSlots.
  using OperationSet = std::uint64_t;
  static constexpr std::uint32_t kSlots = 64;  ///< more than a window, and than cycles that an operation is waited for

  /// Of an operation of the middle section.
  struct Entry {
    std::uint32_t waits_for = 0;
    std::uint32_t ready = 0;  ///< when its operands are there
  };

  void begin(const Code& code, const Sections& sections);
  void reorder(unsigned window, int registers, std::vector<std::uint32_t>& order);
  inline void enter(std::uint32_t at);
  inline void setReady(std::uint32_t at, std::uint32_t cycle);
  inline std::uint32_t pick(std::uint32_t oldest) const;
  inline void advanceTo(std::uint32_t cycle);
  inline void issue(std::uint32_t at);
  inline void countLive(const Operation& operation);

  const Code* code_ = nullptr;
  std::uint32_t begin_ = 0, end_ = 0;
  std::uint32_t entered_ = 0;  ///< end of the window
  std::vector<Entry> entries_;
  /// Uses still to come, by ValueId and by number of a predicate. Machine registers and predicates are counted, too,
  /// from 0 downwards, so that nobody has to ask what an operand is.
  std::vector<std::uint32_t> uses_, predicate_uses_;
  OperationSet available_ = 0;                 ///< of the window, those whose operands are there
  std::array<OperationSet, kSlots> coming_{};  ///< by cycle modulo kSlots: those whose operands are there from then on
  std::uint64_t cycles_ = 0;                   ///< bit c: coming_[c] is not empty
  OperationSet truths_ = 0;    ///< of the window, those left that write a predicate; they keep the order of the source
  OperationSet finished_ = 0;  ///< of the window, those that were issued
  std::uint32_t now_ = 0;
  int live_ = 0, live_truths_ = 0;
};

}  // namespace srjit::direct

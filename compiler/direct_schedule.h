// The order in which operations are issued. Internal to the direct tier.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/direct_code.h"
#include "compiler/direct_select.h"

namespace srjit::direct {

/// List scheduling in a window over the source order: of the oldest `window` operations that are left, the first whose
/// operands are there is next, or, if there is none, the one whose operands come first. Once as many values are alive
/// as there are registers for them, only the oldest is considered, so that the order falls back to that of the source,
/// which is known to need few. Keeps its work arrays.
class Scheduler {
 public:
  /// `window` is 1 to 32; `registers` are those for values. The order leaves out Nops.
  void run(const Code& code, const Sections& sections, unsigned window, unsigned registers,
           std::vector<std::uint32_t>& order);

 private:
  /// Of an operation of the middle section.
  struct Entry {
    std::uint32_t waits_for = 0;
    std::uint32_t ready = 0;  ///< when its operands are there
  };

  void reorder(unsigned window, int registers, std::vector<std::uint32_t>& order);
  inline std::uint32_t pick(std::uint64_t candidates, std::uint32_t oldest) const;
  inline void issue(std::uint32_t at);
  inline void countLive(const Operation& operation);
  bool mayIssue(const Operation& operation) const {
    return operation.predicate < 2 * kFirstPredicate ||
           (operation.predicate == next_truth_ && live_truths_ < static_cast<int>(kFreePredicates));
  }

  const Code* code_ = nullptr;
  std::uint32_t begin_ = 0, end_ = 0;
  std::uint32_t entered_ = 0;  ///< end of the window
  std::vector<Entry> entries_;
  std::vector<Code::Uses> uses_, predicate_uses_;  ///< still to come
  std::uint64_t ready_ = 0;     ///< bit i: operation i modulo 64 is in the window, and its operands were issued
  std::uint64_t finished_ = 0;  ///< bit i: operation i modulo 64 of the window was issued
  std::uint32_t now_ = 0;
  PredicateId next_truth_ = 0;  ///< predicates are written in the order of the source
  int live_ = 0, live_truths_ = 0;
};

}  // namespace srjit::direct

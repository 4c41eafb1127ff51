// Registers, stalls and barriers: operations in their final order become machine instructions. Internal to the direct
// tier.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/direct_code.h"

namespace srjit::direct {

/// A set of machine registers: bit r is register r.
using RegisterSet = std::uint64_t;
inline constexpr unsigned kMostRegisters = 64;
constexpr RegisterSet registerSet(unsigned first, unsigned count = 1) {
  return ((RegisterSet{1} << count) - 1) << first;
}

/// sass' delays between two forms, without a call.
struct Delays {
  std::uint8_t value, condition, guard, overwrite, guarded_overwrite;
};
/// By first and second form, the first times kFormSlots.
using DelayTable = std::vector<Delays>;
inline constexpr std::size_t kFormSlots = 64;

/// Walks once over the operations. A value gets the first free register when it is written, and gives it back with its
/// last use; one whose old content an instruction of variable latency may still read or write is taken only if there is
/// no other. The walk counts cycles as if no barrier was ever waited for, so that real distances are never shorter; it
/// stalls until results of fixed latency are there, waits for the barriers of others, and takes for a new barrier one
/// that is idle, or the one that was set first. Keeps its work arrays.
class Allocator {
 public:
  /// For one of sass::architectures().
  explicit Allocator(unsigned architecture);

  /// Replaces `out` by the instructions of `order`. Registers below `limit` may be used; `reserved` keep their meaning.
  /// False if they do not suffice.
  bool run(const Code& code, std::span<const std::uint32_t> order, RegisterSet reserved, unsigned limit,
           std::vector<sass::Instruction>& out);
  /// One more than the highest register of the last run.
  unsigned registers() const { return registers_used_; }

 private:
  static constexpr unsigned kBarriers = 6;
  static constexpr unsigned kPlaces = 8;  ///< predicates
  using Cycle = std::int32_t;

  /// Of a register or a predicate: when it was last written with fixed latency, and by which form.
  struct Written {
    Cycle at = -1000;
    std::uint32_t form = 0;
  };
  /// Registers that instructions write and read which it was not waited for.
  struct Barrier {
    RegisterSet written = 0, read = 0;
    Cycle set = 0;
    bool is_busy = false;
  };

  void begin(const Code& code, RegisterSet reserved, unsigned limit);
  inline bool place(const Operation& operation, sass::Instruction& instruction);
  inline void readSources(const Operation& operation, sass::Instruction& instruction);
  unsigned readPredicate(const Operation& operation, PredicateId predicate, bool as_guard);
  inline bool prepareDestination(const Operation& operation, sass::Instruction& instruction);
  inline bool preparePredicate(const Operation& operation, sass::Instruction& instruction);
  inline void markIssue(const Operation& operation, sass::Instruction& instruction);
  inline unsigned findFree(unsigned width) const;
  inline unsigned take(ValueId value, unsigned width);
  void waitFor(unsigned barrier, sass::Instruction& instruction);
  void waitForPending(RegisterSet registers, bool for_writers_alone, sass::Instruction& instruction);
  inline unsigned takeBarrier() const;
  inline void emit(const sass::Instruction& instruction, std::vector<sass::Instruction>& out);
  void setBranchOffsets(const Code& code, std::vector<sass::Instruction>& out) const;

  const Delays& delaysOf(std::uint32_t first, sass::Form second) const {
    return delays_[first * kFormSlots + static_cast<std::size_t>(second)];
  }

  const Delays* delays_;
  /// Registers, by ValueId; machine registers are themselves. What operands are is hard to predict, so they are treated
  /// as values are.
  std::vector<std::uint8_t> places_;
  std::vector<std::uint32_t> uses_;             ///< still to come, by ValueId; of machine registers from 0 downwards
  std::vector<std::uint8_t> predicate_places_;  ///< of each predicate
  std::vector<Code::Uses> predicate_uses_;      ///< still to come
  RegisterSet free_ = 0;
  RegisterSet to_write_ = 0, to_read_ = 0;  ///< in a set of any barrier
  RegisterSet sources_ = 0;                 ///< of the instruction at hand
  RegisterSet just_read_ = 0;               ///< by the instruction before, if it has fixed latency
  unsigned free_predicates_ = 0;
  unsigned registers_used_ = 0;
  std::array<Written, kMostRegisters> registers_{};
  std::array<Written, kPlaces> predicates_{};
  std::array<Barrier, kBarriers> barriers_{};
  Cycle now_ = 0;                                                  ///< when the instruction at hand can be issued
  Cycle issued_ = 0;                                               ///< when the one before was
  Cycle spacing_ = 1;                                              ///< from there to the next at least
  Cycle finished_ = 0;                                             ///< when all results of fixed latency are there
  std::vector<std::pair<std::uint32_t, std::uint32_t>> branches_;  ///< operations and their places among instructions
  std::vector<std::uint32_t> positions_;                           ///< of operations among instructions
};

}  // namespace srjit::direct

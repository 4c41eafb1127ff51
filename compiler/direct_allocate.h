// Registers, stalls and barriers: operations in their final order become machine instructions. Internal to the direct
// tier.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/direct_code.h"

namespace srjit::direct {

/// A set of machine registers.
class RegisterSet {
 public:
  static constexpr unsigned kWords = 4;

  void add(unsigned r) { words_[r / 64] |= bit(r); }
  void remove(unsigned r) { words_[r / 64] &= ~bit(r); }
  bool has(unsigned r) const { return (words_[r / 64] & bit(r)) != 0; }
  std::uint64_t word(unsigned i) const { return words_[i]; }
  void addAll(const RegisterSet& other) {
    for (unsigned i = 0; i < kWords; ++i) words_[i] |= other.words_[i];
  }

 private:
  static constexpr std::uint64_t bit(unsigned r) { return std::uint64_t{1} << r % 64; }
  std::array<std::uint64_t, kWords> words_{};
};

/// Walks once over the operations. A value gets the first free register when it is written, and gives it back with its
/// last use; one whose old content an instruction of variable latency may still read or write is taken only if there is
/// no other. The walk counts cycles as if no barrier was ever waited for, so that real distances are never shorter; it
/// stalls until results of fixed latency are there, waits for the barriers of others, and takes for a new barrier one
/// that is idle, or the one that was set first. Keeps its work arrays.
class Allocator {
 public:
  /// Replaces `out` by the instructions of `order`. Registers below `limit` may be used; `reserved` keep their meaning.
  /// False if they do not suffice.
  bool run(const Code& code, std::span<const std::uint32_t> order, const RegisterSet& reserved, unsigned limit,
           std::vector<sass::Instruction>& out);
  /// One more than the highest register of the last run.
  unsigned registers() const { return registers_used_; }

 private:
  static constexpr unsigned kBarriers = 6;
  static constexpr std::uint8_t kNoWriter = 0xff;
  using Cycle = std::int32_t;

  /// Of a register or a predicate: the cycles of the last instructions of fixed latency that wrote and read it.
  struct Place {
    Cycle written = 0;
    Cycle read = 0;
    std::uint8_t writer = kNoWriter;  ///< its form
  };
  /// What was set since a barrier was waited for.
  struct Barrier {
    RegisterSet written, read;
    Cycle set = 0;
    bool is_busy = false;
  };

  void begin(const Code& code, const RegisterSet& reserved, unsigned limit);
  bool place(const Operation& operation);
  void readSources(const Operation& operation);
  unsigned readPredicate(const Operation& operation, PredicateId predicate, bool as_guard);
  bool prepareDestination(const Operation& operation);
  bool preparePredicate(const Operation& operation);
  void markIssue(const Operation& operation);
  unsigned registerOf(ValueId value) const { return value < kFirstValue ? value : places_[value - kFirstValue]; }
  unsigned findFree(unsigned width, const RegisterSet& avoided) const;
  void waitFor(unsigned barrier);
  void waitForPending(unsigned r, bool for_writers_alone);
  unsigned takeBarrier();
  void emit(std::vector<sass::Instruction>& out);
  void setBranchOffsets(const Code& code, std::span<const std::uint32_t> order,
                        std::vector<sass::Instruction>& out) const;

  std::vector<std::uint8_t> places_, predicate_places_;  ///< of each value
  std::vector<std::uint32_t> uses_, predicate_uses_;     ///< still to come
  RegisterSet free_, pending_;                           ///< pending: in a set of any barrier
  unsigned free_predicates_ = 0;
  unsigned registers_used_ = 0;
  std::array<Place, 256> registers_{};
  std::array<Place, 8> predicates_{};
  std::array<Barrier, kBarriers> barriers_{};
  sass::Instruction instruction_;         ///< the one at hand
  Cycle now_ = 0;                         ///< when it can be issued
  Cycle issued_ = 0;                      ///< when the one before was
  Cycle spacing_ = 1;                     ///< from there to the next at least
  Cycle finished_ = 0;                    ///< when all results of fixed latency are there
  std::vector<std::uint32_t> positions_;  ///< of operations among the instructions
};

}  // namespace srjit::direct

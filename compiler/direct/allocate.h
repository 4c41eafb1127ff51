// Assigns registers, stalls and barriers: turns operations, in the scheduler's order, into machine code. Internal to
// the direct tier.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/direct/code.h"
#include "compiler/direct/schedule.h"
#include "compiler/sass/encode.h"

namespace srjit::direct {

/// A set of machine registers: bit r is register r.
using RegisterSet = std::uint64_t;
inline constexpr unsigned kMostRegisters = 64;
constexpr RegisterSet registerSet(unsigned first, unsigned count = 1) {
  return ((RegisterSet{1} << count) - 1) << first % 64;
}

/// Registers that code may use: those below `limit`. The `reserved` ones keep a fixed meaning; those `of subroutines`
/// hold only values of subroutines. While at least `values` are live, operations are issued in
/// source order.
struct RegisterFile {
  RegisterSet reserved;
  unsigned limit;
  int values;
  RegisterSet of_subroutines = 0;
};

/// The properties of an opcode that every operation needs, on one architecture. Those of a pair of instructions are of
/// the lower one.
struct alignas(64) OpcodeRow {  // so that the address of a row takes few instructions
  static constexpr std::size_t kKinds = 8;
  using Delays = std::array<std::uint8_t, kKinds>;

  OpcodeFacts facts;  ///< of that architecture
  /// Cycles from the issue of another instruction that writes the same register or predicate, by its kind: opcodes that
  /// are alike in this are one kind.
  Delays value, overwrite, guarded_overwrite;
  Delays condition, guard;                   ///< the same, where it reads the predicate
  std::uint8_t kind;                         ///< of this opcode
  std::uint8_t read_delay;                   ///< cycles from an instruction that reads what it overwrites
  std::uint8_t settling, truth_settling;     ///< maximum delay of any reader of the register, predicate
  std::uint8_t is_rare;                      ///< 1: a branch, or of pairs
  std::uint8_t half;                         ///< of a pair that one instruction reads
  std::uint8_t keeps_sources;                ///< 1: no result is in a register that a source has for the last time
  std::array<std::uint8_t, 3> source_masks;  ///< sets of the registers that a source reads, from its first
  sass::Encoding encoding;
  const sass::Encoding* upper;  ///< null: one instruction
};
using OpcodeTable = std::array<OpcodeRow, kOpcodeFacts.size()>;

/// Walks the operations once, in order. A value takes the first free register when it is written and frees it
/// at its last use; a register that an instruction of variable latency may still read or write is taken only if there
/// is no other. The cycle count assumes that no barrier wait takes time, so real distances are never shorter. Results
/// of fixed latency are awaited by stalls, others by barriers. A new barrier takes an idle one, or else the one that
/// was set first. Keeps its work arrays between runs.
class Allocator {
 public:
  /// For one of directArchitectures().
  explicit Allocator(unsigned architecture);

  /// Appends the code of the operations, in the order that the scheduler chooses. False if there are too few registers;
  /// then nothing is appended.
  /// `subroutines` is Sections::subroutines.
  bool run(const Code& code, Scheduler& scheduler, const RegisterFile& file, std::uint32_t subroutines,
           std::vector<sass::Word>& words);
  /// One more than the highest register of the last run.
  unsigned registers() const { return static_cast<unsigned>(std::bit_width(used_)); }
  /// Positions of EXIT instructions in the code of the last run, in instructions.
  std::span<const std::uint32_t> exits() const { return exits_; }
  /// From now on, the operation of each word of a run is put there, by position; null: no longer.
  void setOrigins(std::vector<std::uint32_t>* origins) { origins_ = origins; }

 private:
  static constexpr unsigned kBarriers = sass::kBarriers, kAllBarriers = (1U << kBarriers) - 1;
  static constexpr unsigned kPlaces = 8;  ///< predicates
  using BarrierSet = unsigned;
  using TruthSet = unsigned;  ///< of predicates
  using Cycle = std::int32_t;

  /// The last write of a register or predicate with fixed latency: its time and the kind of opcode that wrote it.
  struct Written {
    Cycle at = -1000;
    std::uint32_t kind = 0;
  };
  /// Registers and predicates that instructions in flight write and read, and that have not been waited for.
  struct Barrier {
    RegisterSet written = 0, read = 0;  ///< kAnyTruth is in `written` if `truths` are
    TruthSet truths = 0;                ///< written
    Cycle set = 0;
  };
  struct Issue;
  /// A branch whose offset is still to be set with the operation that it goes to, or an operation that may be a target.
  struct Place {
    std::uint32_t operation, position;
  };

  void begin(const Code& code, const RegisterFile& file);
  template <bool kTraced>
  bool placeAll(Scheduler& scheduler, const RegisterFile& file);
  [[gnu::always_inline]] inline bool place(std::uint32_t at, const Operation& operation);
  [[gnu::noinline]] bool placeInPlace(std::uint32_t at, const Operation& operation);
  [[gnu::noinline]] bool placeRare(std::uint32_t at, const Operation& operation, const OpcodeRow& row);
  [[gnu::always_inline]] inline bool placeInstruction(const Operation& operation, const OpcodeRow& row,
                                                      std::uint32_t immediate, bool is_synchronized,
                                                      bool keeps_sources);
  [[gnu::always_inline]] inline void readSources(const Operation& operation, Issue& issue);
  [[gnu::always_inline]] inline void readSource(const Operation& operation, std::size_t i, Issue& issue);
  [[gnu::always_inline]] inline unsigned readPredicate(PredicateId predicate, const OpcodeRow::Delays& delays,
                                                       Issue& issue);
  [[gnu::always_inline]] inline bool writeRegisters(const Operation& operation, Issue& issue);
  [[gnu::always_inline]] inline bool writePredicate(const Operation& operation, Issue& issue);
  [[gnu::always_inline]] inline void signal(const Operation& operation, Issue& issue);
  [[gnu::always_inline]] inline void finish(const Operation& operation, const Issue& issue);
  [[gnu::noinline]] BarrierSet barriersOfTruths(const Operation& operation) const;
  void emitUpper(const Operation& operation, const OpcodeRow& row, std::uint32_t immediate);
  [[gnu::always_inline]] inline unsigned findFree(unsigned width) const;
  [[gnu::always_inline]] inline unsigned take(ValueId value, unsigned width);
  [[gnu::always_inline]] inline BarrierSet barriersOf(RegisterSet written, RegisterSet read) const;
  [[gnu::always_inline]] inline void waitFor(BarrierSet barriers, Issue& issue);
  [[gnu::always_inline]] inline unsigned takeBarrier() const;
  [[gnu::always_inline]] inline void emit(const Issue& issue);
  void markControl(std::uint32_t at, const Operation& operation);
  void markCall(const Operation& operation);
  void setBranchOffsets() const;

  const OpcodeTable* table_;
  unsigned architecture_;
  /// By ValueId and by predicate number; machine registers and predicates map to themselves. They are treated as values
  /// are, since a branch on the kind of operand predicts badly.
  std::vector<Code::Operand> values_, truths_;
  RegisterSet free_ = 0;
  RegisterSet to_write_ = 0, to_read_ = 0;  ///< the union over all barriers
  RegisterSet just_read_ = 0;               ///< by the previous instruction, if it has fixed latency
  unsigned free_predicates_ = 0;
  RegisterSet used_ = 0;
  int live_ = 0, live_truths_ = 0;  ///< live registers and live predicates
  std::array<Written, kRz + 1> registers_{};
  std::array<Written, kPlaces> predicates_{};
  std::array<Barrier, kBarriers> barriers_{};
  BarrierSet busy_ = 0;
  Cycle issued_ = 0;    ///< issue cycle of the previous instruction
  Cycle spacing_ = 1;   ///< minimum distance from it to the next issue
  Cycle finished_ = 0;  ///< cycle at which all results of fixed latency are ready
  const Code* code_ = nullptr;
  std::uint32_t subroutines_ = 0;  ///< the first operation of subroutines
  RegisterSet of_subroutines_ = 0;
  std::vector<sass::Word>* words_ = nullptr;
  std::vector<std::uint32_t>* origins_ = nullptr;
  std::size_t first_ = 0;  ///< index in `words_` of the first instruction
  // Positions are instruction indices from `first_`.
  std::vector<Place> branches_;
  std::vector<Place> targets_;  ///< in ascending order
  std::vector<std::uint32_t> exits_;
  std::vector<std::uint32_t> calls_;  ///< the MOV of each; it returns to the second instruction after it
};

}  // namespace srjit::direct

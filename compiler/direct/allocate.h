// Registers, stalls and barriers: operations in the order that the scheduler chooses become machine code. Internal to
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

/// Registers that code may use: those below `limit`, of which the `reserved` ones keep their meaning. Once more than
/// `values` hold a value, operations stay in the order of the source.
struct RegisterFile {
  RegisterSet reserved;
  unsigned limit;
  int values;
};

/// What is asked of an opcode for every operation, on one architecture. Of a pair of instructions it is that of the
/// lower.
struct alignas(64) OpcodeRow {  // so that the address of a row takes few instructions
  static constexpr std::size_t kKinds = 8;
  using Delays = std::array<std::uint8_t, kKinds>;

  OpcodeFacts facts;  ///< of that architecture
  /// Cycles from the issue of another instruction that writes the same register or predicate, by its kind: opcodes that
  /// are alike in this are one kind.
  Delays value, overwrite, guarded_overwrite;
  Delays condition, guard;                ///< likewise, where it reads the predicate
  std::uint8_t kind;                      ///< of this opcode
  std::uint8_t read_delay;                ///< cycles from an instruction that reads what it overwrites
  std::uint8_t settling, truth_settling;  ///< no reader of the register, or predicate, that it writes needs more cycles
  std::uint8_t is_rare;                   ///< 1: a branch, or two instructions
  std::array<std::uint8_t, 3> source_masks;  ///< sets of the registers that a source reads, from its first
  sass::Encoding encoding;
  const sass::Encoding* upper;  ///< null: one instruction
};
using OpcodeTable = std::array<OpcodeRow, kOpcodeFacts.size()>;

/// Walks once over the operations. A value gets the first free register when it is written, and gives it back with its
/// last use; one whose old content an instruction of variable latency may still read or write is taken only if there is
/// no other. The walk counts cycles as if no barrier was ever waited for, so that real distances are never shorter; it
/// stalls until results of fixed latency are there, waits for the barriers of others, and takes for a new barrier one
/// that is idle, or the one that was set first. Keeps its work arrays.
class Allocator {
 public:
  /// For one of directArchitectures().
  explicit Allocator(unsigned architecture);

  /// Appends the code of the operations, in the order that the scheduler chooses. False if registers do not suffice;
  /// then nothing is appended.
  bool run(const Code& code, Scheduler& scheduler, const RegisterFile& file, std::vector<sass::Word>& words);
  /// One more than the highest register of the last run.
  unsigned registers() const { return static_cast<unsigned>(std::bit_width(used_)); }
  /// Where EXIT instructions stand in the code of the last run, in instructions.
  std::span<const std::uint32_t> exits() const { return exits_; }

 private:
  static constexpr unsigned kBarriers = 6, kAllBarriers = (1U << kBarriers) - 1;
  static constexpr unsigned kPlaces = 8;  ///< predicates
  using BarrierSet = unsigned;
  using TruthSet = unsigned;  ///< of predicates
  using Cycle = std::int32_t;

  /// Of a register or a predicate: when it was last written with fixed latency, and by which kind of opcode.
  struct Written {
    Cycle at = -1000;
    std::uint32_t kind = 0;
  };
  /// Registers and predicates that instructions write and read which it was not waited for.
  struct Barrier {
    RegisterSet written = 0, read = 0;  ///< kAnyTruth is in `written` if `truths` are
    TruthSet truths = 0;                ///< written
    Cycle set = 0;
  };
  /// An instruction at hand.
  struct Issue {
    const OpcodeRow& row;
    Cycle now;  ///< when it can be issued
    sass::Word word;
    RegisterSet sources = 0, freed = 0, results = 0;
    unsigned predicate = sass::kTrue;  ///< that it writes
  };
  /// A branch without its offset, and an operation that branches may go to.
  struct Branch {
    std::uint32_t position, target;
  };
  struct Target {
    std::uint32_t operation, position;
  };

  void begin(const Code& code, const RegisterFile& file);
  [[gnu::always_inline]] inline bool place(std::uint32_t at, const Operation& operation);
  [[gnu::noinline]] bool placeRare(std::uint32_t at, const Operation& operation, const OpcodeRow& row);
  [[gnu::always_inline]] inline bool placeInstruction(const Operation& operation, const OpcodeRow& row,
                                                      bool is_synchronized);
  [[gnu::always_inline]] inline void readSources(const Operation& operation, Issue& issue);
  [[gnu::always_inline]] inline void readSource(const Operation& operation, std::size_t i, Issue& issue);
  [[gnu::always_inline]] inline unsigned readPredicate(PredicateId predicate, const OpcodeRow::Delays& delays,
                                                       Issue& issue);
  [[gnu::always_inline]] inline bool writeRegisters(const Operation& operation, Issue& issue);
  [[gnu::always_inline]] inline bool writePredicate(const Operation& operation, Issue& issue);
  [[gnu::always_inline]] inline void signal(const Operation& operation, Issue& issue);
  [[gnu::always_inline]] inline void finish(const Operation& operation, const Issue& issue);
  [[gnu::noinline]] BarrierSet barriersOfTruths(const Operation& operation) const;
  void emitUpper(const Operation& operation, const OpcodeRow& row);
  [[gnu::always_inline]] inline unsigned findFree(unsigned width) const;
  [[gnu::always_inline]] inline unsigned take(ValueId value, unsigned width);
  [[gnu::always_inline]] inline BarrierSet barriersOf(RegisterSet written, RegisterSet read) const;
  [[gnu::always_inline]] inline void waitFor(BarrierSet barriers, Issue& issue);
  [[gnu::always_inline]] inline unsigned takeBarrier() const;
  [[gnu::always_inline]] inline void emit(const Issue& issue);
  void markControl(std::uint32_t at, const Operation& operation);
  void setBranchOffsets() const;

  const OpcodeTable* table_;
  unsigned architecture_;
  /// By ValueId and by number of a predicate; those of machine registers and predicates are themselves. What operands
  /// are is hard to predict, so they are treated as values are.
  std::vector<Code::Operand> values_, truths_;
  RegisterSet free_ = 0;
  RegisterSet to_write_ = 0, to_read_ = 0;  ///< in a set of any barrier
  RegisterSet just_read_ = 0;               ///< by the instruction before, if it has fixed latency
  unsigned free_predicates_ = 0;
  RegisterSet used_ = 0;
  int live_ = 0, live_truths_ = 0;  ///< values and predicates that are still to be read
  std::array<Written, kRz + 1> registers_{};
  std::array<Written, kPlaces> predicates_{};
  std::array<Barrier, kBarriers> barriers_{};
  BarrierSet busy_ = 0;
  Cycle issued_ = 0;    ///< when the instruction before was
  Cycle spacing_ = 1;   ///< from there to the next at least
  Cycle finished_ = 0;  ///< when all results of fixed latency are there
  std::vector<sass::Word>* words_ = nullptr;
  std::size_t first_ = 0;  ///< of `words_`: where the code begins
  // Positions are those of instructions from there.
  std::vector<Branch> branches_;
  std::vector<Target> targets_;
  std::vector<std::uint32_t> exits_;
};

}  // namespace srjit::direct

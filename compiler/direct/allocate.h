// Assigns registers, stalls and barriers: turns operations, in the scheduler's order, into machine code. Internal to
// the direct tier.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
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
/// That of one of directArchitectures().
const OpcodeTable& opcodeTableOf(unsigned architecture);

/// Walks the operations once, in order. A value takes the first free register when it is written and frees it
/// at its last use; a register that an instruction of variable latency may still read or write is taken only if there
/// is no other. The cycle count assumes that no barrier wait takes time, so real distances are never shorter. Results
/// of fixed latency are awaited by stalls, others by barriers. A new barrier takes an idle one, or else the one that
/// was set first. Keeps its work arrays between runs.
class Allocator {
 public:
  /// For one of directArchitectures().
  explicit Allocator(unsigned architecture);
  ~Allocator();

  /// Appends the code of the operations, in the order that the scheduler chooses. False if there are too few registers;
  /// then nothing is appended.
  /// `subroutines` is Sections::subroutines.
  bool run(const Code& code, Scheduler& scheduler, const RegisterFile& file, std::uint32_t subroutines,
           std::vector<sass::Word>& words);
  /// One more than the highest register of the last run.
  unsigned registers() const;
  /// Positions of EXIT instructions in the code of the last run, in instructions.
  std::span<const std::uint32_t> exits() const;
  /// From now on, the operation of each word of a run is put there, by position; null: no longer.
  void setOrigins(std::vector<std::uint32_t>* origins);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace srjit::direct

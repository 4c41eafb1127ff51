// A verifier of data hazards: the hardware has no interlocks, so code must wait itself. Thread-safe: no state.
//
// It is a forward data-flow analysis with a worklist, to a fixed point. Its state has for every register and predicate
// how long ago it was written by which kind of instruction, and which scoreboard barriers its outstanding reads and
// writes signal. The worst case is taken where paths meet. It proves the delays that registerDelay() and its like in
// instruction.h state, and that
//   - a result of a kVariable instruction is read or overwritten only after its write barrier was waited for;
//   - a source of a kVariable instruction is overwritten only after its read or its write barrier was waited for;
//   - an instruction that sets a barrier is kBarrierDelay cycles before one that waits for it;
//   - registers are below the declared number, pairs and quadruples aligned;
//   - branches stall for kBranchStall cycles and go to instructions of the code, which does not run past its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/sass/instruction.h"

namespace srjit::sass {

struct CheckedCode {
  /// An entry without a value, an instruction that is not in the table, counts as if it waited for everything.
  std::span<const std::optional<Instruction>> code;
  unsigned architecture = 0;
  unsigned registers = 0;                           ///< per thread, as declared
  std::span<const std::uint32_t> indirect_targets;  ///< where BRX may go, in instructions
  /// Shuffles deliver in order, and so do MUFU, FRND and FCHK together, and double instructions; loads and stores read
  /// their sources in order. So a barrier of a later one covers the earlier. The assembler relies on it; our own code
  /// need not.
  bool in_order = false;
};

/// A rule that is broken, in words: "R5 is read 3 cycles after FADD wrote it: FMUL needs 4".
struct Violation {
  std::size_t instruction;
  std::string rule;
};

/// The first violations in order of instructions, at most `limit`; empty if all rules hold.
std::vector<Violation> findHazards(const CheckedCode& checked, std::size_t limit = 8);

}  // namespace srjit::sass

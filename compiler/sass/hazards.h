// A proof that code waits for what it must wait for: the hardware does not check. Thread-safe: no state.
//
// The verifier walks the code along all its branches, loops to a fixed point, and knows of every register and predicate
// how long ago it was written by which kind of instruction, and which barriers its outstanding reads and writes signal.
// It assumes the worst where paths meet. What it proves is what registerDelay() and its like in instruction.h say, and
// that
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
  /// Where it is nothing (an instruction that is not in the table), all that is outstanding is taken for done.
  std::span<const std::optional<Instruction>> code;
  unsigned architecture = 0;
  unsigned registers = 0;                           ///< declared for a thread
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

/// Every word, decoded.
std::vector<std::optional<Instruction>> decodeAll(std::span<const Word> words, unsigned architecture);

}  // namespace srjit::sass

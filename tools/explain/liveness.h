// Register pressure of machine code.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "compiler/sass/instruction.h"

namespace srjit::explain {

/// For each instruction, the registers that it reads or writes, or whose values a later one reads: live variables by
/// iteration to a fixed point, backwards along all paths (A. Aho et al., "Compilers", 2nd ed., 9.2.5). Branches go
/// where their offsets say, an indexed branch to any of `targets` (in instructions), so it is no return of a
/// subroutine; a word that is not known has no effect. Uniform registers and predicates do not count.
std::vector<unsigned> liveRegisters(std::span<const std::optional<sass::Instruction>> code,
                                    std::span<const std::size_t> targets);

}  // namespace srjit::explain

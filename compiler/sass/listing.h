// Listings of machine code that need no nvdisasm. Thread-safe: no state.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/sass/cubin.h"
#include "compiler/sass/instruction.h"
#include "ir/error.h"

namespace srjit::sass {

/// An instruction as nvdisasm writes it, e.g. "@!P0 FADD R5, |R4|, -R7"; `with_control` appends what Control says. A
/// `target` is written in place of a branch's offset. The text of each form is in columns of instructions.def.
std::string print(const Instruction& instruction, bool with_control = false, const std::string* target = nullptr);

/// Every word, decoded; nothing for one that is not in the table.
std::vector<std::optional<Instruction>> decodeAll(std::span<const Word> words, unsigned architecture);

/// A kernel: its facts, then one instruction per line, as "  0x0040  FADD R5, R0, R7 ; wait 2 write - ...". Branch
/// targets have labels ".L1:", `indirect_targets` (in instructions) ".T0:". A word that is not in the table is printed
/// in hex.
std::string listing(const CubinKernel& kernel, unsigned architecture,
                    std::span<const std::uint32_t> indirect_targets = {}, bool with_control = true);

/// All kernels of an image. Errors: as readCubin().
Result<std::string> listing(std::span<const std::byte> image, bool with_control = true);

}  // namespace srjit::sass

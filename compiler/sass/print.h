// Machine instructions as text.
#pragma once

#include <string>

#include "compiler/sass/instruction.h"

namespace srjit::sass {

/// As nvdisasm writes it, e.g. "@!P0 FADD R5, |R4|, -R7"; `with_control` appends what Control says. A `target` is
/// written in place of a branch's offset. The text of each form is in columns of instructions.def.
std::string print(const Instruction& instruction, bool with_control = false, const std::string* target = nullptr);

}  // namespace srjit::sass

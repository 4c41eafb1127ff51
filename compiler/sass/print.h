// Machine instructions as text.
#pragma once

#include <string>

#include "compiler/sass/instruction.h"

namespace srjit::sass {

/// As nvdisasm writes it, e.g. "@!P0 FADD R5, |R4|, -R7"; `with_control` appends what Control says.
std::string print(const Instruction& instruction, bool with_control = false);

}  // namespace srjit::sass

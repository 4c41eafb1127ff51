// Bytecode as text.
#pragma once

#include <string>

#include "compiler/interpreter/bytecode.h"

namespace srjit {

/// One line per token, e.g. `mul 0v@2  column 3`.
std::string printBytecode(const Bytecode& code, const HandlerTable& table, const EncodeOptions& options);

}  // namespace srjit

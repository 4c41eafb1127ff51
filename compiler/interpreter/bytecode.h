// Programs of the GPU interpreter on the host: those of whole graphs, faults in words, and programs as text.
#pragma once

#include <string>

#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"
#include "ir/error.h"
#include "passes/dag.h"

namespace srjit {

/// A fault of an Encoder of this table. kInvalid for an operator that the table lacks (the message names it and the
/// table's operators), a variable that is not staged, or a constant that was not hoisted; kUnsupported if more columns
/// or slots are needed than allowed or than a token can address, or the table has more handlers than a token can name.
Status statusOf(const EncodeFault& fault, const HandlerTable& table, const EncodeOptions& options);

/// All roots of `dag` as one program, whose outputs are the roots' numbers. Errors: as statusOf().
Result<Bytecode> encode(const Dag& dag, const HandlerTable& table, const EncodeOptions& options);

/// One line per token, e.g. `mul 0v@2  column 3`.
std::string printBytecode(const Bytecode& code, const HandlerTable& table, const EncodeOptions& options);

}  // namespace srjit

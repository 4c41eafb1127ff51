// Programs of the GPU interpreter: a scheduled graph as tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/handler_table.h"
#include "ir/error.h"
#include "passes/dag.h"

namespace srjit {

/// One token in global memory. While a block copies its tokens to shared memory, it replaces the index of a parameter
/// by its value; so new parameters need no new tokens.
struct DeviceToken {
  /// Bits 0-11: handler; 12-30: byte offset of a column or slot in the block's shared memory; 31: `argument` is the
  /// index of a parameter.
  std::uint32_t code;
  /// A parameter's index, the byte offset of a second column, or (kEnd) the root.
  std::uint32_t argument;

  static constexpr std::uint32_t kHandlerMask = 0xfff;
  static constexpr unsigned kColumnShift = 12;
  static constexpr std::uint32_t kParameterFlag = 1u << 31;
  static constexpr std::uint32_t kAddressableBytes = kParameterFlag >> kColumnShift;
};

struct EncodeOptions {
  std::uint32_t columns = 0;          ///< columns staged in shared memory; slots come after them
  std::uint32_t first_root = 0;       ///< added to the root numbers
  std::uint32_t first_parameter = 0;  ///< added to the indices of Dag::parameters()
  std::uint32_t max_slots = 1u << 16;
};

/// The tokens of one graph, one program.
struct Bytecode {
  std::vector<DeviceToken> tokens;
  std::uint32_t slots = 0;
};

/// Encodes all roots of `dag` in order. Values used more than once and values too deep for the stack are computed
/// first, into slots, which are reused after the last use. The result does not depend on how nodes are numbered beyond
/// their order. Errors: kInvalid for an operator that the table lacks (its name and the table's operators are in the
/// message) or a column at or beyond options.columns; kUnsupported if more columns or slots
/// are needed than allowed or than a token can address, or the table has more handlers than a token can name.
Result<Bytecode> encode(const Dag& dag, const HandlerTable& table, const EncodeOptions& options);

/// A line per token, e.g. `mul 0v@2  column 3`.
std::string printBytecode(const Bytecode& code, const HandlerTable& table, const EncodeOptions& options);

/// Bytes of shared memory that one column or slot takes.
unsigned columnBytes(const InterpreterSpec& spec);

}  // namespace srjit

// Programs of the GPU interpreter: a scheduled graph as tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/interpreter/handler_table.h"
#include "compiler/interpreter/token_writer.h"
#include "ir/error.h"
#include "passes/dag.h"
#include "passes/members.h"

namespace srjit {

/// Encodes programs one after another; keeps its working memory between them. Not thread-safe; the table must outlive
/// it.
class Encoder {
 public:
  explicit Encoder(const HandlerTable& table) : table_(table), writer_(table.numbers()) {}

  /// Appends the program that computes the nodes `roots` of `dag`, in order, as outputs `outputs`, to code.tokens, and
  /// raises code.slots to what it needs. Values used more than once by these roots, and values too deep for the stack,
  /// are computed first, into slots. A slot is free again after the last use. If there are too few slots, short values
  /// are rematerialized at each use. The tokens do not depend on other roots, nor on node numbers beyond their order.
  /// The cost depends only on the nodes of these roots, not on the size of the graph. Errors leave code.tokens
  /// unchanged: kInvalid for an operator that the table lacks (the message names it and the table's operators), a
  /// variable that is not staged, or a constant that was not hoisted; kUnsupported if more columns or slots are needed
  /// than allowed or than a token can address, or the table has more handlers than a token can name.
  Status encode(const Dag& dag, std::span<const NodeId> roots, std::span<const std::uint32_t> outputs,
                const EncodeOptions& options, Bytecode& code);

  /// The same for the graph of one expression, whose roots become the outputs `outputs`. Constants are parameters;
  /// code.parameters names all.
  Status encode(const ExpressionGraph& graph, std::span<const std::uint32_t> outputs, const EncodeOptions& options,
                Bytecode& code);

 private:
  const HandlerTable& table_;
  TokenWriter writer_;
};

/// All roots of `dag` as one program, whose outputs are the roots' numbers.
Result<Bytecode> encode(const Dag& dag, const HandlerTable& table, const EncodeOptions& options);

}  // namespace srjit

// Programs of the GPU interpreter: a scheduled graph as tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/interpreter/handler_table.h"
#include "ir/error.h"
#include "passes/dag.h"
#include "passes/expression_graph.h"

namespace srjit {

/// One token in global memory. It names columns, slots and parameters by number. While a block copies its tokens to
/// shared memory it replaces columns and slots by byte offsets there, which depend on the launch, and parameters by
/// their values; so new parameters or another geometry need no new tokens.
struct DeviceToken {
  /// Bits 0-11: handler; 12-29: number of a staged column, or staged_columns + number of a slot; 30-31: the kind of
  /// `argument`.
  std::uint32_t code;
  std::uint32_t argument;

  enum ArgumentKind : std::uint32_t {
    kNumber = 0,     ///< a plain number: the output (kEnd), or 0
    kParameter = 1,  ///< the index of a parameter
    kColumn = 2,     ///< a second column or slot
  };
  static constexpr std::uint32_t kHandlerMask = 0xfff;
  static constexpr unsigned kColumnShift = 12;
  static constexpr std::uint32_t kColumnMask = 0x3ffff;
  static constexpr unsigned kArgumentShift = 30;
};

/// How the column, slot and parameter numbers of tokens follow from those of a graph.
struct EncodeOptions {
  /// Staged column of every variable, or kNotStaged. Empty: variable v is column v of `staged_columns`.
  std::span<const std::uint32_t> columns;
  std::uint32_t staged_columns = 0;  ///< slots are numbered from here on
  /// Parameter index of every entry of Dag::parameters(). Empty: the identity.
  std::span<const std::uint32_t> parameters;
  std::uint32_t first_parameter = 0;  ///< of an ExpressionGraph, whose parameters are numbered from here on
  std::uint32_t max_slots = 64;
  /// Whether the program is for kernels that add roots as they are (isPlainSum) alone: outputs with adjacent numbers
  /// are then added over the lanes several at once.
  bool joins_sums = false;

  static constexpr std::uint32_t kNotStaged = ~0u;
};

/// The tokens of programs.
struct Bytecode {
  std::vector<DeviceToken> tokens;
  std::vector<NodeId> parameters;  ///< of the last ExpressionGraph: its constants and parameters, in order of number
  std::uint32_t slots = 0;         ///< maximum number in use at once
};

/// Encodes programs one after another; keeps its working memory between them. Not thread-safe; the table must outlive
/// it.
class Encoder {
 public:
  explicit Encoder(const HandlerTable& table);
  ~Encoder();

  /// Appends the program that computes the nodes `roots` of `dag`, in order, as outputs `outputs`, to code.tokens, and
  /// raises code.slots to what it needs. Values used more than once by these roots, and values too deep for the stack,
  /// are computed first, into slots. A slot is free again after the last use. If there are too few slots, short values
  /// are rematerialized at each use. The tokens do not depend on other roots, nor on node numbers beyond their order.
  /// The cost depends on the nodes of these roots alone, not on the size of the graph. Errors leave code.tokens
  /// unchanged: kInvalid for an operator that the table lacks (the message names it and the table's operators), a
  /// variable that is not staged, or a constant that was not hoisted; kUnsupported if more columns or slots are needed
  /// than allowed or than a token can address, or the table has more handlers than a token can name.
  Status encode(const Dag& dag, std::span<const NodeId> roots, std::span<const std::uint32_t> outputs,
                const EncodeOptions& options, Bytecode& code);

  /// The same of what is computed of one expression: its roots as outputs `outputs`. Constants are parameters;
  /// code.parameters names all.
  Status encode(const ExpressionGraph& graph, std::span<const std::uint32_t> outputs, const EncodeOptions& options,
                Bytecode& code);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// All roots of `dag` as one program, whose outputs are the roots' numbers.
Result<Bytecode> encode(const Dag& dag, const HandlerTable& table, const EncodeOptions& options);

}  // namespace srjit

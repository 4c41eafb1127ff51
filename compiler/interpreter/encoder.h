// Writes programs of the GPU interpreter: a scheduled graph as tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/interpreter/handler_numbers.h"
#include "ir/error.h"
#include "passes/dag.h"
#include "passes/members.h"

namespace srjit {

class HandlerTable;

/// One token in global memory. It names columns, slots and parameters by number. While a block copies its tokens to
/// shared memory it replaces columns and slots by byte offsets there, which depend on the launch, and parameters by
/// their values; so new parameters or another geometry need no new tokens.
struct DeviceToken {
  /// Bits 0-11: handler; 12-29: number of a staged column, or staged_columns + number of a slot; 30-31: the kind of
  /// `argument`.
  std::uint32_t code;
  std::uint32_t argument;

  enum : std::uint32_t {
    kNumber = 0,     ///< a plain number: the output (kEnd), or 0
    kParameter = 1,  ///< the index of a parameter
    kColumn = 2,     ///< a second column or slot
  };
  static constexpr std::uint32_t kHandlerMask = 0xfff;
  static constexpr unsigned kColumnShift = 12;
  static constexpr std::uint32_t kColumnMask = 0x3ffff;
  static constexpr unsigned kArgumentShift = 30;

  static constexpr DeviceToken of(int handler, std::uint32_t column = 0, std::uint32_t argument = 0,
                                  std::uint32_t kind = kNumber) {
    return {static_cast<std::uint32_t>(handler) | column << kColumnShift | kind << kArgumentShift, argument};
  }
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
  /// Whether the program is only for kernels that add roots as they are (isPlainSum): outputs with adjacent numbers
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

/// Why there is no program; statusOf() says it in words.
struct EncodeFault {
  enum class Kind : std::uint8_t {
    kNone,
    kHandlers,       ///< more than a token can name: `number` of them
    kColumns,        ///< more columns than a token can name: `number` of them
    kOperator,       ///< operator `number` is not in the table
    kConstant,       ///< one that was not hoisted
    kBeyondColumns,  ///< variable `number` is none of the staged columns
    kNotStaged,      ///< variable `number` is in options.columns, but not staged
    kLength,         ///< too few slots for shared values
    kSlots,          ///< more are needed than the `number` that there are
  };
  Kind kind = Kind::kNone;
  std::uint32_t number = 0;

  bool isNone() const noexcept { return kind == Kind::kNone; }  ///< there is a program
  /// Whether there are too few handlers, columns or slots; otherwise the graph is not for this table.
  bool isWantOfRoom() const noexcept {
    return kind == Kind::kHandlers || kind == Kind::kColumns || kind == Kind::kLength || kind == Kind::kSlots;
  }
};

/// A value that is to be computed onto a stack of this height: the height in the upper half, the node in the lower. One
/// word, since it is read back at once: two stores must complete before one load of both.
using PendingValue = std::uint64_t;
constexpr PendingValue pendingAt(NodeId node, std::uint32_t height) { return PendingValue{height} << 32 | node; }

/// Encodes programs one after another; keeps its working memory between them. Not thread-safe; the table must outlive
/// it.
class Encoder {
 public:
  explicit Encoder(const HandlerNumbers& table);
  ~Encoder();

  /// Appends the program that computes the nodes `roots` of `dag`, in order, as outputs `outputs`, to code.tokens, and
  /// raises code.slots to what it needs. Values used more than once by these roots, and values too deep for the stack,
  /// are computed first, into slots. A slot is free again after the last use. If there are too few slots, short values
  /// are rematerialized at each use. The tokens do not depend on other roots, nor on node numbers beyond their order.
  /// The cost depends only on the nodes of these roots, not on the size of the graph. Faults leave code.tokens
  /// unchanged.
  EncodeFault encode(const Dag& dag, std::span<const NodeId> roots, std::span<const std::uint32_t> outputs,
                     const EncodeOptions& options, Bytecode& code);
  /// The same for the graph of one expression. Constants are parameters; code.parameters names all.
  EncodeFault encode(const ExpressionGraph& graph, std::span<const std::uint32_t> outputs, const EncodeOptions& options,
                     Bytecode& code);

 private:
  // A statement is the computation of a slot, or of a root up to its end; statements are numbered in the order in which
  // they run.

  struct Value;
  struct Life;
  struct Use;
  struct Segment;

  EncodeFault begin(const Dag& graph, const EncodeOptions& how, Bytecode& to);
  template <class Try>
  EncodeFault withSlots(const Try& encode);
  EncodeFault tryRoots(std::span<const NodeId> roots, std::span<const std::uint32_t> outputs,
                       std::uint32_t shared_from);
  EncodeFault tryGraph(const ExpressionGraph& graph, std::span<const std::uint32_t> outputs, std::uint32_t shared_from);
  void clear(std::uint32_t shared_from);
  EncodeFault collect(NodeId root, std::uint32_t output);
  static void placeAt(Value& value, OperandPlace where, std::uint32_t number);
  EncodeFault placeLeaf(const Node& node, Value& value) const;
  EncodeFault emitSegments();
  void plan(const Node& node, Value& value, std::uint32_t uses);
  void planOnce(const Node& node, Value& value) const;
  void spillHungriest(const Node& node);
  void moveToSlot(Value& value);
  EncodeFault checkLength() const;
  void findLastUses();
  EncodeFault storeInSlots(const Segment& segment, std::uint32_t& statement);
  EncodeFault storeInSlot(NodeId id, std::uint32_t statement);
  void release(std::uint32_t statement);
  std::size_t endOfSums(std::size_t first) const;
  void emitSum(NodeId root, std::uint32_t sum);
  void emitStatement(NodeId root, bool in_place, DeviceToken last);
  DeviceToken* emitTree(NodeId root, DeviceToken* end);
  DeviceToken* emitShort(const Node& node, const OperandPlan& plan, std::uint32_t height, DeviceToken* end) const;
  DeviceToken* emitLong(const Node& node, const OperandPlan& plan, std::uint32_t height, DeviceToken* end) const;
  DeviceToken pushed(const Value& value, std::uint32_t height) const;

  HandlerNumbers table_;
  std::vector<Value> values_;  ///< by node, as `uses_` and `lives_`
  std::vector<Use> uses_;
  std::vector<Life> lives_;
  std::uint32_t generation_ = 0;
  std::vector<NodeId> member_list_;
  std::span<const NodeId> members_;
  std::vector<Segment> segments_;
  std::vector<NodeId> live_;  ///< nodes whose slots are in use
  std::vector<std::uint32_t> free_slots_;
  std::uint32_t slots_ = 0;
  bool any_in_slot_ = false;           ///< without slots, statements and last uses do not matter
  std::vector<PendingValue> pending_;  ///< for different heights of the stack; three at once are written behind them
  std::uint32_t least_shared_ = 0;     ///< a value used more than once goes to a slot from this many tokens on
  // Of the current call
  const Dag* dag_ = nullptr;
  const EncodeOptions* options_ = nullptr;
  Bytecode* code_ = nullptr;
};

// In bytecode.cpp: programs of whole graphs, faults in words, and programs as text.

/// A fault of an Encoder of this table. kInvalid for an operator that the table lacks (the message names it and the
/// table's operators), a variable that is not staged, or a constant that was not hoisted; kUnsupported if more columns
/// or slots are needed than allowed or than a token can address, or the table has more handlers than a token can name.
Status statusOf(const EncodeFault& fault, const HandlerTable& table, const EncodeOptions& options);

/// All roots of `dag` as one program, whose outputs are the roots' numbers. Errors: as statusOf().
Result<Bytecode> encode(const Dag& dag, const HandlerTable& table, const EncodeOptions& options);

/// One line per token, e.g. `mul 0v@2  column 3`.
std::string printBytecode(const Bytecode& code, const HandlerTable& table, const EncodeOptions& options);

}  // namespace srjit

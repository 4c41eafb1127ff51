// The interpreter's handlers and their numbers. Bytecode and kernel are generated from one table.
//
// The machine has a stack of `depth` registers per row, argument registers for operators with long code, columns and
// slots. There is one copy of a handler per stack height before it, so that every register index is a compile-time
// constant. Operators with short code have one handler for each form, i.e. for where each operand comes from. Operators
// whose code is long (a function, a correctly rounded division, ...) have one body each: tokens move the operands in,
// run the body, and push its result. The order of R. Sethi and J. D. Ullman minimizes the depth; deeper values and
// shared values go to slots.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ir/numeric.h"
#include "ir/op.h"

namespace srjit {

/// Where the operands of a short operator come from, one character each: '0', '1', '2' a popped stack entry counted
/// from the deepest, 'v' a column or slot, 'c' a parameter. A token can name two columns, or one and a parameter.
using OperandForm = std::string_view;

struct Handler {
  enum class Kind : std::uint8_t {
    kPushColumn,     ///< push a column or slot
    kPushParameter,  ///< push a parameter
    kApply,          ///< a short operator with operands of one form
    kArgumentStack,  ///< pop into argument register `argument`
    kArgumentColumn,
    kArgumentParameter,
    kBody,        ///< a long operator over the argument registers, in place
    kPushResult,  ///< push the body's result
    kStoreSlot,   ///< pop into a slot
    kEnd,         ///< pop the value of a root: write it, or add it to the loss
    // Every table has these; only kernels that add roots as they are (isPlainSum) run them, and others trap:
    kKeepSum,         ///< pop the value of a root: add the rows of the thread, as sum `argument`
    kKeepProductSum,  ///< the same of the product of two columns or slots
    kStoreSums,       ///< add sums 0 to `argument` over the lanes: those of an output and of the next ones
    kHalt,            ///< end of a block's programs
    kNextWindow,      ///< end of the tokens in shared memory: copy the next window
  };
  Kind kind;
  std::uint8_t height = 0;    ///< stack height before
  std::uint8_t argument = 0;  ///< kArgument*: the register's index; of sums: which
  Op op{};                    ///< kApply, kBody
  OperandForm operands = {};  ///< kApply
};

/// Sums that a thread keeps at most, so that the lanes of a warp add several at once.
inline constexpr unsigned kMostKeptSums = 4;

/// Registers of the stack of an engine's interpreter: enough for most trees of 50 nodes; deeper values go to slots. One
/// more costs registers, and so blocks per multiprocessor: 5 % of the speed on an H200.
inline constexpr unsigned kInterpreterDepth = 4;

/// What an interpreter is specialised for.
struct InterpreterSpec {
  Precision precision = Precision::kF32;
  Math math = Math::kPrecise;
  std::vector<Op> ops;                 ///< the operators it can run; code size grows with their number
  unsigned rows_per_thread = 8;        ///< 4, 8 or 16
  unsigned depth = kInterpreterDepth;  ///< stack registers per row, 3 to 16
};

/// Where an operator finds an operand: in a column or slot, in a parameter, or on the stack, where it is computed with
/// `need` registers.
using OperandPlace = std::uint8_t;
inline constexpr OperandPlace kInColumn = 0, kInParameter = 1;
constexpr OperandPlace onStack(unsigned need) noexcept { return static_cast<OperandPlace>(1 + need); }
constexpr bool isOnStack(OperandPlace place) noexcept { return place > kInParameter; }
/// What is not on the stack yet needs one register if it has to be pushed.
constexpr unsigned needOf(OperandPlace place) noexcept { return isOnStack(place) ? place - 1U : 1; }

/// How an operator gets operands from given places: which are evaluated onto the stack, in which order, and for a
/// short operator their form. Operand numbers are those of the node, also for a mirrored form.
struct OperandPlan {
  static constexpr std::uint8_t kNone = kMaxArity;  ///< so that a caller may have a fourth operand that is nothing
  std::array<std::uint8_t, kMaxArity> stack{kNone, kNone, kNone};  ///< operands in the order of evaluation
  std::uint8_t stack_count = 0;
  std::uint8_t need = 1;                     ///< registers; one more than there are if these are not enough
  std::uint8_t tokens = 0;                   ///< of the operator, and of columns and parameters that it pushes
  std::uint8_t column = kNone;               ///< short operators: the operand that the token names as a column,
  std::uint8_t argument = kNone;             ///< and the one that it names as its argument,
  OperandPlace argument_place = onStack(1);  ///< which is in a column or parameter; onStack(1) if there is none
  std::uint8_t operand_form = 0;             ///< index in HandlerTable::operandForms()
};

class HandlerTable {
 public:
  /// A token can name 4096 handlers; encode() refuses a larger table.
  explicit HandlerTable(InterpreterSpec spec);

  const InterpreterSpec& spec() const noexcept { return spec_; }
  std::span<const Handler> handlers() const noexcept { return handlers_; }
  bool has(Op op) const noexcept { return facts_[static_cast<std::size_t>(op)].has; }
  bool isLong(Op op) const noexcept { return facts_[static_cast<std::size_t>(op)].is_long; }
  /// Argument registers per row: the largest arity of a long operator.
  unsigned argumentCount() const noexcept { return argument_count_; }

  /// The number of a handler at a stack height, or -1 if there is none.
  int find(Handler::Kind kind, unsigned height, unsigned argument = 0) const noexcept {
    return height <= spec_.depth && argument < kArguments ? plain_[placeOf(kind, height, argument)] : -1;
  }
  /// The number of a handler of another table, of the same depth, or -1.
  int find(const Handler& handler) const noexcept;
  int findApply(Op op, unsigned operand_form, unsigned height) const noexcept {
    const OpFacts& facts = facts_[static_cast<std::size_t>(op)];
    if (!facts.has || facts.is_long || height > spec_.depth) return -1;
    return applies_[static_cast<std::size_t>(facts.first) + std::size_t{operand_form} * (spec_.depth + 1) + height];
  }
  int findApply(Op op, OperandForm operands, unsigned height) const noexcept;
  int findBody(Op op) const noexcept { return facts_[static_cast<std::size_t>(op)].first; }

  /// The forms of operands of short operators of this arity; with `commutative`, only one of two mirrored forms.
  static std::span<const OperandForm> operandForms(int arity, bool commutative);
  static std::span<const OperandForm> operandForms(Op op);

  /// The plan that pushes the fewest columns and parameters onto the stack and, among these, needs the fewest
  /// registers: operands on the stack are evaluated by descending need, where the form allows it. Operands past the
  /// arity do not count. Without branches, which would be hard to predict.
  const OperandPlan& planOf(Op op, OperandPlace a, OperandPlace b, OperandPlace c) const noexcept {
    const OpFacts& facts = facts_[static_cast<std::size_t>(op)];
    return facts.plans[a + facts.strides[0] * b + facts.strides[1] * c];
  }

 private:
  static constexpr unsigned kArguments = std::max<unsigned>(kMaxArity, kMostKeptSums);
  struct OpFacts {
    bool has = false;
    bool is_long = false;
    int first = -1;  ///< the body, or where the operator's handlers begin in applies_
    const OperandPlan* plans = nullptr;
    std::array<std::uint32_t, 2> strides{};  ///< of the places of the second and the third operand in `plans`
  };

  void addSums();
  void add(const Handler& handler);
  std::size_t placeOf(Handler::Kind kind, unsigned height, unsigned argument) const noexcept {
    return (static_cast<std::size_t>(kind) * (spec_.depth + 1) + height) * kArguments + argument;
  }

  InterpreterSpec spec_;
  std::vector<Handler> handlers_;
  std::array<OpFacts, kMostOps> facts_{};
  /// By class of operators, then by the places of operands; copies of the table share them.
  std::shared_ptr<const std::vector<std::vector<OperandPlan>>> plans_;
  unsigned argument_count_ = 0;
  std::vector<std::int16_t> plain_;    ///< by kind, height and argument
  std::vector<std::int16_t> applies_;  ///< by operator, form of operands and height
};

/// Whether an interpreter has one body for the operator instead of a handler for each form.
bool hasLongCode(Op op, Precision precision, Math math);

/// The number of rows per thread that the body of a long operator computes in one loop iteration.
unsigned rowsPerTurn(Op op, const InterpreterSpec& spec);

}  // namespace srjit

// Look-ups of encoding: handlers, and the numbers that a table gives to them (compiler/interpreter/handler_table.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ir/op.h"

namespace srjit {

/// Registers of the stack of an engine's interpreter: enough for most trees of 50 nodes; deeper values go to slots. One
/// more costs registers, and so blocks per multiprocessor: 5 % of the speed on an H200.
inline constexpr unsigned kInterpreterDepth = 4;
/// What a table may have instead: with more, handlers of all operators have no numbers in a token.
inline constexpr unsigned kLeastInterpreterDepth = 3, kMostInterpreterDepth = 15;

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

/// Where an operator finds an operand: in a column or slot, in a parameter, or on the stack, where it is computed with
/// `need` registers.
using OperandPlace = std::uint8_t;
inline constexpr OperandPlace kInColumn = 0, kInParameter = 1;
constexpr OperandPlace onStack(unsigned need) noexcept { return static_cast<OperandPlace>(1 + need); }
constexpr bool isOnStack(OperandPlace place) noexcept { return place > kInParameter; }
/// An operand that is not on the stack yet needs one register if it has to be pushed.
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

/// The numbers of a table's handlers, and the plans of its operators, as plain arrays: a device may have a copy of
/// them. Borrowed from the table.
struct HandlerNumbers {
  static constexpr unsigned kArguments = std::max<unsigned>(kMaxArity, kMostKeptSums);
  struct OpFacts {
    bool has = false;
    bool is_long = false;
    std::int32_t first = -1;                 ///< the body, or where the operator's handlers begin in `applies`
    std::uint32_t first_plan = 0;            ///< in `plans`
    std::array<std::uint32_t, 2> strides{};  ///< of the places of the second and the third operand in `plans`
  };

  std::span<const OpFacts> ops;           ///< by operator
  std::span<const OperandPlan> plans;     ///< by class of operators, then by the places of operands
  std::span<const std::int16_t> plain;    ///< by kind, height and argument
  std::span<const std::int16_t> applies;  ///< by operator, form of operands and height
  std::uint32_t depth = 0;                ///< InterpreterSpec::depth
  std::uint32_t handlers = 0;

  const OpFacts& facts(Op op) const noexcept { return ops[static_cast<std::size_t>(op)]; }
  bool has(Op op) const noexcept { return facts(op).has; }
  bool isLong(Op op) const noexcept { return facts(op).is_long; }
  /// The number of a handler at a stack height, or -1 if there is none.
  int find(Handler::Kind kind, unsigned height, unsigned argument = 0) const noexcept {
    return height <= depth && argument < kArguments ? plain[placeOf(kind, height, argument)] : -1;
  }
  int findApply(Op op, unsigned operand_form, unsigned height) const noexcept {
    const OpFacts& of = facts(op);
    if (!of.has || of.is_long || height > depth) return -1;
    return applyOf(of, operand_form, height);
  }
  /// The same of a short operator that the table has, at a height that there is.
  int applyOf(const OpFacts& of, unsigned operand_form, unsigned height) const noexcept {
    return applies[static_cast<std::uint32_t>(of.first) + operand_form * (depth + 1) + height];
  }
  int findBody(Op op) const noexcept { return facts(op).first; }
  /// The plan that pushes the fewest columns and parameters onto the stack and, among these, needs the fewest
  /// registers: operands on the stack are evaluated by descending need, where the form allows it. Operands past the
  /// arity do not count. Without branches, which would be hard to predict.
  const OperandPlan& planOf(Op op, OperandPlace a, OperandPlace b, OperandPlace c) const noexcept {
    return planOf(facts(op), a, b, c);
  }
  const OperandPlan& planOf(const OpFacts& of, OperandPlace a, OperandPlace b, OperandPlace c) const noexcept {
    return plans[of.first_plan + a + of.strides[0] * b + of.strides[1] * c];
  }
  std::size_t placeOf(Handler::Kind kind, unsigned height, unsigned argument) const noexcept {
    return (static_cast<std::size_t>(kind) * (depth + 1) + height) * kArguments + argument;
  }
};

}  // namespace srjit

// The interpreter's handlers and their numbers. Bytecode and kernel are generated from one table.
//
// The machine has a stack of `depth` registers per row, argument registers for operators with long code, columns and
// slots. There is one copy of a handler per stack height before it, so that every register index is a compile-time
// constant. Operators with short code have one handler for each form, i.e. for where each operand comes from. Operators
// whose code is long (a function, a correctly rounded division, ...) have one body each: tokens move the operands in,
// run the body, and push its result. The order of R. Sethi and J. D. Ullman minimizes the depth; deeper values and
// shared values go to slots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/interpreter/handler_numbers.h"
#include "ir/numeric.h"
#include "ir/op.h"

namespace srjit {

/// The properties that an interpreter is specialised for.
struct InterpreterSpec {
  Precision precision = Precision::kF32;
  Math math = Math::kPrecise;
  std::vector<Op> ops;                 ///< the operators it can run; code size grows with their number
  unsigned rows_per_thread = 8;        ///< 4, 8 or 16
  unsigned depth = kInterpreterDepth;  ///< stack registers per row (kMostInterpreterDepth)
};

class HandlerTable {
 public:
  /// A token can name 4096 handlers; encode() refuses a larger table.
  explicit HandlerTable(InterpreterSpec spec);

  const InterpreterSpec& spec() const noexcept { return spec_; }
  std::span<const Handler> handlers() const noexcept { return handlers_; }
  /// Valid as long as the table stays where it is.
  HandlerNumbers numbers() const noexcept {
    return {facts_, plans_, plain_, applies_, spec_.depth, static_cast<std::uint32_t>(handlers_.size())};
  }
  bool isLong(Op op) const noexcept { return numbers().isLong(op); }
  /// Argument registers per row: the largest arity of a long operator.
  unsigned argumentCount() const noexcept { return argument_count_; }

  /// As those of HandlerNumbers.
  int find(Handler::Kind kind, unsigned height, unsigned argument = 0) const noexcept {
    return numbers().find(kind, height, argument);
  }
  int findBody(Op op) const noexcept { return numbers().findBody(op); }
  /// The number of a handler of another table, of the same depth, or -1.
  int find(const Handler& handler) const noexcept;
  int findApply(Op op, OperandForm operands, unsigned height) const noexcept;

  /// The forms of operands of short operators of this arity; with `commutative`, only one of two mirrored forms.
  static std::span<const OperandForm> operandForms(int arity, bool commutative);
  static std::span<const OperandForm> operandForms(Op op);

 private:
  void addSums();
  void add(const Handler& handler);

  InterpreterSpec spec_;
  std::vector<Handler> handlers_;
  // What HandlerNumbers has:
  std::array<HandlerNumbers::OpFacts, kMostOps> facts_{};
  std::vector<OperandPlan> plans_;
  std::vector<std::int16_t> plain_;
  std::vector<std::int16_t> applies_;
  unsigned argument_count_ = 0;
};

/// Whether an interpreter has one body for the operator instead of a handler for each form.
bool hasLongCode(Op op, Precision precision, Math math);

/// The number of rows per thread that the body of a long operator computes in one loop iteration.
unsigned rowsPerTurn(Op op, const InterpreterSpec& spec);

/// Families of operators: one interpreter kernel per family, so that few kernels serve all populations. Each contains
/// the one before, and every operator that passes derive from its own. A kernel with fewer operators compiles faster
/// and fits the instruction cache.
enum class OpFamily { kArithmetic, kCommon, kAll };

inline constexpr OpFamily kOpFamilies[] = {OpFamily::kArithmetic, OpFamily::kCommon, OpFamily::kAll};

/// "arithmetic", "common" or "all".
std::string_view nameOf(OpFamily family) noexcept;

/// The operators of a family, ascending.
std::span<const Op> opsOf(OpFamily family) noexcept;

/// The smallest family that has `op`, from its row of ops.def.
OpFamily familyOf(Op op) noexcept;

/// The smallest family that has all of `ops`.
OpFamily familyOf(std::span<const Op> ops) noexcept;

}  // namespace srjit

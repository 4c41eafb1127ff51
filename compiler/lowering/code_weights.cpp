#include "compiler/lowering/code_weights.h"

#include <algorithm>
#include <array>
#include <optional>

#include "ir/functions/programs.h"
#include "ir/ops.h"
#include "ir/rows.h"

namespace srjit {
namespace {

// The domain that counts instructions: an estimate of the cost of a row of ops.def. Its numbers, words and
// truth values have no value.
struct Weight {
  Weight(double) {}
  Weight(std::int32_t) {}
};

// The current count and its mode, since the domain's operators take no argument for them.
struct Count {
  Precision precision = Precision::kF32;
  bool approximate = false;
  TargetKind target = TargetKind::kDevice;
  unsigned instructions = 0;

  bool isOnHost() const { return target == TargetKind::kHost; }
  // min.NaN and max.NaN of PTX: whether the minimum and the maximum are one instruction.
  bool propagatesNan() const { return !isOnHost() && !isDouble(precision); }
  unsigned division() const { return isOnHost() ? 1 : approximate ? 2 : kRoundedDivision; }
  static constexpr unsigned kRoundedDivision = 20;
};
thread_local Count current;

Weight add(unsigned instructions) {
  current.instructions += instructions;
  return 0.0;
}

// As in ir/domain.def. A change of sign is part of the instruction that reads the number, and so are words.
Weight operator+(Weight, Weight) { return add(1); }
Weight operator-(Weight, Weight) { return add(1); }
Weight operator*(Weight, Weight) { return add(1); }
Weight operator/(Weight, Weight) { return add(current.division()); }
Weight operator-(Weight x) { return x; }
Weight operator&(Weight, Weight) { return add(1); }
Weight lt(Weight, Weight) { return add(1); }
Weight le(Weight, Weight) { return add(1); }
Weight eq(Weight, Weight) { return add(1); }
Weight select(Weight, Weight, Weight) { return add(1); }
Weight atMost(Weight, double) { return add(current.propagatesNan() ? 1 : 2); }
Weight atLeast(Weight, double) { return add(current.propagatesNan() ? 1 : 2); }
template <std::size_t kCount, class Rare>
std::array<Weight, kCount> rarely(Weight, const std::array<Weight, kCount>& usual, const Rare&) {
  add(1);
  return usual;
}
Weight shiftLeft(Weight, int) { return add(1); }
Weight shiftRight(Weight, int) { return add(1); }
Weight upperWord(Weight x) { return x; }
Weight lowerWord(Weight x) { return x; }
Weight withWords(Weight x, Weight, Weight) { return x; }

// The instructions of an operation of IEEE 754.
unsigned weightOf(Function operation) {
  switch (operation) {
    case Function::k_abs:
      return 0;
    case Function::k_minimum:
    case Function::k_maximum:
      return current.propagatesNan() ? 1 : 8;
    case Function::k_sqrt:
      return current.division();
    default:
      return 1;
  }
}

// The instructions of the approximate form that `fast` has of a function; none where it uses the precise form.
std::optional<unsigned> weightOfApproximation(Function function) {
  switch (function) {
    case Function::k_sin:
    case Function::k_cos:
    case Function::k_tanh:
      return current.isOnHost() ? std::nullopt : std::optional(1U);
    case Function::k_sqrt:
    case Function::k_exp2:
    case Function::k_log2:
      return 1;
    case Function::k_exp:
    case Function::k_log:
    case Function::k_log10:
      return 2;
    case Function::k_tan:
      return current.isOnHost() ? std::nullopt : std::optional(4U);
    case Function::k_pow:
      return 14;
    default:
      return {};
  }
}

Weight call(Function function, auto...) {
  const bool was_approximate = current.approximate;
  if (was_approximate) {
    if (const std::optional<unsigned> weight = weightOfApproximation(function)) return add(*weight);
  }
  switch (infoOf(function).code) {
    case FunctionCode::kOperation:
      return add(weightOf(function));
    case FunctionCode::kProgram:
      current.approximate = false;
      functions::apply<Weight>(current.precision, function, 0.0, 0.0);
      current.approximate = was_approximate;
      return 0.0;
  }
  __builtin_unreachable();
}

#define SRJIT_VALUE Weight
#define SRJIT_CALL call
#include "ir/functions/define.def"

template <class Count>
std::size_t sumOverTokens(const ExpressionView& expression, std::size_t leaf, const Count& count) {
  std::size_t all = 0;
  for (const Token token : expression) {
    all += token.kind == Token::Kind::kOp ? count(static_cast<std::size_t>(token.op)) : leaf;
  }
  return all;
}

}  // namespace

unsigned codeWeight(Op op, Precision precision, Math math, TargetKind target) {
  current = {precision, isApproximate(math, precision), target};
  applyRow<Weight>(op, 0.0, 0.0, 0.0);
  return current.instructions;
}

CodeWeights codeWeights(Precision precision, Math math, TargetKind target) {
  CodeWeights weights{};
  for (std::size_t op = 0; op < kOpCount; ++op) weights[op] = codeWeight(static_cast<Op>(op), precision, math, target);
  return weights;
}

std::size_t instructionsOf(const ExpressionView& expression, const CodeWeights& weights) {
  return sumOverTokens(expression, 0, [&](std::size_t op) -> std::size_t { return weights[op]; });
}

std::size_t deviceCodeLength(const ExpressionView& expression, const CodeWeights& weights) {
  return sumOverTokens(expression, 1, [&](std::size_t op) { return std::max<std::size_t>(1, weights[op]); });
}

}  // namespace srjit

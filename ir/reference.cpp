#include "ir/reference.h"

#include <array>
#include <vector>

#include "ir/numbers/running_functions.h"
#include "ir/rows.h"

namespace srjit {
namespace {

/// Evaluates in the domain T; `leaf` gives the value of a token that is no operator.
template <class T, class Leaf>
T evaluate(const Expression& expression, Leaf leaf) {
  constexpr std::size_t kSmall = 64;
  std::array<T, kSmall> small;
  std::vector<T> large(expression.stackHeight() > kSmall ? expression.stackHeight() : 0);
  T* top = large.empty() ? small.data() : large.data();  // one past the last value
  const T none(0.0);
  for (const Token& token : expression.tokens()) {
    const int arity = token.arity();
    top -= arity;
    *top =
        arity == 0 ? leaf(token) : applyRow<T>(token.op, top[0], arity > 1 ? top[1] : none, arity > 2 ? top[2] : none);
    ++top;
  }
  return top[-1];
}

/// The number that a leaf stands for.
double numberOf(const Token& token, std::span<const double> variables, std::span<const double> parameters) {
  switch (token.kind) {
    case Token::Kind::kVariable:
      return variables[token.index];
    case Token::Kind::kParameter:
      return parameters[token.index];
    default:
      return token.value;
  }
}

template <Precision kPrecision, Math kMath>
Bounded evaluateIn(const Expression& expression, std::span<const double> variables,
                   std::span<const double> parameters) {
  using T = RunningError<Arithmetic{kPrecision, kMath}>;
  const T result =
      evaluate<T>(expression, [&](const Token& token) { return T(numberOf(token, variables, parameters)); });
  return {result.value, result.error};
}

}  // namespace

double evaluateReference(const Expression& expression, std::span<const double> variables,
                         std::span<const double> parameters) {
  return evaluate<double>(expression, [&](const Token& token) { return numberOf(token, variables, parameters); });
}

Bounded evaluateBounded(const Expression& expression, std::span<const double> variables,
                        std::span<const double> parameters, const Arithmetic& arithmetic) {
  // Strict and precise round alike as far as a bound goes, and so does fast in double.
  return withZeroOf(arithmetic.precision, [&]<class T>(T) {
    constexpr Precision kPrecision = kPrecisionOf<T>;
    const auto run = isApproximate(arithmetic.math, kPrecision) ? evaluateIn<kPrecision, Math::kFast>
                                                                : evaluateIn<kPrecision, Math::kPrecise>;
    return run(expression, variables, parameters);
  });
}

}  // namespace srjit

#include "passes/shorten/ranges.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace srjit {
namespace {

constexpr double kHalfPi = std::numbers::pi / 2;

struct FunctionFacts {
  Op op;
  Parity parity;
  ValueRange values;
  Op inner;
  ValueRange domain;
};
constexpr FunctionFacts kFunctionFacts[] = {
#define SRJIT_FUNCTION(op, parity, least, most, inner, inner_least, inner_most) \
  {Op::k##op, Parity::parity, {least, most}, Op::k##inner, {inner_least, inner_most}},
#include "passes/shorten/functions.def"
#undef SRJIT_FUNCTION
};

const FunctionFacts* functionFactsOf(Op op) noexcept {
  const auto found = std::ranges::find(kFunctionFacts, op, &FunctionFacts::op);
  return found == std::end(kFunctionFacts) ? nullptr : &*found;
}

/// The smallest range with these numbers; everything if one is NaN.
template <class... Numbers>
ValueRange around(Numbers... numbers) noexcept {
  if ((std::isnan(numbers) || ...)) return kEverything;
  return {std::min({numbers...}), std::max({numbers...})};
}

}  // namespace

ValueRange sumOf(const ValueRange& a, const ValueRange& b) noexcept {
  const double least = a.least + b.least, most = a.most + b.most;
  return std::isnan(least) || std::isnan(most) ? kEverything : ValueRange{least, most};
}

ValueRange productOf(const ValueRange& a, const ValueRange& b) noexcept {
  const auto times = [](double x, double y) { return x == 0 || y == 0 ? 0 : x * y; };
  return around(times(a.least, b.least), times(a.least, b.most), times(a.most, b.least), times(a.most, b.most));
}

ValueRange powerOf(const ValueRange& base, double exponent) noexcept {
  ValueRange from = base;
  if (!isWhole(exponent)) {
    from = {std::max(base.least, 0.0), std::max(base.most, 0.0)};
  } else if (isEven(exponent)) {
    const double least = std::fabs(base.least), most = std::fabs(base.most);
    from = {base.least <= 0 && base.most >= 0 ? 0 : std::min(least, most), std::max(least, most)};
  } else if (exponent < 0 && base.least < 0 && base.most > 0) {
    return kEverything;
  }
  // 0 is there from above or from below.
  if (exponent < 0 && from.most == 0) from.most = -0.0;
  if (exponent < 0 && from.least == 0) from.least = 0.0;
  return around(std::pow(from.least, exponent), std::pow(from.most, exponent));
}

ValueRange valuesOf(Op op, const ValueRange& operand) noexcept {
  switch (op) {
    case Op::kExp:
      return {std::exp(operand.least), std::exp(operand.most)};
    case Op::kLog:
      return {std::log(std::max(operand.least, 0.0)), std::log(std::max(operand.most, 0.0))};
    case Op::kNeg:
      return {-operand.most, -operand.least};
    default:
      break;
  }
  const FunctionFacts* facts = functionFactsOf(op);
  return facts == nullptr ? kEverything : facts->values;
}

std::optional<ValueRange> domainOfInverse(Op outer, Op inner) noexcept {
  const FunctionFacts* facts = functionFactsOf(outer);
  if (facts == nullptr || facts->inner != inner || outer == inner) return {};
  return facts->domain;
}

Parity parityOf(Op op) noexcept {
  const FunctionFacts* facts = functionFactsOf(op);
  return facts == nullptr ? Parity::kNeither : facts->parity;
}

}  // namespace srjit

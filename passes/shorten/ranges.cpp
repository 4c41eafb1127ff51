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
  Interval values;
  Op inner;
  Interval domain;
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
Interval around(Numbers... numbers) noexcept {
  if ((std::isnan(numbers) || ...)) return kEverything;
  return {std::min({numbers...}), std::max({numbers...})};
}

}  // namespace

Interval sumOf(const Interval& a, const Interval& b) noexcept {
  const double least = a.low + b.low, most = a.high + b.high;
  return std::isnan(least) || std::isnan(most) ? kEverything : Interval{least, most};
}

Interval productOf(const Interval& a, const Interval& b) noexcept {
  const auto times = [](double x, double y) { return x == 0 || y == 0 ? 0 : x * y; };
  return around(times(a.low, b.low), times(a.low, b.high), times(a.high, b.low), times(a.high, b.high));
}

Interval powerOf(const Interval& base, double exponent) noexcept {
  Interval from = base;
  if (!isWhole(exponent)) {
    from = {std::max(base.low, 0.0), std::max(base.high, 0.0)};
  } else if (isEven(exponent)) {
    const double least = std::fabs(base.low), most = std::fabs(base.high);
    from = {base.low <= 0 && base.high >= 0 ? 0 : std::min(least, most), std::max(least, most)};
  } else if (exponent < 0 && base.low < 0 && base.high > 0) {
    return kEverything;
  }
  // 0 is there from above or from below.
  if (exponent < 0 && from.high == 0) from.high = -0.0;
  if (exponent < 0 && from.low == 0) from.low = 0.0;
  return around(std::pow(from.low, exponent), std::pow(from.high, exponent));
}

Interval valuesOf(Op op, const Interval& operand) noexcept {
  switch (op) {
    case Op::kExp:
      return {std::exp(operand.low), std::exp(operand.high)};
    case Op::kLog:
      return {std::log(std::max(operand.low, 0.0)), std::log(std::max(operand.high, 0.0))};
    case Op::kNeg:
      return {-operand.high, -operand.low};
    default:
      break;
  }
  const FunctionFacts* facts = functionFactsOf(op);
  return facts == nullptr ? kEverything : facts->values;
}

std::optional<Interval> domainOfInverse(Op outer, Op inner) noexcept {
  const FunctionFacts* facts = functionFactsOf(outer);
  if (facts == nullptr || facts->inner != inner || outer == inner) return {};
  return facts->domain;
}

Parity parityOf(Op op) noexcept {
  const FunctionFacts* facts = functionFactsOf(op);
  return facts == nullptr ? Parity::kNeither : facts->parity;
}

}  // namespace srjit

#include "ir/numbers/intervals.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <initializer_list>
#include <limits>
#include <numbers>

#include "ir/numbers/postfix.h"
#include "ir/numbers/slopes.h"
#include "ir/rows.h"

namespace srjit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// Moves from a computed end: an operation of IEEE 754 is off by half a unit; a function by one (functions.def), where
// the interval's value is computed and where a kernel's is.
constexpr int kOperationSteps = 1, kFunctionSteps = 3;

/// The domain for the rows of ops.def.
class Range {
 public:
  struct Mask {
    bool may_be_true, may_be_false;
  };

  Range() = default;
  explicit Range(double number) : low(number), high(number) {
    if (std::isnan(number)) *this = onlyNan();
  }
  Range(double least, double most, bool nan) : low(least), high(most), may_be_nan(nan) {}

  double low = 0, high = 0;
  bool may_be_nan = false;

  friend Range operator-(const Range& x) { return {-x.high, -x.low, x.may_be_nan}; }
  friend Range operator+(const Range& x, const Range& y) {
    if (x.isEmpty() || y.isEmpty()) return onlyNan();
    const bool may_cancel = (x.high == kInf && y.low == -kInf) || (x.low == -kInf && y.high == kInf);
    return outwards(x.low + y.low, x.high + y.high, x.may_be_nan || y.may_be_nan || may_cancel, kOperationSteps);
  }
  friend Range operator-(const Range& x, const Range& y) { return x + -y; }
  friend Range operator*(const Range& x, const Range& y) {
    if (x.isEmpty() || y.isEmpty()) return onlyNan();
    const bool may_spoil = (x.hasZero() && y.hasInfinity()) || (y.hasZero() && x.hasInfinity());
    const auto product = [](double a, double b) { return a == 0 || b == 0 ? 0 : a * b; };
    if (&x == &y) {  // a row squares an operand
      const Range size = abs(x);
      return outwards(size.low * size.low, size.high * size.high, x.may_be_nan, kOperationSteps);
    }
    return hull({product(x.low, y.low), product(x.low, y.high), product(x.high, y.low), product(x.high, y.high)},
                x.may_be_nan || y.may_be_nan || may_spoil, kOperationSteps);
  }
  friend Range operator/(const Range& x, const Range& y) {
    if (x.isEmpty() || y.isEmpty()) return onlyNan();
    const bool may_spoil = x.hasInfinity() && y.hasInfinity();
    const bool nan = x.may_be_nan || y.may_be_nan || may_spoil || (x.hasZero() && y.hasZero());
    if (y.hasZero() || may_spoil) return {-kInf, kInf, nan};
    return hull({x.low / y.low, x.low / y.high, x.high / y.low, x.high / y.high}, nan, kOperationSteps);
  }
  friend Range fma(const Range& x, const Range& y, const Range& z) { return x * y + z; }

  friend Range abs(const Range& x) {
    if (x.isEmpty() || x.low >= 0) return x;
    return x.high <= 0 ? -x : Range(0, std::max(-x.low, x.high), x.may_be_nan);
  }
  friend Range copysign(const Range& x, const Range& y) {
    const Range size = abs(x);
    if (size.isEmpty() || (!y.may_be_nan && y.low > 0)) return size;
    return !y.may_be_nan && y.high < 0 ? -size : Range(-size.high, size.high, size.may_be_nan);
  }
  friend Range minimum(const Range& x, const Range& y) {
    if (x.isEmpty() || y.isEmpty()) return onlyNan();
    return {std::min(x.low, y.low), std::min(x.high, y.high), x.may_be_nan || y.may_be_nan};
  }
  friend Range maximum(const Range& x, const Range& y) { return -minimum(-x, -y); }

  friend Mask lt(const Range& x, const Range& y) { return compared(x, y, x.low < y.high, x.high < y.low); }
  friend Mask le(const Range& x, const Range& y) { return compared(x, y, x.low <= y.high, x.high <= y.low); }
  friend Mask eq(const Range& x, const Range& y) {
    return compared(x, y, x.low <= y.high && y.low <= x.high, x.low == y.high && x.high == y.low);
  }
  friend Range select(const Mask& mask, const Range& x, const Range& y) {
    if (!mask.may_be_false) return x;
    if (!mask.may_be_true) return y;
    return {std::min(x.low, y.low), std::max(x.high, y.high), x.may_be_nan || y.may_be_nan};
  }

  friend Range floor(const Range& x) { return step(x, std::floor); }
  friend Range ceil(const Range& x) { return step(x, std::ceil); }
  friend Range rint(const Range& x) { return step(x, std::rint); }

  friend Range sin(const Range& x) {
    return wave(x, [](double v) { return real::sin(v); }, std::numbers::pi / 2);
  }
  friend Range cos(const Range& x) {
    return wave(x, [](double v) { return real::cos(v); }, 0);
  }
  friend Range tan(const Range& x) {
    if (x.isEmpty()) return onlyNan();
    if (!x.isTame() || x.hasPoint(std::numbers::pi / 2, std::numbers::pi)) {
      return {-kInf, kInf, x.may_be_nan || x.hasInfinity()};
    }
    return hull({real::tan(x.low), real::tan(x.high)}, x.may_be_nan, kFunctionSteps);
  }
  friend Range cosh(const Range& x) {
    return monotone(Function::k_cosh, [](double v) { return real::cosh(v); }, abs(x));
  }
  friend Range pow(const Range& x, const Range& y) {
    if (x.isEmpty() || y.isEmpty()) {
      const bool may_be_one = x.isEmpty() ? y.hasZero() : x.low <= 1 && x.high >= 1;
      return may_be_one ? Range(1, 1, true) : onlyNan();
    }
    Range result = onlyNan();
    result.may_be_nan = x.may_be_nan || y.may_be_nan;
    if (x.high >= 0) {
      result.include(powerOf(std::fabs(std::max(x.low, 0.0)), std::fabs(x.high), y));
      // A zero of either sign to an odd power.
      const bool may_be_odd = y.low < y.high || std::fabs(std::fmod(y.low, 2)) == 1;
      if (x.low <= 0 && y.low < 0 && may_be_odd) result.low = -kInf;
    }
    if (x.low >= 0) return result;
    const Range sizes = powerOf(std::fabs(std::max(-x.high, 0.0)), -x.low, y);
    if (y.low == y.high && std::rint(y.low) == y.low) {
      result.include(std::fabs(std::fmod(y.low, 2)) == 1 ? -sizes : sizes);
      return result;
    }
    result.may_be_nan = true;
    if (std::ceil(y.low) <= y.high || x.low == -kInf) result.include({-sizes.high, sizes.high, true});
    return result;
  }
  friend Range atan2(const Range& x, const Range& y) {
    if (x.isEmpty() || y.isEmpty()) return onlyNan();
    const bool nan = x.may_be_nan || y.may_be_nan;
    // Around the origin, or across the cut, it is any angle. Elsewhere a rectangle's extreme angles are at its corners.
    if (y.low <= 0 && x.hasZero()) return hull({-std::numbers::pi, std::numbers::pi}, nan, kFunctionSteps);
    return hull({real::atan2(x.low, y.low), real::atan2(x.low, y.high), real::atan2(x.high, y.low),
                 real::atan2(x.high, y.high)},
                nan, kFunctionSteps);
  }
  friend Range mod(const Range& x, const Range& y) {
    if (x.isEmpty() || y.isEmpty() || (y.low == 0 && y.high == 0)) return onlyNan();
    const bool nan = x.may_be_nan || y.may_be_nan || y.hasZero() || x.hasInfinity();
    if (x.low >= 0 && x.high < y.low) return {x.low, x.high, nan};
    return {std::min(y.low, 0.0), std::max(y.high, 0.0), nan};
  }

  /// A function that is monotone in its domain.
  template <class F>
  static Range monotone(Function function, F f, const Range& x) {
    if (x.isEmpty()) return onlyNan();
    const auto [least, most] = domainOf(function);
    const bool nan = x.may_be_nan || x.low < least || x.high > most;
    if (x.high < least || x.low > most) return onlyNan();
    return hull({f(std::max(x.low, least)), f(std::min(x.high, most))}, nan, kFunctionSteps);
  }

 private:
  static Range onlyNan() { return {kInf, -kInf, true}; }
  bool isEmpty() const { return low > high; }
  bool hasZero() const { return low <= 0 && high >= 0; }
  bool hasInfinity() const { return std::isinf(low) || std::isinf(high); }
  /// Whether multiples of pi can be told apart there.
  bool isTame() const { return std::max(-low, high) < 1e8; }

  void include(const Range& other) {
    low = std::min(low, other.low);
    high = std::max(high, other.high);
  }

  static Range outwards(double low, double high, bool nan, int steps) {
    if (std::isnan(low)) low = -kInf;
    if (std::isnan(high)) high = kInf;
    // A result of 0 is exact, or has the sign of the exact one, so that the square of a zero is not below 0.
    for (int i = 0; i < steps; ++i) {
      if (low != 0) low = std::nextafter(low, -kInf);
      if (high != 0) high = std::nextafter(high, kInf);
    }
    return {low, high, nan};
  }
  /// Around values of which none is NaN.
  static Range hull(std::initializer_list<double> values, bool nan, int steps) {
    const auto [low, high] = std::minmax(values);
    return outwards(low, high, nan, steps);
  }
  static Mask compared(const Range& x, const Range& y, bool may_be_true, bool must_be_true) {
    const bool is_open = x.may_be_nan || y.may_be_nan;
    return {may_be_true && !x.isEmpty() && !y.isEmpty(), is_open || !must_be_true};
  }
  static Range step(const Range& x, double (*f)(double)) {
    return x.isEmpty() ? x : Range(f(x.low), f(x.high), x.may_be_nan);
  }

  /// Whether offset + k period may be within, for a whole k.
  bool hasPoint(double offset, double period) const {
    const double slack = 1e-7;
    return offset + std::ceil((low - slack - offset) / period) * period <= high + slack;
  }
  /// sin or cos, whose maxima are at `top` and whole turns from there.
  template <class F>
  static Range wave(const Range& x, F f, double top) {
    if (x.isEmpty()) return onlyNan();
    if (!x.isTame()) return {-1, 1, x.may_be_nan || x.hasInfinity()};
    constexpr double kTurn = 2 * std::numbers::pi;
    Range r = hull({f(x.low), f(x.high)}, x.may_be_nan, kFunctionSteps);
    r.low = x.hasPoint(top - kTurn / 2, kTurn) ? -1 : std::max(r.low, -1.0);
    r.high = x.hasPoint(top, kTurn) ? 1 : std::min(r.high, 1.0);
    return r;
  }
  /// Bases that are not negative. The power is monotone in either operand, so its extremes are at corners.
  static Range powerOf(double low, double high, const Range& y) {
    return hull({real::pow(low, y.low), real::pow(low, y.high), real::pow(high, y.low), real::pow(high, y.high)}, false,
                kFunctionSteps);
  }

  static std::array<double, 2> domainOf(Function function) {
    switch (function) {
      case Function::k_sqrt:
      case Function::k_log:
      case Function::k_log2:
      case Function::k_log10:
        return {0, kInf};
      case Function::k_log1p:
        return {-1, kInf};
      case Function::k_asin:
      case Function::k_acos:
      case Function::k_atanh:
        return {-1, 1};
      case Function::k_acosh:
        return {1, kInf};
      default:
        return {-kInf, kInf};
    }
  }
};

// All other functions of one operand are monotone. Hidden friends of Range are better matches than these templates.
#define SRJIT_ARITY_1(id)                                                              \
  template <std::same_as<Range> T>                                                     \
  [[maybe_unused]] T id(const T& x) {                                                  \
    return Range::monotone(Function::k_##id, [](double v) { return real::id(v); }, x); \
  }
#define SRJIT_ARITY_2(id)
#define SRJIT_ARITY_3(id)
#define SRJIT_FUNCTION(id, arity, ...) SRJIT_ARITY_##arity(id)
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_ARITY_1
#undef SRJIT_ARITY_2
#undef SRJIT_ARITY_3

}  // namespace

Interval intervalOf(Op op, std::span<const Interval> operands) {
  std::array<Range, kMaxArity> of;
  std::ranges::transform(operands, of.begin(), [](const Interval& x) { return Range(x.low, x.high, x.may_be_nan); });
  const Range value = applyRow<Range>(op, of[0], of[1], of[2]);
  return {value.low, value.high, value.may_be_nan};
}

Interval evaluateInterval(const Expression& expression, std::span<const Interval> variables,
                          std::span<const double> parameters) {
  const auto leaf = [&](const Token& token) {
    if (token.kind == Token::Kind::kConstant) return Range(token.value);
    if (token.kind == Token::Kind::kParameter) return Range(parameters[token.index]);
    const Interval& variable = variables[token.index];
    return Range(variable.low, variable.high, variable.may_be_nan);
  };
  const auto row = [](Op op, std::span<const Range> operands) {
    const Range none;
    return applyRow<Range>(op, operands[0], operands.size() > 1 ? operands[1] : none,
                           operands.size() > 2 ? operands[2] : none);
  };
  const Range value = foldPostfix<Range>(expression.tokens(), leaf, row);
  return {value.low, value.high, value.may_be_nan};
}

Interval evaluateIntervalSlope(const Expression& expression, std::span<const Interval> variables,
                               std::uint32_t variable) {
  const auto leaf = [&](const Token& token) {
    if (token.kind != Token::Kind::kVariable) return Slope<Range>{.value = Range(token.value)};
    const Interval& of = variables[token.index];
    const bool varies = token.index == variable;
    return Slope<Range>{Range(of.low, of.high, of.may_be_nan), Range(varies ? 1 : 0), varies};
  };
  const auto row = [](Op op, std::span<const Slope<Range>> operands) {
    Slope<Range> result = slopeOf<Range>(op, operands);
    // The row divides by the root, which may be 0.
    if (op == Op::kSqrt && operands[0].slope.low >= 0) result.slope.low = std::max(result.slope.low, 0.0);
    if (op == Op::kSqrt && operands[0].slope.high <= 0) result.slope.high = std::min(result.slope.high, 0.0);
    const auto isOpen = [](const Slope<Range>& of) { return of.slope.low == -kInf && of.slope.high == kInf; };
    // The row of a power has no slope by the exponent where the base is not positive.
    const bool may_jump = !std::isfinite(result.value.low) || !std::isfinite(result.value.high) ||
                          infoOf(op).has(OpProps::kSteps) || std::ranges::any_of(operands, isOpen) ||
                          (op == Op::kPow && operands[1].varies && !(operands[0].value.low > 0));
    if (result.varies && may_jump) result.slope = Range(-kInf, kInf, true);
    return result;
  };
  const Range slope = foldPostfix<Slope<Range>>(expression.tokens(), leaf, row).slope;
  return {slope.low, slope.high, slope.may_be_nan};
}

}  // namespace srjit

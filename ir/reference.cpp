#include "ir/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ir/numbers/fast_forms.h"
#include "ir/ops.h"
#include "ir/real.h"
#include "ir/rows.h"

namespace srjit {
namespace {

/// The effect of a precision and mode on numbers.
template <Arithmetic kArithmetic>
struct Rounding {
  using Number = NumberTypeOf<kArithmetic.precision>;
  using Limits = std::numeric_limits<Number>;
  static constexpr bool kFast = isApproximate(kArithmetic.math, kArithmetic.precision);
  static constexpr double kHalfUlp = Limits::epsilon() / 2;  ///< of 1, and relative for all
  static constexpr double kLargest = Limits::max();
  static constexpr double kSmallestNormal = Limits::min();
  static constexpr double kSmallest = Limits::denorm_min();

  static double round(double value) { return static_cast<double>(static_cast<Number>(value)); }
};

/// An interval [value - error, value + error] in which the kernel's number lies, where `value` is the reference's. With
/// an infinite error no bound holds; with a finite one, `value` may be infinite or NaN, and the kernel's is the same.
template <Arithmetic kArithmetic>
class RunningError {
  using R = Rounding<kArithmetic>;

 public:
  /// The result of a comparison: the reference's answer, and whether the kernel's is the same for sure.
  struct Mask {
    bool reference;
    bool certain;
  };

  RunningError() = default;

  /// A number given to the kernel, which rounds it.
  explicit RunningError(double number) : value(number), error(0) {
    if (!std::isfinite(number)) {
      *this = certain(number);
      return;
    }
    const double rounded_number = R::round(number);
    error = std::isinf(rounded_number) ? kInfinity : std::fabs(number - rounded_number);
  }
  RunningError(double number, double bound) : value(number), error(bound) {}

  double value = 0;
  double error = 0;

  friend RunningError operator-(const RunningError& x) { return {-x.value, x.flushed().error}; }
  friend RunningError operator+(const RunningError& a, const RunningError& b) {
    const RunningError x = a.flushed(), y = b.flushed();
    const double r = x.value + y.value;
    if (x.isLost() || y.isLost()) return lost(r);
    if (!x.isFinite() || !y.isFinite()) return certain(r);
    const double back = r - x.value;  // D. Knuth, TAOCP 4.2.2: what the sum lost
    const bool exact = (x.value - (r - back)) + (y.value - back) == 0;
    return rounded(r, x.error + y.error, exact);
  }
  friend RunningError operator-(const RunningError& x, const RunningError& y) { return x + -y; }
  friend RunningError operator*(const RunningError& a, const RunningError& b) {
    const RunningError x = a.flushed(), y = b.flushed();
    const double r = x.value * y.value;
    if (x.isLost() || y.isLost()) return lost(r);
    if (!x.isFinite() || !y.isFinite()) return x.maySpoil(y) ? lost(r) : certain(r);
    const bool zero = (x.isZero() && !y.mayChangeSign()) || (y.isZero() && !x.mayChangeSign());
    const bool exact = zero || (std::fma(x.value, y.value, -r) == 0 && std::fabs(r) > kTinyResidual);
    return rounded(r, productSpread(x, y), exact);
  }
  friend RunningError operator/(const RunningError& a, const RunningError& b) {
    const RunningError x = a.flushed(), y = b.flushed();
    const double r = x.value / y.value;
    if (x.isLost() || y.isLost()) return lost(r);
    if (y.mayChangeSign()) return std::isnan(x.value) ? certain(r) : lost(r);
    if (y.value == 0) return x.mayChangeSign() ? lost(r) : certain(r);
    if (!x.isFinite() || !y.isFinite()) return r == 0 && x.mayChangeSign() ? RunningError{r, R::kSmallest} : certain(r);
    const double spread = (x.error + std::fabs(r) * y.error) / (std::fabs(y.value) - y.error);
    if (!R::kFast) {
      const bool exact = std::fma(r, y.value, -x.value) == 0 && std::fabs(x.value) > kTinyResidual;
      return rounded(r, spread, exact);
    }
    // div.approx is within 2 ulp, but gives 0 above 2^126.
    const double magnitude = std::fabs(r) + spread;
    const bool vanishes = std::fabs(y.value) + y.error > 0x1p126;
    return finished(r, spread, (4 * R::kHalfUlp + (vanishes ? 1 : 0)) * magnitude, false);
  }
  friend RunningError fma(const RunningError& a, const RunningError& b, const RunningError& c) {
    const RunningError x = a.flushed(), y = b.flushed(), z = c.flushed();
    const double r = std::fma(x.value, y.value, z.value);
    if (x.isLost() || y.isLost() || z.isLost()) return lost(r);
    if (!x.isFinite() || !y.isFinite()) return x.maySpoil(y) && !std::isnan(z.value) ? lost(r) : certain(r);
    if (!z.isFinite()) return certain(r);
    return rounded(r, productSpread(x, y) + z.error, false);
  }

  friend RunningError abs(const RunningError& x) { return {std::fabs(x.value), x.flushed().error}; }

  friend RunningError copysign(const RunningError& x, const RunningError& y) {
    const double r = std::copysign(x.value, y.value);
    const bool sure = y.error == 0 ? !std::isnan(y.value) && !(R::kFast && y.value == 0) : std::fabs(y.value) > y.error;
    return {r, sure ? x.error : 2 * std::fabs(r) + x.error};
  }

  friend RunningError minimum(const RunningError& a, const RunningError& b) {
    const RunningError x = a.flushed(), y = b.flushed();
    const double r = real::minimum(x.value, y.value);
    if (std::isnan(r)) return x.isNan() || y.isNan() ? certain(r) : lost(r);
    if (x.isLost() || y.isLost()) return lost(r);
    return {r, hull(r, std::min(x.low(), y.low()), std::min(x.high(), y.high()))};
  }
  friend RunningError maximum(const RunningError& x, const RunningError& y) { return -minimum(-x, -y); }

  friend Mask lt(const RunningError& x, const RunningError& y) {
    if (x.isNan() || y.isNan()) return {false, true};
    return {x.value < y.value, bothKept(x, y) && (x.high() < y.low() || x.low() >= y.high())};
  }
  friend Mask le(const RunningError& x, const RunningError& y) {
    if (x.isNan() || y.isNan()) return {false, true};
    return {x.value <= y.value, bothKept(x, y) && (x.high() <= y.low() || x.low() > y.high())};
  }
  friend Mask eq(const RunningError& x, const RunningError& y) {
    if (x.isNan() || y.isNan()) return {false, true};
    const bool same = x.error == 0 && y.error == 0 && x.value == y.value;
    return {x.value == y.value, bothKept(x, y) && (same || x.high() < y.low() || x.low() > y.high())};
  }
  friend RunningError select(const Mask& mask, const RunningError& x, const RunningError& y) {
    const RunningError& taken = mask.reference ? x : y;
    const RunningError& other = mask.reference ? y : x;
    if (mask.certain) return taken;
    if (taken.isNan() && other.isNan()) return taken;
    if (taken.value == other.value) {
      const bool same_sign = std::signbit(taken.value) == std::signbit(other.value);
      return {taken.value, std::max({taken.error, other.error, same_sign ? 0 : R::kSmallest})};
    }
    const double reach = (std::fabs(taken.value - other.value) + other.error) * kSlack;
    return {taken.value, std::isnan(reach) ? kInfinity : std::max(taken.error, reach)};
  }

  friend RunningError floor(const RunningError& x) { return step(x, std::floor); }
  friend RunningError ceil(const RunningError& x) { return step(x, std::ceil); }
  friend RunningError rint(const RunningError& x) { return step(x, std::rint); }

  friend RunningError sin(const RunningError& x) { return wave(Function::k_sin, real::sin(x.value), x); }
  friend RunningError cos(const RunningError& x) { return wave(Function::k_cos, real::cos(x.value), x); }
  friend RunningError tan(const RunningError& operand) {
    const RunningError x = operand.flushed();
    const double r = real::tan(x.value);
    // The slope of cos is at most 1: no pole is nearer than |cos x|. The fast form divides sines, so its poles are
    // blurred.
    const double blur = R::kFast ? 0x1p-16 * (1 + std::fabs(x.value)) : 0;
    if (x.isFinite() && (x.error > 0 || R::kFast) && std::fabs(real::cos(x.value)) <= (x.error + blur) * kSlack) {
      return lost(r);
    }
    return monotone(Function::k_tan, [](double v) { return real::tan(v); }, operand);
  }
  friend RunningError pow(const RunningError& base, const RunningError& exponent) {
    const RunningError x = base.flushed(), y = exponent.flushed();
    const double r = real::pow(x.value, y.value);
    if (x.isLost() || y.isLost()) return lost(r);
    const bool exact = x.error == 0 && y.error == 0;
    if (!x.isFinite() || !y.isFinite() || x.isZero()) {
      // Special cases of ISO C F.10.4.4, which depend on signs, on 0 and on 1; a zero to an uncertain power among them.
      if (!exact) return lost(r);
      return std::isfinite(r) ? ofFunction(Function::k_pow, r, 0, x, y, r == 0) : certain(r);
    }
    const bool integer = y.error == 0 && std::rint(y.value) == y.value;
    if (x.low() <= 0 && !integer) {
      const bool no_integer = std::ceil(y.low()) > y.high();
      return x.high() < 0 && no_integer ? certain(r) : lost(r);
    }
    if (x.low() <= 0 && x.high() >= 0 && y.value < 0) return lost(r);
    // In either operand the power is monotone, so that its extremes are at corners, and at a base of 0.
    double spread = 0;
    for (const double a : {x.low(), x.high(), x.low() < 0 && x.high() > 0 ? 0.0 : x.high()}) {
      for (const double b : {y.low(), y.high()}) spread = std::max(spread, std::fabs(real::pow(a, b) - r));
    }
    if (!std::isfinite(spread) || !std::isfinite(r)) return lost(r);
    return ofFunction(Function::k_pow, r, spread, x, y, false);
  }
  friend RunningError atan2(const RunningError& ordinate, const RunningError& abscissa) {
    const RunningError x = ordinate.flushed(), y = abscissa.flushed();
    const double r = real::atan2(x.value, y.value);
    if (x.isLost() || y.isLost()) return lost(r);
    if (x.isNan() || y.isNan()) return certain(r);
    const bool exact = x.error == 0 && y.error == 0;
    if (!exact && (!x.isFinite() || !y.isFinite())) return lost(r);
    constexpr double kTurn = 6.283185307179587;
    double spread = 0;
    const bool may_cross = x.mayChangeSign() || (R::kFast && x.isZero()) || (x.isZero() && y.mayChangeSign());
    if (may_cross && y.low() <= 0) {
      spread = kTurn;  // around the origin, or across the cut
    } else if (!exact) {
      // Away from both, a rectangle's extreme angles are at its corners.
      for (const double a : {x.low(), x.high()}) {
        for (const double b : {y.low(), y.high()}) spread = std::max(spread, std::fabs(real::atan2(a, b) - r));
      }
    }
    return ofFunction(Function::k_atan2, r, spread, x, y, exact && r == 0 && x.isZero());
  }
  /// It jumps where the quotient is an integer, by |y|. Elsewhere it is x - q y with a constant q. A rest that is
  /// flushed to zero jumps, too.
  friend RunningError mod(const RunningError& dividend, const RunningError& divisor) {
    const RunningError x = dividend.flushed(), y = divisor.flushed();
    const double r = real::mod(x.value, y.value);
    if (x.isLost() || y.isLost()) return lost(r);
    if (x.isNan() || y.isNan() || y.isZero() || !x.isFinite()) return certain(r);
    if (y.mayChangeSign()) return lost(r);
    if (!y.isFinite()) {
      if (x.mayChangeSign()) return lost(r);
      return std::isfinite(r) ? ofFunction(Function::k_mod, r, x.error, x, y, x.isZero()) : certain(r);
    }
    const double largest = std::fabs(y.value) + y.error;
    const bool may_flush = R::kFast && largest < R::kSmallestNormal / R::kHalfUlp;
    const bool exact = x.error == 0 && y.error == 0 && !may_flush;
    if (exact) return ofFunction(Function::k_mod, r, 0, x, y, r == 0);
    const auto [low, high] =
        std::minmax({x.low() / y.low(), x.low() / y.high(), x.high() / y.low(), x.high() / y.high()});
    const double least = std::floor(low - std::fabs(low) * (kSlack - 1));
    const double most = std::floor(high + std::fabs(high) * (kSlack - 1));
    const double spread = least == most && !may_flush ? x.error + std::fabs(most) * y.error : largest;
    return ofFunction(Function::k_mod, r, std::min(spread, largest) * kSlack, x, y, false);
  }

  /// A function of one operand, taken for monotone between the ends of the operand's interval, or on either side of 0,
  /// which holds for all of the table but sin, cos and tan: so its values there bound what the operand's error does, to
  /// every order.
  template <class F>
  static RunningError monotone(Function function, F f, const RunningError& operand) {
    const RunningError x = operand.flushed();
    const double r = f(x.value);
    if (x.isLost()) return lost(r);
    if (x.isNan()) return certain(r);
    const double low = f(x.low()), high = f(x.high());
    const double middle = x.low() < 0 && x.high() > 0 ? f(0.0) : r;
    if (std::isnan(r)) return std::isnan(low) && std::isnan(high) && std::isnan(middle) ? certain(r) : lost(r);
    if (!x.isFinite()) return std::isfinite(r) ? ofFunction(function, r, 0, x, x, r == 0) : certain(r);
    if (std::isinf(r)) {
      // Beside a pole the function is moderate; where the result overflows, it is not.
      const bool pole = x.error == 0 && std::fabs(f(std::nextafter(x.value, 0.5))) < 1e6;
      return pole ? certain(r) : lost(r);
    }
    const double spread = std::max({std::fabs(low - r), std::fabs(high - r), std::fabs(middle - r)});
    if (std::isnan(low) || std::isnan(high) || std::isinf(spread)) return lost(r);
    return ofFunction(function, r, spread, x, x, r == 0 && x.isZero());
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // Above this, what a product or quotient lost is itself a double.
  static constexpr double kTinyResidual = 0x1p-900;
  // For the roundings of the computation of bounds itself.
  static constexpr double kSlack = 1 + 0x1p-40;

  static RunningError lost(double r) { return {r, kInfinity}; }

  /// The result of an operation whose exceptional value depends on no rounding. `fast` rewrites do not keep those.
  static RunningError certain(double r) { return {r, R::kFast && !std::isfinite(r) ? kInfinity : 0}; }

  bool isLost() const { return std::isinf(error) || std::isnan(error); }
  /// An operand without a bound may be NaN, which no infinite end of an interval tells.
  static bool bothKept(const RunningError& x, const RunningError& y) { return !x.isLost() && !y.isLost(); }
  bool isFinite() const { return std::isfinite(value); }
  bool isNan() const { return std::isnan(value) && error == 0; }
  bool isZero() const { return value == 0 && error == 0; }
  /// Whether the kernel's number may be a zero or of the other sign, without being a zero for sure.
  bool mayChangeSign() const { return error > 0 && std::fabs(value) <= error; }
  double low() const { return error == 0 ? value : std::nextafter(value - error, -kInfinity); }
  double high() const { return error == 0 ? value : std::nextafter(value + error, kInfinity); }

  /// Whether a product of two factors, one infinite, depends on whether the other is a zero. NaN decides it anyway.
  bool maySpoil(const RunningError& other) const {
    return !std::isnan(value) && !std::isnan(other.value) && (mayChangeSign() || other.mayChangeSign());
  }

  /// As an operand in a mode that takes subnormal numbers for zero.
  RunningError flushed() const {
    if (!R::kFast || value - error >= R::kSmallestNormal || value + error <= -R::kSmallestNormal) return *this;
    if (isZero() || std::isnan(value)) return *this;
    return {value, error + R::kSmallestNormal};
  }

  static double productSpread(const RunningError& x, const RunningError& y) {
    return std::fabs(x.value) * y.error + std::fabs(y.value) * x.error + x.error * y.error;
  }

  /// The largest distance of r from an end of [low, high].
  static double hull(double r, double low, double high) {
    const double below = r == low ? 0 : r - low, above = r == high ? 0 : high - r;
    return std::max(below, above) * kSlack;
  }

  /// A result of IEEE arithmetic; `exact` says that the operation on the reference's operands lost nothing.
  static RunningError rounded(double r, double spread, bool exact) {
    const bool same = exact && spread == 0 && !R::kFast && std::isfinite(r) && R::round(r) == r;
    if (same) return {r, 0};
    return finished(r, spread, R::kHalfUlp * (std::fabs(r) + spread), r == 0 && spread == 0 && exact);
  }

  /// Adds to the spread of the operands the rounding of the kernel and of the reference, and what lies below the
  /// smallest normal number unless the result is an `exact_zero`.
  static RunningError finished(double r, double spread, double rounding, bool exact_zero) {
    if (!std::isfinite(r) || exact_zero) return {r, std::isfinite(r) ? 0 : kInfinity};
    const double magnitude = std::fabs(r) + spread;
    // The reference rounds too: at most 2 ulp in any function, and as much where ends of intervals are
    // computed.
    double error = spread + rounding + 0x1p-51 * magnitude;
    if (std::fabs(r) - spread < 2 * R::kSmallestNormal) error += R::kFast ? R::kSmallestNormal : 4 * R::kSmallest;
    error *= kSlack;
    return magnitude + error <= R::kLargest ? RunningError{r, error} : lost(r);
  }

  /// A function whose value is exact and steps up at places.
  static RunningError step(const RunningError& operand, double (*f)(double)) {
    const RunningError x = operand.flushed();
    const double r = f(x.value);
    if (x.isLost()) return lost(r);
    if (!x.isFinite()) return certain(r);
    // A zero of unknown sign is no exact zero: its reciprocal is of unknown sign too.
    return {r, std::max(hull(r, f(x.low()), f(x.high())), r == 0 && x.mayChangeSign() ? R::kSmallest : 0)};
  }

  /// sin and cos: their slope is at most 1, and their values differ by at most 2.
  static RunningError wave(Function function, double r, const RunningError& operand) {
    const RunningError x = operand.flushed();
    if (x.isLost()) return lost(r);
    if (!x.isFinite()) return certain(r);
    return ofFunction(function, r, std::min(x.error, 2.0), x, x, r == 0 && x.isZero());
  }

  /// The rounding of a function, from its row in functions.def.
  static double functionRounding(Function function, const RunningError& x, const RunningError& y, double magnitude) {
    if (R::kFast) {
      // The columns grow with the magnitudes of their operands, except pow's with the logarithm of its base.
      const double largest_y = std::fabs(y.value) + y.error;
      const double at_low = fastErrorOf(function, x.low(), largest_y, magnitude);
      const double at_high = fastErrorOf(function, x.high(), largest_y, magnitude);
      if (at_low != kNoFast) return std::isnan(at_low) || std::isnan(at_high) ? kInfinity : std::max(at_low, at_high);
    }
    const double ulps = ulpsOf(infoOf(function), kArithmetic.precision);
    return ulps * 2 * R::kHalfUlp * magnitude;
  }
  /// A function's result with its rounding; one that is a zero at exact operands, `exact_zero`, is a zero in the
  /// kernel.
  static RunningError ofFunction(Function function, double r, double spread, const RunningError& x,
                                 const RunningError& y, bool exact_zero) {
    const double rounding = functionRounding(function, x, y, std::fabs(r) + spread);
    return finished(r, spread, rounding, exact_zero && !R::kFast);
  }
};

// All other functions of one operand. Hidden friends of RunningError are better matches than these templates.
#define SRJIT_ARITY_1(id)                                                                                  \
  template <Arithmetic kArithmetic>                                                                        \
  RunningError<kArithmetic> id(const RunningError<kArithmetic>& x) {                                       \
    return RunningError<kArithmetic>::monotone(Function::k_##id, [](double v) { return real::id(v); }, x); \
  }
#define SRJIT_ARITY_2(id)
#define SRJIT_ARITY_3(id)
#define SRJIT_FUNCTION(id, arity, ...) SRJIT_ARITY_##arity(id)
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_ARITY_1
#undef SRJIT_ARITY_2
#undef SRJIT_ARITY_3

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

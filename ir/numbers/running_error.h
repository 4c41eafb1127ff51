// The domain of values with running error bounds: rows of ops.def computed in it give a kernel's result and how far
// from it the kernel may be. See reference.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/ops.h"
#include "ir/real.h"
#include "ir/reference.h"

namespace srjit {

/// The effect of a precision and mode on numbers.
template <Arithmetic kArithmetic>
struct Rounding {
  using Number = typename NumberTypeOf<kArithmetic.precision>::Type;
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
  friend RunningError operator+(const RunningError& a, const RunningError& b) { return sum(a, b); }
  friend RunningError operator-(const RunningError& x, const RunningError& y) { return x + -y; }

  friend RunningError operator*(const RunningError& a, const RunningError& b) { return product(a, b); }
  friend RunningError operator/(const RunningError& a, const RunningError& b) { return quotient(a, b); }
  friend RunningError fma(const RunningError& a, const RunningError& b, const RunningError& c) {
    return fused(a, b, c);
  }

  friend RunningError abs(const RunningError& x) { return {std::fabs(x.value), x.flushed().error}; }

  friend RunningError copysign(const RunningError& x, const RunningError& y) {
    const double r = std::copysign(x.value, y.value);
    const bool sure = y.error == 0 ? !std::isnan(y.value) && !(R::kFast && y.value == 0) : std::fabs(y.value) > y.error;
    return {r, sure ? x.error : 2 * std::fabs(r) + x.error};
  }

  friend RunningError minimum(const RunningError& a, const RunningError& b) { return smaller(a, b); }
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
    return choice(mask, x, y);
  }

  friend RunningError floor(const RunningError& x) { return step(x, std::floor); }
  friend RunningError ceil(const RunningError& x) { return step(x, std::ceil); }
  friend RunningError rint(const RunningError& x) { return step(x, std::rint); }

  // All other functions of functions.def are in running_functions.h.
  friend RunningError sin(const RunningError& x) { return wave(Function::k_sin, real::sin(x.value), x); }
  friend RunningError cos(const RunningError& x) { return wave(Function::k_cos, real::cos(x.value), x); }
  friend RunningError tan(const RunningError& x) { return tangent(x); }
  friend RunningError pow(const RunningError& x, const RunningError& y) { return power(x, y); }
  friend RunningError atan2(const RunningError& x, const RunningError& y) { return angle(x, y); }
  friend RunningError mod(const RunningError& x, const RunningError& y) { return remainder(x, y); }

  template <class F>
  static RunningError monotone(Function function, F f, const RunningError& operand);

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
    const double below = r == low ? 0 : r - low;
    const double above = r == high ? 0 : high - r;
    return std::max(below, above) * kSlack;
  }

  /// A result of IEEE arithmetic; `exact` says that the operation on the reference's operands lost nothing.
  static RunningError rounded(double r, double spread, bool exact);

  /// Adds to the spread of the operands the rounding of the kernel and of the reference, and what lies below the
  /// smallest normal number unless the result is an `exact_zero`.
  static RunningError finished(double r, double spread, double rounding, bool exact_zero);

  /// A function whose value is exact and steps up at places.
  static RunningError step(const RunningError& operand, double (*f)(double)) {
    const RunningError x = operand.flushed();
    const double r = f(x.value);
    if (x.isLost()) return lost(r);
    if (!x.isFinite()) return certain(r);
    // A zero of unknown sign is no exact zero: its reciprocal is of unknown sign too.
    return {r, std::max(hull(r, f(x.low()), f(x.high())), r == 0 && x.mayChangeSign() ? R::kSmallest : 0)};
  }

  // Defined in running_arithmetic.h.
  static RunningError sum(const RunningError& a, const RunningError& b);
  static RunningError product(const RunningError& a, const RunningError& b);
  static RunningError quotient(const RunningError& a, const RunningError& b);
  static RunningError fused(const RunningError& a, const RunningError& b, const RunningError& c);
  static RunningError smaller(const RunningError& a, const RunningError& b);
  static RunningError choice(const Mask& mask, const RunningError& x, const RunningError& y);

  // Defined in running_functions.h.
  static RunningError wave(Function function, double r, const RunningError& operand);
  static RunningError tangent(const RunningError& operand);
  static RunningError power(const RunningError& base, const RunningError& exponent);
  static RunningError angle(const RunningError& ordinate, const RunningError& abscissa);
  static RunningError remainder(const RunningError& dividend, const RunningError& divisor);

  /// The rounding of a function, from its row in functions.def.
  static double functionRounding(Function function, const RunningError& x, const RunningError& y, double magnitude);
  /// A function's result with its rounding; one that is a zero at exact operands, `exact_zero`, is a zero in the
  /// kernel.
  static RunningError ofFunction(Function function, double r, double spread, const RunningError& x,
                                 const RunningError& y, bool exact_zero) {
    const double rounding = functionRounding(function, x, y, std::fabs(r) + spread);
    return finished(r, spread, rounding, exact_zero && !R::kFast);
  }
};

}  // namespace srjit

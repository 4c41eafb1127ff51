#include "tools/accuracy/reference.h"

#include <mpfr.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace srjit {
namespace {

constexpr Op kReferenceOps[] = {
#define SRJIT_REFERENCE(op, ...) Op::k##op,
#include "tools/accuracy/references.def"
#undef SRJIT_REFERENCE
};

constexpr double kInfiniteError = std::numeric_limits<double>::infinity();
constexpr double kMostError = std::numeric_limits<double>::max();  ///< of a result of the right kind

/// The precision that true values are scanned in.
template <class T>
struct WiderThan;
template <>
struct WiderThan<float> {
  using Type = double;
};
template <>
struct WiderThan<double> {
  using Type = long double;
  static_assert(std::numeric_limits<long double>::digits == 64, "f64 is scanned in the x87's extended precision");
};

/// The exponent of ulp(value), for a finite value of any magnitude.
template <class T>
int exponentOfUlp(int exponent_of_value) {
  return std::max(exponent_of_value, std::numeric_limits<T>::min_exponent - 1) - (std::numeric_limits<T>::digits - 1);
}

/// The error in ulp of T of `got`, where the true value is `wanted`, or rounds to it. A power of two counts to the
/// numbers below it, where ulp is half of that above: the true value may be there.
template <class T, class W>
double errorOf(T got, W wanted) {
  constexpr int kBeyond = std::numeric_limits<T>::max_exponent;  // 2^kBeyond is the first power above all numbers
  if (std::isnan(got) || std::isnan(wanted)) return std::isnan(got) == std::isnan(wanted) ? 0 : kInfiniteError;
  if (got == 0 && wanted == 0) return std::signbit(got) == std::signbit(wanted) ? 0 : kInfiniteError;
  const W beyond = std::ldexp(W(1), kBeyond);
  const W a = std::clamp(static_cast<W>(got), -beyond, beyond), b = std::clamp(wanted, -beyond, beyond);
  const int exponent = b == 0 ? std::numeric_limits<T>::min_exponent - 1 : std::ilogb(std::nextafter(b, W(0)));
  const W error = std::ldexp(std::fabs(a - b), -exponentOfUlp<T>(exponent));
  return static_cast<double>(std::min<W>(error, kMostError));
}

/// A number of MPFR.
class Number {
 public:
  Number() { mpfr_init2(value_, kBits); }
  explicit Number(double value) : Number() { mpfr_set_d(value_, value, MPFR_RNDN); }
  ~Number() { mpfr_clear(value_); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  mpfr_ptr get() { return value_; }

 private:
  static constexpr mpfr_prec_t kBits = 256;
  mpfr_t value_;
};

void evaluateExactly(Op op, Number& result, Number& x, [[maybe_unused]] Number& y) {
  switch (op) {
#define SRJIT_REFERENCE(op, arity, near, exact) \
  case Op::k##op:                               \
    SRJIT_EXACT_##arity(exact);                 \
    return;
#define SRJIT_EXACT_1(exact) exact(result.get(), x.get(), MPFR_RNDN)
#define SRJIT_EXACT_2(exact) exact(result.get(), x.get(), y.get(), MPFR_RNDN)
#include "tools/accuracy/references.def"
#undef SRJIT_REFERENCE
#undef SRJIT_EXACT_1
#undef SRJIT_EXACT_2
    default:
      __builtin_unreachable();
  }
}

}  // namespace

std::span<const Op> referenceOps() noexcept { return kReferenceOps; }

template <class T>
double exactError(Op op, const Sample<T>& sample) {
  Number x(static_cast<double>(sample.x)), y(static_cast<double>(sample.y)), wanted;
  evaluateExactly(op, wanted, x, y);
  constexpr int kBeyond = std::numeric_limits<T>::max_exponent;
  if (!mpfr_regular_p(wanted.get()) || mpfr_get_exp(wanted.get()) > kBeyond) {
    return errorOf(sample.got, static_cast<typename WiderThan<T>::Type>(mpfr_get_d(wanted.get(), MPFR_RNDN)));
  }
  if (std::isnan(sample.got)) return kInfiniteError;
  // mpfr_get_exp() is one more than the exponent of a significand in [1, 2).
  const int exponent = exponentOfUlp<T>(static_cast<int>(mpfr_get_exp(wanted.get())) - 1);
  Number got(std::isinf(sample.got) ? std::copysign(1.0, static_cast<double>(sample.got))
                                    : static_cast<double>(sample.got));
  if (std::isinf(sample.got)) mpfr_mul_2si(got.get(), got.get(), kBeyond, MPFR_RNDN);
  Number error;
  mpfr_sub(error.get(), got.get(), wanted.get(), MPFR_RNDN);
  mpfr_mul_2si(error.get(), error.get(), -exponent, MPFR_RNDN);
  return std::min(std::fabs(mpfr_get_d(error.get(), MPFR_RNDN)), kMostError);
}

namespace {

template <class T, class Near>
void scan(Op op, std::span<const T> xs, std::span<const T> ys, std::span<const T> got, Worst<T>& worst,
          const Near& near) {
  using W = typename WiderThan<T>::Type;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const Sample<T> sample{xs[i], ys.empty() ? T(0) : ys[i], got[i]};
    const double scanned = errorOf(sample.got, near(static_cast<W>(sample.x), static_cast<W>(sample.y)));
    if (scanned <= worst.error && !std::isinf(scanned)) continue;
    const double error = exactError(op, sample);
    if (std::isinf(error)) ++worst.wrong;
    if (error > worst.error) {
      worst.error = error;
      worst.sample = sample;
    }
  }
}

}  // namespace

template <class T>
void updateWorst(Op op, std::span<const T> xs, std::span<const T> ys, std::span<const T> got, Worst<T>& worst) {
  switch (op) {
#define SRJIT_REFERENCE(op_, arity, near, exact) \
  case Op::k##op_:                               \
    return scan<T>(op, xs, ys, got, worst, [](auto x, [[maybe_unused]] auto y) { return near; });
#include "tools/accuracy/references.def"
#undef SRJIT_REFERENCE
    default:
      __builtin_unreachable();
  }
}

template double exactError(Op, const Sample<float>&);
template double exactError(Op, const Sample<double>&);
template void updateWorst(Op, std::span<const float>, std::span<const float>, std::span<const float>, Worst<float>&);
template void updateWorst(Op, std::span<const double>, std::span<const double>, std::span<const double>,
                          Worst<double>&);

}  // namespace srjit

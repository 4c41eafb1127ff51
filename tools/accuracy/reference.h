// True values of functions, and errors in units in the last place.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "ir/numbers/random.h"
#include "ir/ops.h"

namespace srjit {

/// The operators of references.def, in order.
std::span<const Op> referenceOps() noexcept;

/// A random argument: a quarter has random bits, the others magnitudes from 2^-12 to 2^10, where most functions are
/// neither constant nor infinite.
template <class T>
T randomArgument(Random& random) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(std::uint32_t), std::uint32_t, std::uint64_t>;
  if (random.chance(0.25)) return std::bit_cast<T>(static_cast<Bits>(random.next()));
  return static_cast<T>(random.magnitude(-12, 9));
}

/// Arguments of a function and a result of it, in the precision T; `y` is 0 for a function of one operand.
template <class T>
struct Sample {
  T x = 0, y = 0, got = 0;
};

/// The error of a result in ulp, the distance of the numbers of T around the true value (J.-M. Muller, "On the
/// definition of ulp(x)", INRIA RR-5504, 2005: Goldberg's definition, subnormal numbers included). An infinite result
/// counts as the power of two after the largest number, and so does a true value that is larger. Infinite if one of the
/// result and the true value is NaN and the other is not, or if both are zeros of different sign.
template <class T>
double exactError(Op op, const Sample<T>& sample);

/// What a scan of results found.
template <class T>
struct Worst {
  double error = -1;  ///< exactError() of the sample. A result that was passed over is at most 2^-9 ulp worse
  Sample<T> sample = {};
  std::size_t wrong = 0;  ///< results whose error is infinite
};

/// Makes `worst` that of itself and of the results got[i] for xs[i] and ys[i]; `ys` is empty for a function of one
/// operand. Results are compared in a wider precision first, so the more was seen before, the quicker a scan is.
/// Several threads may call it, each with a `worst` of its own.
template <class T>
void updateWorst(Op op, std::span<const T> xs, std::span<const T> ys, std::span<const T> got, Worst<T>& worst);

/// The worse of two; counts are added.
template <class T>
Worst<T> worse(const Worst<T>& a, const Worst<T>& b) {
  Worst<T> result = a.error < b.error ? b : a;
  result.wrong = a.wrong + b.wrong;
  return result;
}

}  // namespace srjit

// The short forms of elementary functions that f32 `fast` uses: their bounds, and the numbers in them that every target
// must share to the bit.
#pragma once

#include <cmath>

#include "ir/ops.h"

namespace srjit {

/// The unit roundoff of f32, as functions.def calls it: half a unit in the last place of 1.
inline constexpr double kUlp = 0x1p-24;
/// In functions.def: the function has no short form, and `fast` uses the precise one.
inline constexpr double kNoFast = -1;

/// The last column of functions.def, for operands x and y and the result r: the bound of the absolute error of the
/// function's short form, or kNoFast. Functions of one operand ignore y.
inline double fastErrorOf(Function function, double x, [[maybe_unused]] double y, double r) {
  switch (function) {
#define SRJIT_FUNCTION(id, arity, code, ulp_f32, ulp_f64, fast_error) \
  case Function::k_##id:                                              \
    return fast_error;
#include "ir/functions.def"
#undef SRJIT_FUNCTION
  }
  __builtin_unreachable();
}

/// exp x = 2^(x log2 e), ln x = ln 2 log2 x, log10 x = log10 2 log2 x: OEIS A007525, A002162 and A007524, to 18 digits.
/// Kernels round them to f32.
inline constexpr double kLog2OfE = 1.442695040888963407;
inline constexpr double kLn2 = 0.693147180559945309;
inline constexpr double kLog10Of2 = 0.301029995663981195;
/// 2^23, from which on every float is an integer (IEEE 754, binary32): adding it to a smaller number rounds that to an
/// integer.
inline constexpr double kFirstWhole = 8388608;

}  // namespace srjit

// Compiled with -ffast-math, without which GCC does not call libmvec. So this source includes nothing whose inline
// functions other sources use, too: the linker could choose its copies of them.
#include "tools/bench/scenarios/libmvec.h"

#include <cmath>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SRJIT_FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SRJIT_FOR_EACH_PROCESSOR
#endif

namespace srjit {
namespace {

#define SRJIT_LIBRARY_LOOP(name, code, type)                                                                     \
  SRJIT_FOR_EACH_PROCESSOR void name(const type* __restrict xs, const type* __restrict ys, type* __restrict out, \
                                     std::size_t count) {                                                        \
    _Pragma("omp simd") for (std::size_t i = 0; i < count; ++i) {                                                \
      [[maybe_unused]] const type x = xs[i], y = ys[i];                                                          \
      out[i] = code;                                                                                             \
    }                                                                                                            \
  }
#define SRJIT_LIBRARY_FUNCTION(id, code, ...) \
  SRJIT_LIBRARY_LOOP(id##F32, code, float)    \
  SRJIT_LIBRARY_LOOP(id##F64, code, double)
#include "tools/bench/designs/functions.def"
#undef SRJIT_LIBRARY_FUNCTION
#undef SRJIT_LIBRARY_LOOP

#define SRJIT_LIBRARY_FUNCTION(id, ...) id##F32,
constexpr LibraryLoop<float> kF32Loops[] = {
#include "tools/bench/designs/functions.def"
};
#undef SRJIT_LIBRARY_FUNCTION
#define SRJIT_LIBRARY_FUNCTION(id, ...) id##F64,
constexpr LibraryLoop<double> kF64Loops[] = {
#include "tools/bench/designs/functions.def"
};
#undef SRJIT_LIBRARY_FUNCTION

}  // namespace

template <>
LibraryLoop<float> libraryLoop(std::size_t row) noexcept {
  return kF32Loops[row];
}
template <>
LibraryLoop<double> libraryLoop(std::size_t row) noexcept {
  return kF64Loops[row];
}

}  // namespace srjit

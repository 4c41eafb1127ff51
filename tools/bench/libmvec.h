// Loops over the functions of baselines/functions.def, which GCC vectorises with those of libmvec, the vector functions
// of glibc (errors up to 4 ulp).
#pragma once

#include <cstddef>

namespace srjit {

/// out[i] = f(xs[i], ys[i]) for i < count. A function of one operand does not read ys.
struct LibraryLoops {
  void (*f32)(const float* xs, const float* ys, float* out, std::size_t count);
  void (*f64)(const double* xs, const double* ys, double* out, std::size_t count);
};

/// The loops of row `row` of the table, with the widest vectors that this processor has. Precondition: the row exists.
LibraryLoops libraryLoops(std::size_t row) noexcept;

}  // namespace srjit

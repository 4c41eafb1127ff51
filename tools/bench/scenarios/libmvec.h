// Loops over the functions of designs/functions.def, which GCC vectorises with those of libmvec, the vector functions
// of glibc (errors up to 4 ulp).
#pragma once

#include <cstddef>

namespace srjit {

/// out[i] = f(xs[i], ys[i]) for i < count. A function of one operand does not read ys.
template <class T>
using LibraryLoop = void (*)(const T* xs, const T* ys, T* out, std::size_t count);

/// The loop of row `row` of the table, with the widest vectors that this processor has. Precondition: the row exists.
/// For float and double.
template <class T>
LibraryLoop<T> libraryLoop(std::size_t row) noexcept;

}  // namespace srjit

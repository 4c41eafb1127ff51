// The functions that are compared with those of other libraries.
#pragma once

#include <span>

#include "ir/op.h"

namespace srjit {

/// One row of functions.def.
struct LibraryFunction {
  Op op;
  const char* code;
  double x_low, x_high, y_low, y_high;
};

/// All rows, in the order of the table.
std::span<const LibraryFunction> allLibraryFunctions() noexcept;

}  // namespace srjit

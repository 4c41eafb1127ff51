// The tables of the designs: operators.def, and functions.def with the functions that are compared one at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/ops.h"

namespace srjit {

/// One row of operators.def.
struct BaselineOp {
  Op op;
  const char* ptx;
  const char* cuda;
};
/// All rows, in the order of the table.
std::span<const BaselineOp> allBaselineOps() noexcept;
/// The number of an operator's row. Throws BenchFailure (kUnsupported) for an operator without a row.
std::size_t baselineOpNumber(Op op);
/// A cell with operands and result filled in.
std::string fillBaselineOp(const char* cell, std::string_view x, std::string_view y, std::string_view r);

/// One row of functions.def.
struct LibraryFunction {
  Op op;
  const char* code;
  double x_low, x_high, y_low, y_high;
};
/// All rows, in the order of the table.
std::span<const LibraryFunction> allLibraryFunctions() noexcept;

}  // namespace srjit

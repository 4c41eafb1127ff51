// The options of kernels for NVIDIA GPUs, and the conventions that all of them share. Needs no GPU and no driver.
//
// Making device code sets LLVM's process-wide option nvptx-short-ptr, once: a program that also uses the same copy of
// LLVM for NVPTX code of its own gets 32-bit pointers to shared memory there too.
//
// Geometry. A block has kBlockThreads threads in kBlockWarps warps. A warp computes a strip of 32 * rows_per_thread
// adjacent rows: with K rows per thread, lane l computes rows strip * 32 K + row_group * kGroupRows + l * 4 + i, for i
// < 4 and row_group < K / 4; so the lanes of a warp have whole row groups of the reduction tree
// (ir/numbers/loss_sums.h). A warp whose strip begins at or after the last row returns at once.
//
// Columns. The value of row r in column c is at columns + c * column_stride + r * row_stride, in elements. Unless
// options.strided_columns, row_stride is not read and taken for 1, columns are 16-byte aligned, column_stride is a
// multiple of 4 and at least `rows`, and entries between `rows` and the stride may be read. Target, weights and the
// columns of outputs are always of that form; what lies between `rows` and the stride of an output may be overwritten.
#pragma once

#include <optional>
#include <string>

#include "compiler/target/architecture.h"
#include "ir/numbers/loss_sums.h"
#include "ir/numeric.h"

namespace srjit {

inline constexpr unsigned kBlockThreads = 128;
inline constexpr unsigned kBlockWarps = kBlockThreads / kWarpLanes;

/// The options of device code.
struct DeviceOptions {
  Precision precision = Precision::kF32;
  Math math = Math::kPrecise;
  /// One of ptxArchitectures(); newer cards take PTX for sm_90, which their driver translates.
  std::string arch = std::string(architectureOf(kDefaultArchitecture).name);
  /// The architecture that the PTX is assembled for: `arch`, or a newer architecture that PTX cannot be made for.
  /// Empty: `arch`.
  std::string machine = {};
  unsigned rows_per_thread = 4;  ///< 4, 8 or 16
  /// Blocks of rows kernels that a multiprocessor holds at once: registers are limited, and other values spill.
  unsigned min_blocks = 1;
  std::optional<LossSpec> loss;  ///< none: predictions
  bool strided_columns = false;  ///< columns of any stride and alignment, for arrays of the caller
};

}  // namespace srjit

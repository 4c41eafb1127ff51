// PTX for NVIDIA GPUs: straight-line kernels over rows, and the interpreter. Needs no GPU and no driver.
//
// Making device code sets LLVM's process-wide option nvptx-short-ptr, once: a program that also uses the same copy of
// LLVM for NVPTX code of its own gets 32-bit pointers to shared memory there too.
//
// Geometry. A block has kBlockThreads threads; a thread computes `rows_per_thread` rows in groups of four adjacent
// ones, so that a block covers a tile of kBlockThreads * rows_per_thread rows: row = tile * T * K + group * T * 4 +
// thread * 4 + i. Columns, target, weights and outputs are column-major, 16-byte aligned, with strides (in elements)
// that are multiples of 4 and at least `rows`; entries between `rows` and the stride may be read and written, and are
// never counted.
//
// Kernel `srjit_rows` (parameters in order, as PTX types): u64 columns, u64 column_stride, u64 rows, u64 parameters
// (one value per Dag::parameters() entry), then for values: u64 out, u64 out_stride (root r at out + r * out_stride);
// for a loss: u64 target, u64 weights, u64 sums, u64 counts. sums[root * groups + g] is the sum of group g of
// kGroupRows rows (loss.h), groups = ceil(rows / kGroupRows); counts[root * groups + g] (u32) its valid rows, written
// if the spec skips invalid rows. Grid: x = ceil(rows / tile).
//
// Kernel `srjit_interpreter`: u64 columns, u64 column_stride, u64 rows, u64 parameters, u64 tokens, u64 program_offsets
// (u32, programs + 1), u32 programs, u32 programs_per_block, u32 columns_used, u32 slots, then the outputs as above,
// where the root index comes from the program. Grid: x as above, y = ceil(programs / programs_per_block). Dynamic
// shared memory: (columns_used + slots) * tile * bytes + (tokens of the block's programs + 2) * (f32: 8, f64: 16)
// bytes.
#pragma once

#include <optional>
#include <string>

#include "compiler/handler_table.h"
#include "compiler/loss.h"
#include "ir/error.h"
#include "ir/numeric.h"
#include "passes/dag.h"

namespace srjit {

inline constexpr unsigned kBlockThreads = 128;

/// What device code is generated for.
struct DeviceOptions {
  Precision precision = Precision::kF32;
  Math math = Math::kPrecise;
  std::string arch = "sm_90";    ///< sm_75 to sm_90; newer cards take sm_90 PTX, which their driver translates
  unsigned rows_per_thread = 4;  ///< 4, 8 or 16
  std::optional<LossSpec> loss;  ///< none: predictions
};

/// The architectures PTX can be made for.
std::span<const std::string_view> deviceArchitectures() noexcept;

inline constexpr const char* kRowsKernel = "srjit_rows";
inline constexpr const char* kInterpreterKernel = "srjit_interpreter";

/// Straight-line code for all roots of `dag`, which has options.precision. Nodes are computed in ascending order.
/// Errors: kInvalid for options out of range, kMachine without libdevice where it is needed, kCompile for LLVM's.
Result<std::string> rowsPtx(const Dag& dag, const DeviceOptions& options);
Result<std::string> rowsIr(const Dag& dag, const DeviceOptions& options, bool optimized);

/// The interpreter for a table of handlers, which fixes precision, math mode, rows a thread and depth; `options` must
/// agree with it.
Result<std::string> interpreterPtx(const HandlerTable& table, const DeviceOptions& options);
Result<std::string> interpreterIr(const HandlerTable& table, const DeviceOptions& options, bool optimized);

}  // namespace srjit

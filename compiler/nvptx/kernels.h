// Straight-line kernels over rows: PTX for the graphs of a batch. Thread-safe and parallel.
//
// Kernels `srjit_rows_0`, `srjit_rows_1`, ...: straight-line code for one graph each. Parameters in order, as PTX
// types: u64 columns, u64 column_stride, u64 row_stride, u64 rows, u64 parameters (one value per Dag::parameters()
// entry), u64 outputs (u32 per root: which output it is), then
//   for values: u64 out, u64 out_stride: output o at out + o * out_stride;
//   for a loss: u64 target, u64 weights, u64 sums, u64 channel_stride, and of moments u64 centre: the bits of the
//   target's centre in the kernel's precision, the lowest ones.
// A loss writes the channels of LossSpec, as sums of row groups in the kernel's precision. The sum of row group g of
// output o is sums[channel * channel_stride + o * row_groups + g], with row_groups = ceil(rows / kGroupRows).
// Grid: x = ceil(rows / (kBlockWarps * 32 * K)), with K = options.rows_per_thread. compiler/nvptx/options.h describes
// geometry and columns.
#pragma once

#include <span>
#include <string>

#include "compiler/lowering/source_map.h"
#include "compiler/nvptx/options.h"
#include "ir/error.h"
#include "passes/dag.h"

namespace srjit {

/// One kernel per graph, one module for all; graphs have options.precision. Nodes are computed in ascending order.
/// Kernel i is named rowsKernelName(i) (compiler/lowering/source_map.h). Errors: kInvalid for options out of range,
/// kCompile for LLVM's. `sources`, if not empty, has the source of each graph, which the text then names.
Result<std::string> rowsPtx(std::span<const Dag> dags, const DeviceOptions& options,
                            std::span<const SourceMap> sources = {});
Result<std::string> rowsIr(std::span<const Dag> dags, const DeviceOptions& options, bool optimized,
                           std::span<const SourceMap> sources = {});

// The kernel that adds the sums of a loss' row groups. Thread-safe and parallel.
//
// Kernel `srjit_totals`: u64 sums, u64 channel_stride, u64 row_groups, u32 outputs, u32 lanes, u64 chains, u64 totals,
// u32 first, u32 last. Chain c of an output adds the row groups c, c + kSumChains, ... in double, in order; the chains
// are added pairwise (ir/numbers/loss_sums.h). `lanes` threads share an output: kSumChains, or any power of two that is
// not below `row_groups` if first and last are set. totals[channel * outputs + o] gets the total if `last`; otherwise
// chains[(channel * outputs + o) * kSumChains + c] the chains, which the next call, with `first` unset, goes on from:
// so rows may come in chunks of multiples of kSumChains * kGroupRows. Grid: x = ceil(outputs * lanes / kBlockThreads),
// y = channels.

inline constexpr const char* kTotalsKernel = "srjit_totals";

/// The kernel that adds sums of options.precision; only precision and arch count. Errors: as rowsPtx().
Result<std::string> totalsPtx(const DeviceOptions& options);

}  // namespace srjit

// PTX for NVIDIA GPUs: straight-line kernels over rows, and the interpreter. Needs no GPU and no driver.
//
// Making device code sets LLVM's process-wide option nvptx-short-ptr, once: a program that also uses the same copy of
// LLVM for NVPTX code of its own gets 32-bit pointers to shared memory there too.
//
// Geometry. A block has kBlockThreads threads in kBlockWarps warps. A warp computes a strip of 32 * rows_per_thread
// adjacent rows: with K rows a thread, lane l computes rows strip * 32 K + group * kGroupRows + l * 4 + i, for i < 4
// and group < K / 4; so a warp's group is one group of the reduction tree (loss.h). A warp whose strip begins at or
// after the last row leaves at once.
//
// Columns: value of row r in column c is at columns + c * column_stride + r * row_stride, in elements. Unless
// options.strided_columns, row_stride is not read and taken for 1, columns are 16-byte aligned, column_stride is a
// multiple of 4 and at least `rows`, and entries between `rows` and the stride may be read. Target, weights and the
// columns of outputs are always of that form; what lies between `rows` and the stride of an output may be overwritten.
//
// Kernels `srjit_rows_0`, `srjit_rows_1`, ...: straight-line code for one graph each. Parameters in order, as PTX
// types: u64 columns, u64 column_stride, u64 row_stride, u64 rows, u64 parameters (one value per Dag::parameters()
// entry), u64 outputs (u32 per root: which output it is), then
//   for values: u64 out, u64 out_stride: output o at out + o * out_stride;
//   for a loss: u64 target, u64 weights, u64 sums, u64 channel_stride.
// A loss writes channels of group sums in the kernel's precision: channel 0 the terms, 1 (if the spec skips invalid
// rows) the number of valid rows, 2 (if it is weighted, too) their weights. The sum of group g of output o is
// sums[channel * channel_stride + o * groups + g], with groups = ceil(rows / kGroupRows).
// Grid: x = ceil(rows / (kBlockWarps * 32 * K)).
//
// Kernel `srjit_interpreter`: u64 columns, u64 column_stride, u64 row_stride, u64 rows, u64 parameters, u64 column_map
// (u32 per staged column: which column it is), u64 tokens, u64 program_offsets (u32, programs + 1: where a program's
// tokens begin), u32 programs, u32 programs_per_warp, u32 row_warps (1, 2 or 4), u32 tiles, u32 staged_columns, u32
// slots, u32 window, then the outputs as above, where the output's number stands in the program. A block covers a tile
// of row_warps adjacent strips with kBlockWarps / row_warps teams of row_warps warps; team t of block b runs
// programs_per_warp programs from number (b / tiles * teams + t) * programs_per_warp, on tile b % tiles. Grid: x =
// tiles
// * ceil(programs / (programs_per_warp * teams)), tiles = ceil(rows / (row_warps * 32 * K)). Dynamic shared memory in
// bytes: interpreterSharedBytes(). With window = 0 it holds all tokens of the block's programs; otherwise each warp has
// its team's tokens there by so many at a time, so programs may have any length.
//
// Kernel `srjit_totals`: adds the group sums of a loss: u64 sums, u64 channel_stride, u64 groups, u32 outputs, u32
// lanes, u64 chains, u64 totals, u32 first, u32 last. Chain c of an output adds the groups c, c + kSumChains, ... in
// double, in order; the chains are added pairwise (loss.h). `lanes` threads share an output: kSumChains, or any power
// of two that is not below `groups` if first and last are set. totals[channel * outputs + o] gets the total if `last`;
// otherwise chains[(channel * outputs + o) * kSumChains + c] the chains, which the next call, with `first` unset, goes
// on from: so rows may come in chunks of multiples of kSumChains * kGroupRows. Grid: x = ceil(outputs * lanes /
// kBlockThreads), y = channels.
#pragma once

#include <optional>
#include <string>

#include "compiler/handler_table.h"
#include "compiler/loss.h"
#include "ir/error.h"
#include "ir/numeric.h"
#include "passes/dag.h"
#include "passes/llvm_passes.h"

namespace srjit {

inline constexpr unsigned kBlockThreads = 128;
inline constexpr unsigned kBlockWarps = kBlockThreads / kWarpLanes;

/// What device code is generated for.
struct DeviceOptions {
  Precision precision = Precision::kF32;
  Math math = Math::kPrecise;
  std::string arch = "sm_90";  ///< sm_75 to sm_90; newer cards take sm_90 PTX, which their driver translates
  /// What the PTX is to be assembled for: `arch`, or a newer architecture that PTX cannot be made for. Empty: `arch`.
  std::string machine = {};
  unsigned rows_per_thread = 4;  ///< 4, 8 or 16
  /// Blocks of rows kernels that a multiprocessor is to hold at once, by limiting registers; what does not fit spills.
  unsigned min_blocks = 1;
  std::optional<LossSpec> loss;  ///< none: predictions
  bool strided_columns = false;  ///< columns of any stride and alignment, for arrays of the caller
};

/// The architectures PTX can be made for.
std::span<const std::string_view> deviceArchitectures() noexcept;

inline constexpr const char* kInterpreterKernel = "srjit_interpreter";
inline constexpr const char* kTotalsKernel = "srjit_totals";
/// The name of the kernel of graph `index` of a module.
std::string rowsKernelName(std::size_t index);

/// The launch of an interpreter.
struct InterpreterGeometry {
  unsigned rows_per_thread;
  unsigned row_warps;  ///< 1, 2 or 4
  unsigned programs_per_warp;
  unsigned window = 0;  ///< tokens that a warp has in shared memory at once; 0: all of its team's
};

/// Bytes of a token in shared memory: its two words, and in f64 the value of its parameter.
constexpr unsigned sharedTokenBytes(Precision precision) { return precision == Precision::kF64 ? 16 : 8; }

/// Bytes of dynamic shared memory of one block: staged columns, slots, and the tokens of its programs with two halts
/// for each team, or the window of each warp with two more tokens. `block_tokens` is the largest number of tokens that
/// the programs of one block have; with a window it does not matter.
std::size_t interpreterSharedBytes(Precision precision, const InterpreterGeometry& geometry, std::size_t staged_columns,
                                   std::size_t slots, std::size_t block_tokens);

/// Straight-line code for all roots of each graph, which have options.precision: one kernel a graph, one module for
/// all. Nodes are computed in ascending order. Errors: kInvalid for options out of range, kMachine without libdevice
/// where it is needed, kCompile for LLVM's. Thread-safe and parallel, like everything here.
Result<std::string> rowsPtx(std::span<const Dag> dags, const DeviceOptions& options, const LlvmPasses& passes = {});
Result<std::string> rowsIr(std::span<const Dag> dags, const DeviceOptions& options, bool optimized);

/// The interpreter for a table of handlers, which fixes precision, math mode, rows a thread and depth; `options` must
/// agree with it.
Result<std::string> interpreterPtx(const HandlerTable& table, const DeviceOptions& options,
                                   const LlvmPasses& passes = {});
Result<std::string> interpreterIr(const HandlerTable& table, const DeviceOptions& options, bool optimized);

/// The kernel that adds group sums of options.precision; only precision and arch count.
Result<std::string> totalsPtx(const DeviceOptions& options);
Result<std::string> totalsIr(const DeviceOptions& options, bool optimized);

}  // namespace srjit

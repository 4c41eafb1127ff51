// Launches of the interpreter and of the kernel that adds its sums: their arguments and grids.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "compiler/interpreter/kernel.h"
#include "ir/numbers/loss_sums.h"
#include "ir/numbers/rounding.h"
#include "runtime/cuda/handles.h"
#include "runtime/gpu/data.h"

namespace srjit {

/// Programs and what they read besides the rows (compiler/interpreter/kernel.h).
struct InterpreterPrograms {
  CUdeviceptr parameters = 0, column_map = 0, tokens = 0, offsets = 0;
  unsigned programs = 0, staged_columns = 0, slots = 0;
};

/// `results` are the output parameters of the kernel (compiler/nvptx/kernels.h).
template <class... Results>
void launchInterpreter(const BorrowedStream& stream, const Kernel& kernel, const InterpreterGeometry& geometry,
                       std::size_t shared_bytes, DeviceRows rows, InterpreterPrograms of, Results... results) {
  const std::size_t teams = kBlockWarps / geometry.row_warps;
  unsigned tiles =
      toUnsigned(ceilDivide(rows.rows, std::size_t{kWarpLanes} * geometry.rows_per_thread * geometry.row_warps));
  const std::size_t chunks = ceilDivide(of.programs, geometry.programs_per_warp * teams);
  unsigned per_warp = geometry.programs_per_warp, row_warps = geometry.row_warps, window = geometry.window;
  const auto arguments =
      addressesOf(rows.columns, rows.column_stride, rows.row_stride, rows.rows, of.parameters, of.column_map, of.tokens,
                  of.offsets, of.programs, per_warp, row_warps, tiles, of.staged_columns, of.slots, window, results...);
  stream.launch({.kernel = kernel.get(),
                 .grid_x = toUnsigned(tiles * chunks),
                 .shared_bytes = shared_bytes,
                 .arguments = arguments});
}

/// The sums that kernels of a loss write and what becomes of them; `chains` may be 0 if one launch adds all rows.
struct SumsOfLoss {
  CUdeviceptr sums = 0, chains = 0, totals = 0;
  std::size_t outputs = 0, channels = 1;
  std::uint64_t row_groups = 0;

  std::uint64_t channelStride() const noexcept { return outputs * row_groups; }
};

inline void launchTotals(const BorrowedStream& stream, const Kernel& kernel, SumsOfLoss of, bool first, bool last) {
  std::uint64_t channel_stride = of.channelStride();
  unsigned outputs = toUnsigned(of.outputs), is_first = first, is_last = last;
  unsigned lanes = first && last ? std::bit_ceil(toUnsigned(std::min<std::size_t>(of.row_groups, kSumChains)))
                                 : toUnsigned(kSumChains);
  const auto arguments =
      addressesOf(of.sums, channel_stride, of.row_groups, outputs, lanes, of.chains, of.totals, is_first, is_last);
  stream.launch({.kernel = kernel.get(),
                 .grid_x = toUnsigned(ceilDivide(of.outputs * lanes, kBlockThreads)),
                 .grid_y = toUnsigned(of.channels),
                 .arguments = arguments});
}

}  // namespace srjit

#include "runtime/launch/kernel_launcher.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "compiler/nvptx/options.h"
#include "ir/numbers/rounding.h"
#include "runtime/code/compile.h"
#include "runtime/code/direct.h"
#include "runtime/launch/interpreter_geometry.h"

namespace srjit {
namespace {

// Of a run: one for each chunk of predictions, and as many again for rows that are streamed into either of two buffers.
// More chunks come of data so large that a kernel fills the device by itself, or of a lack of memory.
constexpr std::size_t kMaxGraphs = 2 * kPredictionChunks;

}  // namespace

Status KernelLauncher::prepare() {
  const DeviceCode& code = *plan_.code;
  if (code.interpreter) {
    if (Status prepared = prepareInterpreter(*code.interpreter); !prepared) return prepared;
  }
  if (code.direct) {
    const DirectWork work{.groups = code.direct->groups,
                          .registers = code.direct->kernel.facts().registers,
                          .has_subroutines = code.direct->has_subroutines};
    direct_grid_ =
        plan_.direct_grid.value_or(directGrid(memory_.chunkRows(), work, plan_.queue->cuda->limits().multiprocessors));
  }
  if (plan_.kind.loss) {
    const auto totals = plan_.store->totals();
    if (!totals) return totals.error();
    totals_kernel_ = *totals;
  }
  return okStatus();
}

Status KernelLauncher::prepareInterpreter(const InterpreterCode& code) {
  const std::size_t rows = memory_.chunkRows();
  const Precision precision = plan_.precision();
  for (const InterpreterSection& section : code.sections) {
    const InterpreterGeometry geometry = chooseGeometry(code, section, rows, precision, plan_.queue->cuda->limits());
    const std::size_t tiles = ceilDivide(rows, std::size_t{kWarpLanes} * geometry.rows_per_thread * geometry.row_warps);
    const std::size_t per_block = std::size_t{geometry.programs_per_warp} * (kBlockWarps / geometry.row_warps);
    if (tiles > kMaxGridX / ceilDivide(section.programs, per_block)) {
      return Error{Errc::kUnsupported,
                   fmt::format("{} programs x {} rows are more than one launch takes; evaluate fewer at a time",
                               section.programs, rows),
                   {}};
    }
    const auto kernel = plan_.store->interpreter({code.family, geometry.rows_per_thread}, plan_.kind);
    if (!kernel) return kernel.error();
    interpreters_.push_back({*kernel, section, geometry,
                             interpreterSharedBytes(precision, geometry, section.staged_columns, section.slots,
                                                    code.mostTokens(section, per_block))});
  }
  return okStatus();
}

template <class Put>
void KernelLauncher::withResults(const DeviceRows& rows, CUdeviceptr predictions, const Put& put) const {
  if (plan_.kind.loss) {
    CUdeviceptr target = rows.target, weights = rows.weights, sums = memory_.sums();
    std::uint64_t channel_stride = plan_.outputs * ceilDivide(rows.rows, kGroupRows);
    put(target, weights, sums, channel_stride);
  } else {
    std::uint64_t out_stride = memory_.predictionPitch() / element_;
    put(predictions, out_stride);
  }
}

void KernelLauncher::launchInterpreter(const InterpreterLaunch& launch, const DeviceRows& rows,
                                       CUdeviceptr predictions) const {
  const InterpreterCode& code = *plan_.code->interpreter;
  const InterpreterGeometry& geometry = launch.geometry;
  const std::size_t teams = kBlockWarps / geometry.row_warps;
  unsigned tiles =
      toUnsigned(ceilDivide(rows.rows, std::size_t{kWarpLanes} * geometry.rows_per_thread * geometry.row_warps));
  const std::size_t chunks = ceilDivide(launch.section.programs, geometry.programs_per_warp * teams);
  DeviceRows r = rows;
  CUdeviceptr parameters = memory_.parameters().address(), tokens = code.tokens;
  CUdeviceptr map = code.column_map + launch.section.map_offset * sizeof(std::uint32_t);
  CUdeviceptr offsets = code.program_offsets + launch.section.first_program * sizeof(std::uint32_t);
  unsigned programs = launch.section.programs, per_warp = geometry.programs_per_warp, row_warps = geometry.row_warps;
  unsigned staged = launch.section.staged_columns, slots = launch.section.slots, window = geometry.window;
  withResults(rows, predictions, [&](auto&... outputs) {
    const auto arguments =
        addressesOf(r.columns, r.column_stride, r.row_stride, r.rows, parameters, map, tokens, offsets, programs,
                    per_warp, row_warps, tiles, staged, slots, window, outputs...);
    stream_.launch({.kernel = launch.kernel.get(),
                    .grid_x = toUnsigned(tiles * chunks),
                    .shared_bytes = launch.shared_bytes,
                    .arguments = arguments});
  });
}

template <class Put>
void KernelLauncher::forEachCompiled(const CompiledCode& code, const DeviceRows& rows, CUdeviceptr predictions,
                                     const Put& put) const {
  DeviceRows r = rows;
  for (const CompiledKernel& kernel : code.kernels) {
    CUdeviceptr parameters = memory_.parameters().address() + kernel.first_parameter * element_;
    CUdeviceptr outputs = kernel.outputs;
    withResults(rows, predictions, [&](auto&... results) {
      const auto arguments =
          addressesOf(r.columns, r.column_stride, r.row_stride, r.rows, parameters, outputs, results...);
      put(KernelLaunch{.kernel = kernel.kernel.get(),
                       .grid_x = toUnsigned(ceilDivide(rows.rows, std::size_t{kBlockThreads} * kCompiledRowsPerThread)),
                       .arguments = arguments});
    });
  }
}

// In a stream kernels follow one another, and one of few rows leaves most of the device idle; in a graph they run side
// by side. All arguments of a graph are fixed, so every chunk of rows has its own.
void KernelLauncher::launchCompiled(const CompiledCode& code, const DeviceRows& rows, CUdeviceptr predictions) {
  const auto known = std::ranges::find_if(graphs_, [&](const ChunkGraph& candidate) {
    return candidate.rows == rows && candidate.predictions == predictions;
  });
  if (known != graphs_.end()) return known->graph.launch(stream_);
  if (code.kernels.size() <= 1 || graphs_.size() == kMaxGraphs) {
    return forEachCompiled(code, rows, predictions, [&](const KernelLaunch& launch) { stream_.launch(launch); });
  }
  Graph graph(plan_.queue->cuda);
  forEachCompiled(code, rows, predictions, [&](const KernelLaunch& launch) { graph.add(launch); });
  graph.instantiate();
  graph.launch(stream_);
  graphs_.push_back({rows, predictions, std::move(graph)});
}

void KernelLauncher::launchDirectCode(const DirectCode& code, const DeviceRows& rows, CUdeviceptr predictions) const {
  const std::uint64_t row_groups = ceilDivide(rows.rows, kGroupRows);
  const bool loss = plan_.kind.loss.has_value();
  launchDirect(stream_, code, rows,
               {.element = element_,
                .numbers = memory_.parameters().address() + code.first_number * element_,
                .results = loss ? memory_.sums() : predictions,
                .channel_stride = plan_.outputs * row_groups,
                .output_stride = loss ? row_groups : memory_.predictionPitch() / element_},
               direct_grid_);
}

void KernelLauncher::launch(const QueueLock&, const DeviceRows& rows, CUdeviceptr predictions) {
  const DeviceCode& code = *plan_.code;
  for (const InterpreterLaunch& interpreter : interpreters_) launchInterpreter(interpreter, rows, predictions);
  if (code.compiled) launchCompiled(*code.compiled, rows, predictions);
  if (code.direct) launchDirectCode(*code.direct, rows, predictions);
}

void KernelLauncher::launchTotals(const QueueLock&, const DeviceRows& rows, bool first, bool last) const {
  if (plan_.outputs == 0) return;
  std::uint64_t row_groups = ceilDivide(rows.rows, kGroupRows);
  std::uint64_t channel_stride = plan_.outputs * row_groups;
  unsigned outputs = toUnsigned(plan_.outputs), is_first = first, is_last = last;
  unsigned lanes =
      first && last ? std::bit_ceil(toUnsigned(std::min<std::size_t>(row_groups, kSumChains))) : toUnsigned(kSumChains);
  CUdeviceptr sums = memory_.sums(), chains = memory_.chains().address(), totals = memory_.totals().address();
  const auto arguments =
      addressesOf(sums, channel_stride, row_groups, outputs, lanes, chains, totals, is_first, is_last);
  stream_.launch({.kernel = totals_kernel_.get(),
                  .grid_x = toUnsigned(ceilDivide(plan_.outputs * lanes, kBlockThreads)),
                  .grid_y = toUnsigned(plan_.channels()),
                  .arguments = arguments});
}

}  // namespace srjit

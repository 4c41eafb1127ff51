#include "runtime/gpu/run.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include "compiler/direct/emitter.h"
#include "compiler/nvptx/options.h"
#include "runtime/evaluation/executor.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/gpu/compile.h"
#include "runtime/gpu/direct.h"

namespace srjit {
namespace {

// Predictions that are large are made in so many chunks of rows, multiples of a tile's, so that making and copying them
// overlap; kernels of smaller chunks would not fill the device.
constexpr std::size_t kManyPredictionBytes = std::size_t{32} << 20, kPredictionChunks = 8, kPredictionQuantum = 1024;
// A program of more tokens than this is long: blocks that hold all of it would be few. Warps then have windows of so
// many tokens, or of as many as two parts of seven of a small device's shared memory hold.
constexpr std::size_t kLongProgram = 1024;
constexpr unsigned kWindow = 512;
// Losses that one task reads: 5 to 30 us by their kind (2-core virtual machine); waking a thread takes as long.
constexpr std::size_t kLossGrain = 1 << 13;
// Of a run: one for each chunk of predictions, and as many again for rows that are streamed into either of two buffers.
// More chunks come of data so large that a kernel fills the device by itself, or of a lack of memory.
constexpr std::size_t kMaxGraphs = 2 * kPredictionChunks;
// Direct code has 32 bits for the bytes of an expression's predictions.
constexpr std::size_t kMaxDirectChunkBytes = std::size_t{1} << 30;
constexpr std::size_t kMaxBlocks = (std::size_t{1} << 31) - 1;  // of a launch (CUDA C++ programming guide, 13.0)

unsigned word(std::size_t value) { return static_cast<unsigned>(value); }

/// Instructions for one token and strip, roughly: dispatch and rows.
constexpr std::size_t dispatchCost(unsigned rows_per_thread) { return 11 + 2 * rows_per_thread; }

}  // namespace

InterpreterGeometry chooseGeometry(const InterpreterCode& code, const InterpreterSection& section, std::size_t rows,
                                   Precision precision, const DeviceLimits& limits) {
  // Blocks that a multiprocessor should hold at once.
  constexpr std::size_t kResidentBlocks = 5;
  // Blocks that each multiprocessor gets in all: many, so that none idles while another has its last ones; but fewer,
  // if warps had too few programs then to be worth copying columns for (docs/experiments.md).
  constexpr std::size_t kManyBlocks = 40, kFewBlocks = 10, kFewPrograms = 8, kMaxProgramsPerWarp = 64;
  const auto strips = [&](unsigned k) { return ceilDivide(rows, std::size_t{kWarpLanes} * k); };
  const auto cost = [&](unsigned k) { return strips(k) * dispatchCost(k); };
  InterpreterGeometry geometry{.rows_per_thread = cost(8) <= cost(4) ? 8u : 4u, .row_warps = 4, .programs_per_warp = 1};
  const auto columnBytes = [&] {
    return interpreterSharedBytes(precision, geometry, section.staged_columns, section.slots, 0);
  };
  const auto choose = [&](unsigned k) {
    geometry.rows_per_thread = k;
    geometry.row_warps = std::bit_ceil(word(std::min<std::size_t>(strips(k), kBlockWarps)));
  };
  choose(geometry.rows_per_thread);
  const std::size_t share = limits.shared_bytes_per_multiprocessor / kResidentBlocks;
  while (geometry.row_warps > 1 && columnBytes() > share) geometry.row_warps /= 2;
  if (geometry.rows_per_thread == 8 && columnBytes() > share) {
    choose(4);
    while (geometry.row_warps > 1 && columnBytes() > share) geometry.row_warps /= 2;
  }

  const std::size_t tiles = ceilDivide(strips(geometry.rows_per_thread), geometry.row_warps);
  const std::size_t teams = kBlockWarps / geometry.row_warps;
  const auto programsFor = [&](std::size_t blocks) {
    return section.programs * tiles / (teams * blocks * limits.multiprocessors);
  };
  const std::size_t programs = std::max(programsFor(kManyBlocks), std::min(programsFor(kFewBlocks), kFewPrograms));
  geometry.programs_per_warp = word(std::clamp<std::size_t>(programs, 1, kMaxProgramsPerWarp));
  const auto bytes = [&] {
    return interpreterSharedBytes(
        precision, geometry, section.staged_columns, section.slots,
        code.mostTokens(section, std::size_t{geometry.programs_per_warp} * (kBlockWarps / geometry.row_warps)));
  };
  const unsigned window =
      std::min(kWindow, word(limits.shared_bytes_per_block / 7 * 2 / (kBlockWarps * sharedTokenBytes(precision)) - 2));
  if (code.mostTokens(section, 1) > kLongProgram) geometry.window = window;
  while (geometry.window == 0 && geometry.programs_per_warp > 1 &&
         bytes() > std::max(share, columnBytes() + share / 4)) {
    geometry.programs_per_warp = (geometry.programs_per_warp + 1) / 2;
  }
  // What was encoded fits with one team or with four.
  for (const unsigned row_warps : {kBlockWarps, 1u}) {
    if (bytes() <= limits.shared_bytes_per_block) break;
    geometry = {.rows_per_thread = 4, .row_warps = row_warps, .programs_per_warp = 1, .window = window};
  }
  return geometry;
}

DeviceRun::DeviceRun(RunPlan plan)
    : plan_(std::move(plan)),
      queue_(*plan_.queue),
      element_(static_cast<std::size_t>(bytesOf(plan_.data->precision))),
      done_(queue_.cuda) {}

Result<std::unique_ptr<DeviceRun>> DeviceRun::create(RunPlan plan, std::size_t budget) {
  std::unique_ptr<DeviceRun> run(new DeviceRun(std::move(plan)));
  if (Status prepared = run->prepare(budget); !prepared) return std::move(prepared).error();
  return run;
}

std::size_t DeviceRun::deviceBytes() const noexcept {
  std::size_t bytes = parameters_.bytes() + sums_.bytes() + chains_.bytes() + totals_.bytes();
  for (const PredictionBuffer& buffer : predictions_) bytes += buffer.memory.bytes();
  return bytes;
}

// What chunks of rows are multiples of.
std::size_t DeviceRun::chunkQuantum() const {
  return plan_.kind.loss || plan_.data->on_device->isStreamed() ? kChunkQuantum : kPredictionQuantum;
}

std::size_t DeviceRun::channels() const {
  if (!plan_.kind.loss || !plan_.kind.loss->skip_invalid) return 1;
  return plan_.kind.loss->weighted ? 3 : 2;
}

Status DeviceRun::prepare(std::size_t budget) {
  const Dataset::State& data = *plan_.data;
  const std::size_t quantum = chunkQuantum();
  chunk_rows_ = std::min<std::size_t>(data.rows, data.on_device->chunkRows());
  if (plan_.code->direct) chunk_rows_ = std::min<std::size_t>(chunk_rows_, kMaxDirectChunkBytes / element_);
  const bool to_host = !plan_.kind.loss && !plan_.into_columns;
  if (to_host && plan_.expressions * data.rows * element_ > kManyPredictionBytes) {
    const std::size_t wanted =
        std::min(ceilDivide(data.rows, kPredictionChunks), kMaxChunkBytesOfExpression / element_);
    chunk_rows_ = std::min(chunk_rows_, roundUp(wanted, quantum));
  }
  while (!takeMemory(budget, chunk_rows_ <= quantum)) {
    chunk_rows_ = std::max(quantum, chunk_rows_ / 2 / quantum * quantum);
  }
  for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
    times_.push_back({Event(queue_.cuda, Event::Timing::kOn), Event(queue_.cuda, Event::Timing::kOn)});
  }
  const DeviceCode& code = *plan_.code;
  if (code.interpreter) {
    for (const InterpreterSection& section : code.interpreter->sections) {
      const InterpreterGeometry geometry =
          chooseGeometry(*code.interpreter, section, chunk_rows_, data.precision, queue_.cuda->limits());
      const std::size_t strip_rows = std::size_t{kWarpLanes} * geometry.rows_per_thread;
      const std::size_t tiles = ceilDivide(chunk_rows_, strip_rows * geometry.row_warps);
      const std::size_t per_block = std::size_t{geometry.programs_per_warp} * (kBlockWarps / geometry.row_warps);
      if (tiles > kMaxBlocks / ceilDivide(section.programs, per_block)) {
        return Error{Errc::kUnsupported,
                     fmt::format("{} programs x {} rows are more than one launch takes; evaluate fewer at a time",
                                 section.programs, chunk_rows_),
                     {}};
      }
      const auto kernel = plan_.store->interpreter({code.interpreter->family, geometry.rows_per_thread}, plan_.kind);
      if (!kernel) return kernel.error();
      const std::size_t teams = kBlockWarps / geometry.row_warps;
      const std::size_t tokens = code.interpreter->mostTokens(section, geometry.programs_per_warp * teams);
      interpreters_.push_back(
          {*kernel, section, geometry,
           interpreterSharedBytes(data.precision, geometry, section.staged_columns, section.slots, tokens)});
    }
  }
  if (code.direct) {
    direct_grid_ =
        plan_.direct_grid.value_or(directGrid(chunk_rows_, code.direct->groups, code.direct->kernel.facts().registers,
                                              queue_.cuda->limits().multiprocessors));
  }
  if (plan_.kind.loss) {
    const auto totals = plan_.store->totals();
    if (!totals) return totals.error();
    totals_kernel_ = *totals;
  }
  return okStatus();
}

// On the last try one buffer has to do where two are too many.
void DeviceRun::takePredictionBuffers(std::size_t count, std::size_t bytes, std::size_t budget, bool last_try) {
  predictions_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0 && last_try && count * bytes > budget) return;
    try {
      predictions_.push_back({DeviceBuffer(queue_.stream, bytes), Event(queue_.cuda)});
    } catch (const CudaFailure& failure) {
      if (i == 0 || !last_try || failure.code() != CUDA_ERROR_OUT_OF_MEMORY) throw;
      return;
    }
  }
}

// False if the chunk should be smaller; on the last try, failures of the driver go through.
bool DeviceRun::takeMemory(std::size_t budget, bool last_try) {
  const std::size_t outputs = plan_.expressions;
  const std::size_t groups = ceilDivide(chunk_rows_, kGroupRows);
  const std::size_t chunk_bytes =
      plan_.kind.loss ? channels() * outputs * groups * element_ : outputs * predictionPitch();
  const std::size_t buffers = plan_.kind.loss || chunks() == 1 ? 1 : 2;
  if (buffers * chunk_bytes > budget && !last_try) return false;
  try {
    const std::size_t parameter_bytes = plan_.code->parameters.bytes(plan_.data->precision);
    parameters_ = DeviceBuffer(queue_.stream, parameter_bytes);
    host_parameters_ = queue_.pinned.take(parameter_bytes);
    if (host_parameters_ != nullptr) {
      plan_.code->parameters.writeLiterals(plan_.data->precision, static_cast<std::byte*>(host_parameters_->data()));
    }
    if (plan_.into_columns) return true;
    if (!plan_.kind.loss) {
      takePredictionBuffers(buffers, chunk_bytes, budget, last_try);
      return true;
    }
    sums_ = DeviceBuffer(queue_.stream, chunk_bytes);
    // Expressions without code have no sums; what is added up for them must be something.
    if (!plan_.code->failures.empty()) queue_.stream->fill(sums_.address(), 0, chunk_bytes);
    const std::size_t total_bytes = channels() * outputs * sizeof(double);
    totals_ = DeviceBuffer(queue_.stream, total_bytes);
    if (chunk_rows_ < plan_.data->rows) chains_ = DeviceBuffer(queue_.stream, total_bytes * kSumChains);
    host_totals_ = queue_.pinned.take(total_bytes);
  } catch (const CudaFailure& failure) {
    // Columns are written at once, and take no memory that smaller chunks would save.
    if (failure.code() != CUDA_ERROR_OUT_OF_MEMORY || last_try || plan_.into_columns) throw;
    return false;
  }
  return true;
}

// Work that was put on the streams may use memory that a failure is about to give back, so it is waited for first.
template <class Body>
void DeviceRun::settlingOnFailure(const Body& body) {
  try {
    body();
  } catch (...) {
    // A failure of these means that the device is lost, and that nothing is in use any more.
    for (const auto& stream : {queue_.stream, queue_.copies, queue_.downloads})
      queue_.cuda->driver().cuStreamSynchronize(stream->get());
    throw;
  }
}

void DeviceRun::copyParameters() {
  if (parameters_.bytes() == 0) return;
  queue_.stream->copyToDevice(parameters_.address(), host_parameters_->data(), parameters_.bytes());
}

// Rows that are streamed are waited for by the stream before the time begins.
DeviceRows DeviceRun::beginChunk(std::size_t chunk) {
  const std::size_t first = chunk * chunk_rows_;
  const DeviceRows rows = plan_.data->on_device->rows(first, std::min(chunk_rows_, plan_.data->rows - first));
  timed_ = chunk + 1;
  queue_.stream->record(times_[chunk].begin);
  return rows;
}

void DeviceRun::endChunk() {
  queue_.stream->record(times_[timed_ - 1].end);
  plan_.data->on_device->release();
}

double DeviceRun::kernelSeconds() const {
  double seconds = 0;
  for (const ChunkTime& time : std::span(times_).first(timed_)) seconds += time.end.secondsSince(time.begin);
  return seconds;
}

template <class Put>
void DeviceRun::withResults(const DeviceRows& rows, CUdeviceptr predictions, const Put& put) {
  if (plan_.kind.loss) {
    CUdeviceptr target = rows.target, weights = rows.weights, sums = sums_.address();
    std::uint64_t channel_stride = plan_.expressions * ceilDivide(rows.rows, kGroupRows);
    put(target, weights, sums, channel_stride);
  } else {
    std::uint64_t out_stride = predictionPitch() / element_;
    put(predictions, out_stride);
  }
}

void DeviceRun::launchInterpreter(const InterpreterLaunch& launch, const DeviceRows& rows, CUdeviceptr predictions) {
  const InterpreterCode& code = *plan_.code->interpreter;
  const InterpreterGeometry& geometry = launch.geometry;
  const std::size_t teams = kBlockWarps / geometry.row_warps;
  unsigned tiles = word(ceilDivide(rows.rows, std::size_t{kWarpLanes} * geometry.rows_per_thread * geometry.row_warps));
  const std::size_t chunks = ceilDivide(launch.section.programs, geometry.programs_per_warp * teams);
  DeviceRows r = rows;
  CUdeviceptr parameters = parameters_.address(), tokens = code.tokens;
  CUdeviceptr map = code.column_map + launch.section.map_offset * sizeof(std::uint32_t);
  CUdeviceptr offsets = code.program_offsets + launch.section.first_program * sizeof(std::uint32_t);
  unsigned programs = launch.section.programs, per_warp = geometry.programs_per_warp, row_warps = geometry.row_warps;
  unsigned staged = launch.section.staged_columns, slots = launch.section.slots, window = geometry.window;
  withResults(rows, predictions, [&](auto&... outputs) {
    const auto arguments =
        addressesOf(r.columns, r.column_stride, r.row_stride, r.rows, parameters, map, tokens, offsets, programs,
                    per_warp, row_warps, tiles, staged, slots, window, outputs...);
    queue_.stream->launch({.kernel = launch.kernel.get(),
                           .grid_x = word(tiles * chunks),
                           .shared_bytes = launch.shared_bytes,
                           .arguments = arguments});
  });
}

template <class Put>
void DeviceRun::forEachCompiled(const DeviceRows& rows, CUdeviceptr predictions, const Put& put) {
  DeviceRows r = rows;
  for (const CompiledKernel& kernel : plan_.code->kernels) {
    CUdeviceptr parameters = parameters_.address() + kernel.first_parameter * element_, outputs = kernel.outputs;
    withResults(rows, predictions, [&](auto&... results) {
      const auto arguments =
          addressesOf(r.columns, r.column_stride, r.row_stride, r.rows, parameters, outputs, results...);
      put(KernelLaunch{.kernel = kernel.kernel.get(),
                       .grid_x = word(ceilDivide(rows.rows, std::size_t{kBlockThreads} * kCompiledRowsPerThread)),
                       .arguments = arguments});
    });
  }
}

// In a stream kernels follow one another, and one of few rows leaves most of the device idle; in a graph they run side
// by side. All arguments of a graph are fixed, so every chunk of rows has its own.
void DeviceRun::launchCompiled(const DeviceRows& rows, CUdeviceptr predictions) {
  const auto known = std::ranges::find_if(graphs_, [&](const ChunkGraph& candidate) {
    return candidate.rows == rows && candidate.predictions == predictions;
  });
  if (known != graphs_.end()) return known->graph.launch(*queue_.stream);
  if (plan_.code->kernels.size() <= 1 || graphs_.size() == kMaxGraphs) {
    return forEachCompiled(rows, predictions, [&](const KernelLaunch& launch) { queue_.stream->launch(launch); });
  }
  Graph graph(queue_.cuda);
  forEachCompiled(rows, predictions, [&](const KernelLaunch& launch) { graph.add(launch); });
  graph.instantiate();
  graph.launch(*queue_.stream);
  graphs_.push_back({rows, predictions, std::move(graph)});
}

void DeviceRun::launchDirectCode(const DeviceRows& rows, CUdeviceptr predictions) {
  if (!plan_.code->direct) return;
  const DirectCode& code = *plan_.code->direct;
  const std::uint64_t groups = ceilDivide(rows.rows, kGroupRows);
  const bool loss = plan_.kind.loss.has_value();
  launchDirect(*queue_.stream, code, rows,
               {.element = element_,
                .numbers = parameters_.address() + code.first_number * element_,
                .results = loss ? sums_.address() : predictions,
                .channel_stride = plan_.expressions * groups,
                .output_stride = loss ? groups : predictionPitch() / element_},
               direct_grid_);
}

void DeviceRun::launch(const DeviceRows& rows, CUdeviceptr predictions) {
  for (const InterpreterLaunch& interpreter : interpreters_) launchInterpreter(interpreter, rows, predictions);
  launchCompiled(rows, predictions);
  launchDirectCode(rows, predictions);
}

void DeviceRun::launchTotals(const DeviceRows& rows, bool first, bool last) {
  if (plan_.expressions == 0) return;
  std::uint64_t groups = ceilDivide(rows.rows, kGroupRows);
  std::uint64_t channel_stride = plan_.expressions * groups;
  unsigned outputs = word(plan_.expressions), is_first = first, is_last = last;
  unsigned lanes = first && last ? std::bit_ceil(word(std::min<std::size_t>(groups, kSumChains))) : word(kSumChains);
  CUdeviceptr sums = sums_.address(), chains = chains_.address(), totals = totals_.address();
  const auto arguments = addressesOf(sums, channel_stride, groups, outputs, lanes, chains, totals, is_first, is_last);
  queue_.stream->launch({.kernel = totals_kernel_.get(),
                         .grid_x = word(ceilDivide(plan_.expressions * lanes, kBlockThreads)),
                         .grid_y = word(channels()),
                         .arguments = arguments});
}

void DeviceRun::submitLoss(std::span<const double> parameters) {
  if (host_parameters_ != nullptr) {
    plan_.code->parameters.fill(parameters, plan_.data->precision, static_cast<std::byte*>(host_parameters_->data()));
  }
  const std::lock_guard lock(queue_.mutex);
  settlingOnFailure([&] { enqueueLoss(); });
}

void DeviceRun::enqueueLoss() {
  copyParameters();
  for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
    const DeviceRows rows = beginChunk(chunk);
    launch(rows);
    launchTotals(rows, chunk == 0, chunk + 1 == chunks());
    endChunk();
  }
  if (host_totals_ != nullptr) {
    queue_.stream->copyToHost(host_totals_->data(), totals_.address(), totals_.bytes());
  }
  queue_.stream->record(done_);
}

void DeviceRun::submitColumns() {
  const std::lock_guard lock(queue_.mutex);
  settlingOnFailure([&] {
    copyParameters();
    const DeviceRows rows = beginChunk(0);
    launch(rows, rows.columns);
    endChunk();
    queue_.stream->record(done_);
  });
}

void DeviceRun::wait() const { waitBriefly(done_); }

Losses DeviceRun::emptyLosses() const {
  Losses losses;
  losses.values.resize(plan_.expressions);
  losses.valid_rows.resize(plan_.expressions);
  return losses;
}

void DeviceRun::readLosses(const LossOptions& options, Losses& losses) const {
  const Dataset::State& data = *plan_.data;
  const std::size_t count = plan_.expressions;
  if (count == 0) return;
  const double all_weights = data.has_weights ? data.weight_sum : static_cast<double>(data.rows);
  const std::span<const double> totals = host_totals_->as<double>();
  const auto read = [&](std::size_t begin, std::size_t end) {
    if (!plan_.kind.loss->skip_invalid) {
      for (std::size_t e = begin; e < end; ++e) losses.valid_rows[e] = validRows(totals[e], data.rows);
      return lossValues(totals.subspan(begin, end - begin), all_weights, data.target_variance, options.kind,
                        std::span(losses.values).subspan(begin, end - begin));
    }
    for (std::size_t e = begin; e < end; ++e) {
      // What stands there for an expression that failed may be no number of rows.
      const double valid = std::min(std::max(0.0, totals[count + e]), static_cast<double>(data.rows));
      LossSums sums{.terms = totals[e], .rows = data.rows, .valid = static_cast<std::uint64_t>(valid)};
      sums.weights = sums.valid == sums.rows ? all_weights : data.has_weights ? totals[2 * count + e] : valid;
      takeLoss(losses, e, sums, data, options);
    }
  };
  if (count <= 2 * kLossGrain) return read(0, count);
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, count, kLossGrain),
                    [&](const auto& range) { read(range.begin(), range.end()); });
}

PredictionChunk DeviceRun::launchChunk(std::size_t chunk) {
  const PredictionBuffer& buffer = predictions_[chunk % predictions_.size()];
  const std::lock_guard lock(queue_.mutex);
  if (chunk == 0) copyParameters();
  const DeviceRows rows = beginChunk(chunk);
  launch(rows, buffer.memory.address());
  endChunk();
  queue_.stream->record(buffer.ready);
  return {.address = buffer.memory.address(),
          .pitch = predictionPitch(),
          .first_byte = chunk * chunk_rows_ * element_,
          .bytes = rows.rows * element_,
          .ready = &buffer.ready};
}

void DeviceRun::predict(std::span<const double> parameters, std::byte* out) {
  if (plan_.expressions == 0) return;
  const Dataset::State& data = *plan_.data;
  if (host_parameters_ != nullptr) {
    plan_.code->parameters.fill(parameters, data.precision, static_cast<std::byte*>(host_parameters_->data()));
  }
  if (!download_) download_.emplace(queue_);
  download_->run({out, plan_.expressions, data.rows * element_}, chunks(), predictions_.size(),
                 [this](std::size_t chunk) { return launchChunk(chunk); });
}

void DeviceRun::evaluate(std::span<const double> parameters, std::byte* out) {
  settlingOnFailure([&] { predict(parameters, out); });
}

}  // namespace srjit

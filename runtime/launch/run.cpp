#include "runtime/launch/run.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include "compiler/interpreter/kernel.h"
#include "compiler/nvptx/options.h"
#include "ir/numbers/rounding.h"
#include "runtime/code/makers.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/launch/kernels.h"
#include "runtime/platform/guarded.h"
#include "runtime/platform/trace.h"

namespace srjit {

namespace {

// Losses that one task reads: 5 to 30 us by their kind (2-core virtual machine); waking a thread takes as long.
constexpr std::size_t kLossGrain = 1 << 13;
// Of a run: one for each chunk of predictions, and as many again for rows that are streamed into either of two buffers.
// More chunks come of data so large that a kernel fills the device by itself, or of a lack of memory.
constexpr std::size_t kMaxGraphs = 2 * kPredictionChunks;

}  // namespace

/// How the interpreter runs one section.
struct DeviceRun::InterpreterLaunch {
  Kernel kernel;
  InterpreterSection section;
  InterpreterGeometry geometry;
  std::size_t shared_bytes = 0;
};

/// The compiled kernels for rows that are in this place, and predictions that go there.
struct DeviceRun::ChunkGraph {
  DeviceRows rows;
  CUdeviceptr predictions;
  Graph graph;
};

DeviceRun::DeviceRun(RunPlan plan, const Dataset::State& data, std::size_t budget)
    : plan_(std::move(plan)),
      queue_(plan_.store->queue()),
      element_(plan_.elementBytes()),
      done_(queue_.cuda),
      memory_(plan_, data, budget) {
  if (plan_.kind.loss && isOfMoments(plan_.kind.loss->term)) {
    withZeroOf(plan_.precision(), [&]<class T>(T) {
      const T centre = static_cast<T>(targetCentre(data));
      std::memcpy(&target_centre_, &centre, sizeof centre);
    });
  }
  for (std::size_t chunk = 0; chunk < memory_.chunks(); ++chunk) {
    times_.emplace_back(Event(queue_.cuda, true), Event(queue_.cuda, true));
  }
}

Result<std::unique_ptr<DeviceRun>> DeviceRun::create(RunPlan plan, const Dataset::State& data, std::size_t budget) {
  std::unique_ptr<DeviceRun> run(new DeviceRun(std::move(plan), data, budget));
  if (Status prepared = run->prepareKernels(); !prepared) return std::move(prepared).error();
  return run;
}

Status DeviceRun::prepareKernels() {
  const DeviceCode& code = *plan_.code;
  if (code.interpreter) {
    if (Status prepared = prepareInterpreter(*code.interpreter); !prepared) return prepared;
  }
  if (code.direct) {
    const DirectCode& direct = *code.direct;
    direct_grid_ =
        plan_.direct_grid.value_or(directGrid(memory_.chunkRows(), direct.groups, direct.kernel.facts().registers,
                                              direct.has_subroutines, queue_.cuda->limits().multiprocessors));
  }
  if (plan_.kind.loss) {
    const auto totals = plan_.store->totals();
    if (!totals) return totals.error();
    totals_kernel_ = *totals;
  }
  return okStatus();
}

Status DeviceRun::prepareInterpreter(const InterpreterCode& code) {
  const std::size_t rows = memory_.chunkRows();
  const Precision precision = plan_.precision();
  for (const InterpreterSection& section : code.sections) {
    const InterpreterGeometry geometry = chooseGeometry(code, section, rows, precision, queue_.cuda->limits());
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
void DeviceRun::withResults(const DeviceRows& rows, CUdeviceptr predictions, const Put& put) const {
  if (plan_.kind.loss) {
    CUdeviceptr target = rows.target, weights = rows.weights, sums = memory_.sums();
    std::uint64_t channel_stride = plan_.outputs * ceilDivide(rows.rows, kGroupRows), centre = target_centre_;
    if (isOfMoments(plan_.kind.loss->term)) return put(target, weights, sums, channel_stride, centre);
    put(target, weights, sums, channel_stride);
  } else {
    std::uint64_t out_stride = memory_.predictionPitch() / element_;
    put(predictions, out_stride);
  }
}

void DeviceRun::launchInterpreter(const InterpreterLaunch& launch, const DeviceRows& rows,
                                  CUdeviceptr predictions) const {
  const InterpreterCode& code = *plan_.code->interpreter;
  const InterpreterSection& section = launch.section;
  const InterpreterPrograms programs{.parameters = memory_.parameters().address(),
                                     .column_map = code.column_map + section.map_offset * sizeof(std::uint32_t),
                                     .tokens = code.tokens,
                                     .offsets = code.program_offsets + section.first_program * sizeof(std::uint32_t),
                                     .programs = section.programs,
                                     .staged_columns = section.staged_columns,
                                     .slots = section.slots};
  withResults(rows, predictions, [&](auto... outputs) {
    srjit::launchInterpreter(queue_.stream->borrowed(), launch.kernel, launch.geometry, launch.shared_bytes, rows,
                             programs, outputs...);
  });
}

template <class Put>
void DeviceRun::forEachCompiled(const CompiledCode& code, const DeviceRows& rows, CUdeviceptr predictions,
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
void DeviceRun::launchCompiled(const CompiledCode& code, const DeviceRows& rows, CUdeviceptr predictions) {
  const auto known = std::ranges::find_if(graphs_, [&](const ChunkGraph& candidate) {
    return candidate.rows == rows && candidate.predictions == predictions;
  });
  if (known != graphs_.end()) return known->graph.launch(*queue_.stream);
  if (code.kernels.size() <= 1 || graphs_.size() == kMaxGraphs) {
    return forEachCompiled(code, rows, predictions, [&](const KernelLaunch& launch) { queue_.stream->launch(launch); });
  }
  Graph graph(queue_.cuda);
  forEachCompiled(code, rows, predictions, [&](const KernelLaunch& launch) { graph.add(launch); });
  graph.instantiate();
  graph.launch(*queue_.stream);
  graphs_.push_back({rows, predictions, std::move(graph)});
}

// With fewer parts if the rows do not need as many. The kernel can read the rows, which are at most directMaxRows().
void DeviceRun::launchDirect(const DirectCode& code, const DeviceRows& rows, CUdeviceptr predictions) const {
  const auto bytes = [&](std::uint64_t elements) { return static_cast<std::uint32_t>(elements * element_); };
  const std::uint64_t row_groups = ceilDivide(rows.rows, kGroupRows), channel = plan_.outputs * row_groups * element_;
  const bool loss = plan_.kind.loss.has_value(), has_moments = loss && isOfMoments(plan_.kind.loss->term);
  const CUdeviceptr results = loss ? memory_.sums() : predictions;
  DirectGrid grid = direct_grid_;
  grid.row_blocks =
      std::min(grid.row_blocks, static_cast<std::uint32_t>(ceilDivide(rows.rows, grid.warps * kGroupRows)));
  DirectArguments arguments{.columns = rows.columns,
                            .target = rows.target,
                            .weights = rows.weights,
                            .counts = results + channel,
                            .kept_weights = has_moments ? target_centre_ : results + 2 * channel,
                            .results = results,
                            .numbers = memory_.parameters().address() + code.first_number * element_,
                            .outputs = code.outputs,
                            .groups = code.group_table,
                            .rows = static_cast<std::uint32_t>(rows.rows),
                            .column_stride = bytes(rows.column_stride),
                            .row_stride = bytes(rows.row_stride),
                            .output_stride = bytes(loss ? row_groups : memory_.predictionPitch() / element_),
                            .row_jump = directRowJump(grid),
                            .warps = grid.warps};
  for (std::size_t first = 0; first < code.groups; first += kMaxGridY) {
    arguments.groups = code.group_table + first * sizeof(DirectGroup);
    queue_.stream->launch({.kernel = code.kernel.get(),
                           .grid_x = grid.row_blocks,
                           .grid_y = static_cast<unsigned>(std::min<std::size_t>(kMaxGridY, code.groups - first)),
                           .block_threads = kWarpLanes * grid.warps,
                           .arguments = addressesOf(arguments)});
  }
}

void DeviceRun::launch(const DeviceRows& rows, CUdeviceptr predictions) {
  const DeviceCode& code = *plan_.code;
  for (const InterpreterLaunch& interpreter : interpreters_) launchInterpreter(interpreter, rows, predictions);
  if (code.compiled) launchCompiled(*code.compiled, rows, predictions);
  if (code.direct) launchDirect(*code.direct, rows, predictions);
}

void DeviceRun::launchTotals(const DeviceRows& rows, bool first, bool last) const {
  if (plan_.outputs == 0) return;
  srjit::launchTotals(queue_.stream->borrowed(), totals_kernel_,
                      {.sums = memory_.sums(),
                       .chains = memory_.chains().address(),
                       .totals = memory_.totals().address(),
                       .outputs = plan_.outputs,
                       .channels = plan_.channels(),
                       .row_groups = ceilDivide(rows.rows, kGroupRows)},
                      first, last);
}

void DeviceRun::fillParameters(std::span<const double> parameters) {
  memory_.fillParameters(plan_.code->parameters, parameters, plan_.precision());
}

DeviceRun::~DeviceRun() {
  if (in_flight_ && !queue_.cuda->isForked()) settle();
}

void DeviceRun::settle() noexcept {
  for (const auto& stream : {queue_.stream, queue_.copies, queue_.downloads}) stream->settle();
  in_flight_ = false;
}

// Work that was put on the streams may use memory that a failure is about to give back, so it is waited for first.
template <class Body>
void DeviceRun::settlingOnFailure(const Body& body) {
  in_flight_ = true;
  try {
    body();
  } catch (...) {
    settle();
    throw;
  }
}

// The stream waits for streamed rows before the time begins.
template <class Body>
void DeviceRun::inChunk(const QueueLock& lock, const Dataset::State& data, std::size_t chunk, const Body& body) {
  const std::size_t first = chunk * memory_.chunkRows();
  const std::size_t count = std::min(memory_.chunkRows(), memory_.rows() - first);
  deviceDataOf(data).withRows(lock, first, count, [&](const DeviceRows& rows) {
    timed_ = chunk + 1;
    if (chunk == 0) noteClocks(lock);
    queue_.stream->record(times_[chunk].first);
    body(rows);
    queue_.stream->record(times_[chunk].second);
  });
}

double DeviceRun::kernelSeconds() const {
  double seconds = 0;
  for (const auto& [begin, end] : std::span(times_).first(timed_)) seconds += end.secondsSince(begin);
  return seconds;
}

// Before the first event is recorded, so that no time is negative.
void DeviceRun::noteClocks(const QueueLock& lock) noexcept {
  clocks_.reset();
  if (!isTracing()) return;
  static_cast<void>(guarded([&] { return clocks_ = queue_.clocks(lock, traceBegin()), okStatus(); }));
}

void DeviceRun::trace() const noexcept {
  if (clocks_ == nullptr || timed_ == 0) return;
  static_cast<void>(guarded([&] { return tell(), okStatus(); }));
}

void DeviceRun::tell() const {
  const ServedExpressions served = plan_.code->served();
  const bool is_mixed = (served.interpreted > 0) + (served.direct > 0) + (served.compiled > 0) > 1;
  const std::string_view what = is_mixed              ? "several tiers"
                                : served.direct > 0   ? kDirectCode
                                : served.compiled > 0 ? kCompiledCode
                                                      : kInterpreterCode;
  const TraceNumber numbers[] = {{"outputs", static_cast<double>(plan_.outputs)},
                                 {"rows", static_cast<double>(memory_.rows())}};
  const std::chrono::duration<double> until_begin(times_[0].first.secondsSince(clocks_->first));
  srjit::trace({.kind = TraceKind::kKernel,
                .what = what,
                .device = queue_.name,
                .begin = clocks_->second + std::chrono::duration_cast<TraceClock::duration>(until_begin),
                .seconds = times_[timed_ - 1].second.secondsSince(times_[0].first),
                .numbers = numbers,
                .on_stream = true});
}

void DeviceRun::submitLoss(const Dataset::State& data, std::span<const double> parameters, const Deadline& deadline) {
  fillParameters(parameters);
  const QueueLock lock(queue_);
  settlingOnFailure([&] {
    memory_.copyParameters(*queue_.stream);
    const std::size_t chunks = memory_.chunks();
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      deadline.check();
      inChunk(lock, data, chunk, [&](const DeviceRows& rows) {
        launch(rows);
        launchTotals(rows, chunk == 0, chunk + 1 == chunks);
      });
    }
    const DeviceBuffer& totals = memory_.totals();
    if (memory_.hostTotals() != nullptr) {
      queue_.stream->copyToHost(memory_.hostTotals()->data(), totals.address(), totals.bytes());
    }
    queue_.stream->record(done_);
  });
}

void DeviceRun::submitColumns(const Dataset::State& data) {
  const QueueLock lock(queue_);
  settlingOnFailure([&] {
    memory_.copyParameters(*queue_.stream);
    inChunk(lock, data, 0, [&](const DeviceRows& rows) { launch(rows, rows.columns); });
    queue_.stream->record(done_);
  });
}

bool DeviceRun::ready() {
  if (in_flight_ && done_.ready()) in_flight_ = false;
  return !in_flight_;
}

void DeviceRun::wait() {
  waitBriefly(done_);
  in_flight_ = false;
}

Losses DeviceRun::emptyLosses() const {
  Losses losses;
  losses.values.resize(plan_.outputs);
  losses.valid_rows.resize(plan_.outputs);
  return losses;
}

void DeviceRun::readLosses(const Dataset::State& data, const LossOptions& options, Losses& losses) const {
  const std::size_t count = plan_.outputs;
  if (count == 0) return;
  const double all_weights = data.has_weights ? data.weight_sum : static_cast<double>(data.rows);
  const std::span<const double> totals = memory_.hostTotals()->as<double>();
  const auto read = [&](std::size_t begin, std::size_t end) {
    if (!plan_.kind.loss->skip_invalid) {
      for (std::size_t e = begin; e < end; ++e) losses.valid_rows[e] = validRows(totals[e], data.rows);
      return lossValues(totals.subspan(begin, end - begin), all_weights, data.target_variance, options.kind,
                        std::span(losses.values).subspan(begin, end - begin));
    }
    for (std::size_t e = begin; e < end; ++e) {
      LossSums sums{.terms = totals[e], .rows = data.rows, .valid = countedRows(totals[count + e], data.rows)};
      sums.weights = sums.valid == sums.rows ? all_weights
                     : data.has_weights      ? totals[2 * count + e]
                                             : static_cast<double>(sums.valid);
      takeLoss(losses, e, sums, data, options);
    }
  };
  if (count <= 2 * kLossGrain) return read(0, count);
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, count, kLossGrain),
                    [&](const auto& range) { read(range.begin(), range.end()); });
}

std::span<double> DeviceRun::totals() {
  if (plan_.outputs == 0) return {};
  return memory_.hostTotals()->as<double>().first(plan_.channels() * plan_.outputs);
}

PredictionChunk DeviceRun::launchPredictions(const Dataset::State& data, std::size_t chunk) {
  const std::span<const RunMemory::PredictionBuffer> buffers = memory_.predictions();
  const RunMemory::PredictionBuffer& buffer = buffers[chunk % buffers.size()];
  const std::size_t first = chunk * memory_.chunkRows();
  const QueueLock lock(queue_);
  if (chunk == 0) memory_.copyParameters(*queue_.stream);
  inChunk(lock, data, chunk, [&](const DeviceRows& rows) { launch(rows, buffer.first.address()); });
  queue_.stream->record(buffer.second);
  return {.address = buffer.first.address(),
          .pitch = memory_.predictionPitch(),
          .first_byte = first * element_,
          .bytes = std::min(memory_.chunkRows(), memory_.rows() - first) * element_,
          .ready = &buffer.second};
}

void DeviceRun::evaluate(const Dataset::State& data, std::span<const double> parameters, CopyEnd out,
                         const Deadline& deadline) {
  if (plan_.outputs == 0) return;
  settlingOnFailure([&] {
    fillParameters(parameters);
    if (!download_) download_.emplace(queue_);
    const auto launch = [&](std::size_t chunk) {
      deadline.check();
      return launchPredictions(data, chunk);
    };
    out.pitch = memory_.rows() * element_;
    download_->run(out, plan_.outputs, memory_.chunks(), memory_.predictions().size(), launch);
  });
  in_flight_ = false;
}

namespace {

// Small runs hold little device memory, but events, pinned memory and graphs.
constexpr std::size_t kMaxRuns = 64;

}  // namespace

void IdleRuns::move(Entries::iterator entry, Entries& to) {
  bytes_ -= entry->first->deviceBytes();
  to.splice(to.end(), entries_, entry);
}

std::unique_ptr<DeviceRun> IdleRuns::take(const RunPlan& plan) {
  Entries taken;
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(),
                                  [&](const auto& entry) { return plan.fitsRunOf(entry.first->plan()); });
  if (found == entries_.rend()) return nullptr;
  move(std::prev(found.base()), taken);
  return std::move(taken.front().first);
}

void IdleRuns::keep(std::unique_ptr<DeviceRun> run, std::weak_ptr<const void> owner) {
  Entries dropped;
  const std::lock_guard lock(mutex_);
  entries_.emplace_back(std::move(run), std::move(owner));
  bytes_ += entries_.back().first->deviceBytes();
  while (entries_.size() > 1 && (bytes_ > max_bytes_ || entries_.size() > kMaxRuns)) move(entries_.begin(), dropped);
}

void IdleRuns::dropOrphans() {
  Entries dropped;
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (entry->second.expired()) move(entry, dropped);
    entry = next;
  }
}

void IdleRuns::clear() {
  Entries dropped;
  const std::lock_guard lock(mutex_);
  std::swap(dropped, entries_);
  bytes_ = 0;
}

std::size_t IdleRuns::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace srjit

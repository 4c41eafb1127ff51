#include "runtime/launch/run.h"

#include <algorithm>
#include <utility>

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include "runtime/evaluation/loss_value.h"
#include "runtime/platform/guarded.h"
#include "runtime/platform/trace.h"

namespace srjit {
namespace {

// Losses that one task reads: 5 to 30 us by their kind (2-core virtual machine); waking a thread takes as long.
constexpr std::size_t kLossGrain = 1 << 13;

}  // namespace

DeviceRun::DeviceRun(RunPlan plan, const Dataset::State& data, std::size_t budget)
    : plan_(std::move(plan)),
      queue_(*plan_.queue),
      done_(queue_.cuda),
      memory_(plan_, data, budget),
      launcher_(plan_, memory_) {
  for (std::size_t chunk = 0; chunk < memory_.chunks(); ++chunk) {
    times_.push_back({Event(queue_.cuda, Event::Timing::kOn), Event(queue_.cuda, Event::Timing::kOn)});
  }
}

Result<std::unique_ptr<DeviceRun>> DeviceRun::create(RunPlan plan, const Dataset::State& data, std::size_t budget) {
  std::unique_ptr<DeviceRun> run(new DeviceRun(std::move(plan), data, budget));
  if (Status prepared = run->launcher_.prepare(); !prepared) return std::move(prepared).error();
  return run;
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
  StagedRows staged = deviceDataOf(data).stage(lock, first, std::min(memory_.chunkRows(), memory_.rows() - first));
  timed_ = chunk + 1;
  if (chunk == 0) noteClocks(lock);
  queue_.stream->record(times_[chunk].begin);
  body(staged.rows());
  queue_.stream->record(times_[chunk].end);
  staged.release();
}

double DeviceRun::kernelSeconds() const {
  double seconds = 0;
  for (const ChunkTime& time : std::span(times_).first(timed_)) seconds += time.end.secondsSince(time.begin);
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
  const std::chrono::duration<double> until_begin(times_[0].begin.secondsSince(clocks_->event));
  srjit::trace({.kind = TraceKind::kKernel,
                .what = what,
                .device = queue_.name,
                .begin = clocks_->time + std::chrono::duration_cast<TraceClock::duration>(until_begin),
                .seconds = times_[timed_ - 1].end.secondsSince(times_[0].begin),
                .numbers = numbers},
               TracePlace::kStream);
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
        launcher_.launch(lock, rows);
        launcher_.launchTotals(lock, rows, chunk == 0, chunk + 1 == chunks);
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
    inChunk(lock, data, 0, [&](const DeviceRows& rows) { launcher_.launch(lock, rows, rows.columns); });
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
  return memory_.hostTotals()->as<double>().first(plan_.outputs);
}

PredictionChunk DeviceRun::launchPredictions(const Dataset::State& data, std::size_t chunk) {
  const std::span<const RunMemory::PredictionBuffer> buffers = memory_.predictions();
  const RunMemory::PredictionBuffer& buffer = buffers[chunk % buffers.size()];
  const std::size_t element = plan_.elementBytes();
  const std::size_t first = chunk * memory_.chunkRows();
  const QueueLock lock(queue_);
  if (chunk == 0) memory_.copyParameters(*queue_.stream);
  inChunk(lock, data, chunk, [&](const DeviceRows& rows) { launcher_.launch(lock, rows, buffer.memory.address()); });
  queue_.stream->record(buffer.ready);
  return {.address = buffer.memory.address(),
          .pitch = memory_.predictionPitch(),
          .first_byte = first * element,
          .bytes = std::min(memory_.chunkRows(), memory_.rows() - first) * element,
          .ready = &buffer.ready};
}

void DeviceRun::evaluate(const Dataset::State& data, std::span<const double> parameters, const Download::Output& out,
                         const Deadline& deadline) {
  if (plan_.outputs == 0) return;
  settlingOnFailure([&] {
    fillParameters(parameters);
    if (!download_) download_.emplace(queue_);
    const auto launch = [&](std::size_t chunk) {
      deadline.check();
      return launchPredictions(data, chunk);
    };
    download_->run({out, plan_.outputs, memory_.rows() * plan_.elementBytes()}, memory_.chunks(),
                   memory_.predictions().size(), launch);
  });
  in_flight_ = false;
}

}  // namespace srjit

#include "runtime/launch/run_memory.h"

#include <algorithm>

#include "runtime/gpu/download.h"

namespace srjit {
namespace {

// Predictions of more bytes than this are made in chunks, multiples of a tile's rows. Kernels of smaller chunks would
// not fill the device.
constexpr std::size_t kManyPredictionBytes = std::size_t{32} << 20, kPredictionQuantum = 1024;

bool isOutOfMemory(const CudaFailure& failure) { return failure.code() == CUDA_ERROR_OUT_OF_MEMORY; }

/// What chunks of rows are multiples of.
std::size_t chunkQuantum(const RunPlan& plan, const Dataset::State& data) {
  return plan.kind.loss || deviceDataOf(data).isStreamed() ? kChunkQuantum : kPredictionQuantum;
}

/// The rows of a chunk, if memory is not short.
std::size_t wantedChunkRows(const RunPlan& plan, const Dataset::State& data) {
  const std::size_t element = plan.elementBytes();
  std::size_t chunk_rows = std::min<std::size_t>(data.rows, deviceDataOf(data).chunkRows());
  if (plan.code->direct) chunk_rows = std::min<std::size_t>(chunk_rows, directMaxRows(plan.precision()));
  const bool to_host = !plan.kind.loss && !plan.into_columns;
  if (to_host && plan.outputs * data.rows * element > kManyPredictionBytes) {
    const std::size_t wanted = std::min(ceilDivide(data.rows, kPredictionChunks), kMaxChunkBytesOfExpression / element);
    chunk_rows = std::min(chunk_rows, roundUp(wanted, chunkQuantum(plan, data)));
  }
  return chunk_rows;
}

}  // namespace

RunMemory::RunMemory(const RunPlan& plan, const Dataset::State& data, std::size_t budget) : rows_(data.rows) {
  const std::size_t quantum = chunkQuantum(plan, data);
  setChunkRows(plan, data, wantedChunkRows(plan, data));
  while (!take(plan, budget, chunk_rows_ <= quantum)) {
    setChunkRows(plan, data, std::max(quantum, chunk_rows_ / 2 / quantum * quantum));
  }
}

std::size_t RunMemory::bytes() const noexcept {
  std::size_t bytes = parameters_.bytes() + sums_.bytes() + chains_.bytes() + totals_.bytes();
  for (const PredictionBuffer& buffer : predictions_) bytes += buffer.first.bytes();
  return bytes;
}

void RunMemory::setChunkRows(const RunPlan& plan, const Dataset::State& data, std::size_t rows) noexcept {
  chunk_rows_ = rows;
  prediction_pitch_ = (plan.into_columns ? data.column_stride : roundUp(rows, 4)) * plan.elementBytes();
}

std::size_t RunMemory::chunkBytes(const RunPlan& plan) const noexcept {
  if (!plan.kind.loss) return plan.outputs * prediction_pitch_;
  return plan.channels() * plan.outputs * ceilDivide(chunk_rows_, kGroupRows) * plan.elementBytes();
}

// False if the chunk should be smaller; on the last try, failures of the driver go through.
bool RunMemory::take(const RunPlan& plan, std::size_t budget, bool last_try) {
  const std::size_t chunk_bytes = chunkBytes(plan);
  const std::size_t buffers = plan.kind.loss || chunks() == 1 ? 1 : 2;
  if (buffers * chunk_bytes > budget && !last_try) return false;
  const DeviceQueue& queue = plan.store->queue();
  try {
    const std::size_t parameter_bytes = plan.code->parameters.bytes(plan.precision());
    parameters_ = DeviceBuffer(queue.stream, parameter_bytes);
    host_parameters_ = queue.pinned.take(parameter_bytes);
    if (host_parameters_ != nullptr) {
      plan.code->parameters.writeLiterals(plan.precision(), static_cast<std::byte*>(host_parameters_->data()));
    }
    if (plan.into_columns) return true;
    if (plan.kind.loss) {
      takeSums(plan, chunk_bytes);
    } else {
      takePredictionBuffers(plan, buffers, chunk_bytes, budget, last_try);
    }
  } catch (const CudaFailure& failure) {
    // Columns are written at once, and take no memory that smaller chunks would save.
    if (!isOutOfMemory(failure) || last_try || plan.into_columns) throw;
    return false;
  }
  return true;
}

void RunMemory::takeSums(const RunPlan& plan, std::size_t chunk_bytes) {
  const DeviceQueue& queue = plan.store->queue();
  sums_ = DeviceBuffer(queue.stream, chunk_bytes);
  // Kernels write no sums of failed expressions, but the totals are of all.
  if (!plan.code->failures.empty()) queue.stream->fill(sums_.address(), 0, chunk_bytes);
  const std::size_t total_bytes = plan.channels() * plan.outputs * sizeof(double);
  totals_ = DeviceBuffer(queue.stream, total_bytes);
  if (chunk_rows_ < rows_) chains_ = DeviceBuffer(queue.stream, total_bytes * kSumChains);
  host_totals_ = queue.pinned.take(total_bytes);
}

// On the last try, one buffer is enough where two do not fit.
void RunMemory::takePredictionBuffers(const RunPlan& plan, std::size_t count, std::size_t chunk_bytes,
                                      std::size_t budget, bool last_try) {
  predictions_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0 && last_try && count * chunk_bytes > budget) return;
    try {
      predictions_.emplace_back(DeviceBuffer(plan.store->queue().stream, chunk_bytes), Event(plan.store->queue().cuda));
    } catch (const CudaFailure& failure) {
      if (i == 0 || !last_try || !isOutOfMemory(failure)) throw;
      return;
    }
  }
}

void RunMemory::fillParameters(const ParameterTable& table, std::span<const double> parameters, Precision precision) {
  if (host_parameters_ == nullptr) return;
  table.fill(parameters, precision, static_cast<std::byte*>(host_parameters_->data()));
}

void RunMemory::copyParameters(const Stream& stream) const {
  if (parameters_.bytes() == 0) return;
  stream.copyToDevice(parameters_.address(), host_parameters_->data(), parameters_.bytes());
}

}  // namespace srjit

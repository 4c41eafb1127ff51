// A data set as kernels see it: in the memory of a GPU, all of it or in chunks of rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "ir/error.h"
#include "runtime/data_view.h"
#include "runtime/evaluation/dataset_state.h"
#include "runtime/gpu/queue.h"

namespace srjit {

/// Some adjacent rows as kernels get them (compiler/nvptx/options.h); strides in elements.
struct DeviceRows {
  CUdeviceptr columns = 0;
  std::uint64_t column_stride = 0;
  std::uint64_t row_stride = 1;
  std::uint64_t rows = 0;
  CUdeviceptr target = 0;   ///< 0 without one
  CUdeviceptr weights = 0;  ///< 0 without

  friend bool operator==(const DeviceRows&, const DeviceRows&) = default;
};

/// Chunks begin at multiples of this many rows, so that the chains of a loss go on from one to the next.
inline constexpr std::size_t kChunkQuantum = kGroupRows * kSumChains;

/// A data set on a device. Invariant: resident data are on the device as a whole; streamed data are in pinned memory of
/// the host, and chunks of their rows alternate between two buffers of the device. Thread-safe. Throws CudaFailure.
class DeviceData final : public Residence {
 public:
  /// Copies state.storage to the device and frees it; or, if `budget` bytes do not hold it or the device has no room,
  /// keeps it and pins it, to be streamed. Resident data get as many spare columns behind it as `spare_bytes` hold, if
  /// the device has room for them, too. Needs a current context.
  DeviceData(std::shared_ptr<DeviceQueue> queue, Dataset::State& state, std::size_t budget,
             std::size_t spare_bytes = 0);
  ~DeviceData() override;
  /// A data set with columns of the caller, and copies of target and weights. Errors: as Engine::adopt's. Needs a
  /// current context.
  static Result<std::shared_ptr<Dataset::State>> adopt(const std::shared_ptr<DeviceQueue>& queue,
                                                       const DeviceDataView& view, Precision precision);

  /// The data set that is made of `from`, whose numbers are on the queue's device or in host memory: resident or
  /// streamed as that of the constructor. Columns of resident data are copied on the device, unless there
  /// is no room for the copy. Errors: as Engine::rows() and withWeights(). Needs a current context.
  static Result<std::shared_ptr<Dataset::State>> select(const std::shared_ptr<DeviceQueue>& queue,
                                                        const Dataset::State& from, const Selection& selection,
                                                        std::size_t budget, std::size_t spare_bytes);

  /// Whether work of this queue may use it. Streamed rows go through the buffers of one engine's queue.
  bool belongsTo(const DeviceQueue& queue) const noexcept { return streamed_ == nullptr || queue_.get() == &queue; }
  bool isStreamed() const noexcept { return streamed_ != nullptr; }
  bool isStrided() const noexcept { return strided_; }
  /// The strides of all rows, and the addresses of resident data.
  const DeviceRows& layout() const noexcept { return all_; }
  /// Whether the target, and weights if any, are the columns behind `columns` others.
  bool hasTargetBehind(std::size_t columns) const noexcept;
  std::size_t spareColumns() const noexcept { return spare_columns_; }
  std::uint32_t firstSpareColumn() const noexcept { return first_spare_column_; }
  /// The values kept in the spare columns; null if none are. Set once, before others have the data.
  const std::shared_ptr<Residence>& kept() const noexcept { return kept_; }
  void setKept(std::shared_ptr<Residence> kept) { kept_ = std::move(kept); }
  SubtreeStats subtrees() const override { return kept_ == nullptr ? SubtreeStats{} : kept_->subtrees(); }
  /// The most rows that withRows() takes at once.
  std::size_t chunkRows() const noexcept;

  /// Calls `use` with rows first .. first + count, for work that it puts on the queue's stream. Streamed rows are
  /// copied to the device, and the stream waits for the copy; their memory may get other rows after that work. `first`
  /// is a multiple of kChunkQuantum if streamed, of 4 otherwise. If `use` throws for streamed rows, waits for the
  /// stream.
  void withRows(const QueueLock&, std::size_t first, std::size_t count,
                const std::function<void(const DeviceRows& rows)>& use);

 private:
  struct Streamed;
  DeviceData(std::shared_ptr<DeviceQueue> queue, Precision precision);
  /// False if the device has no room.
  bool allocate(std::size_t bytes);
  /// Takes uninitialised memory for all fields of `state`. False if `budget` bytes do not hold them or the device has
  /// no room.
  bool fitResident(const Dataset::State& state, std::size_t budget, std::size_t spare_bytes);
  void stream(Dataset::State& state, std::size_t budget);
  /// Sets all_ for fields that begin `stride` elements after one another.
  void layOut(const Dataset::State& state, std::size_t stride);
  Status fillFrom(const Dataset::State& from, const Selection& selection, SelectedData& selected);
  Status adoptColumns(Dataset::State& state, const DeviceMatrix& columns);

  std::shared_ptr<DeviceQueue> queue_;
  DeviceBuffer storage_;
  DeviceRows all_;
  std::size_t element_ = 4;
  bool strided_ = false;
  std::size_t spare_columns_ = 0;
  std::uint32_t first_spare_column_ = 0;
  std::shared_ptr<Streamed> streamed_;
  std::shared_ptr<Residence> kept_;  ///< destroyed first: it waits for kernels that fill the columns
};

/// What an executor on a GPU has placed. Precondition: it has placed the data.
inline DeviceData& deviceDataOf(const Dataset::State& data) noexcept {
  return static_cast<DeviceData&>(*data.residence);
}

/// Has uploads and kernels of the queue wait for the work that is in the stream now; for none if it is 0. Needs a
/// current context. Throws CudaFailure.
void waitForWriter(const DeviceQueue& queue, std::uint64_t stream);

/// Errors: kUnsupported for memory that is not the queue's device's. Needs a current context.
Status checkOwner(const char* what, const DeviceQueue& queue, const DeviceMatrix& matrix);

/// Errors: kInvalid for another precision or size, and for a matrix without rows.
Status checkMatrix(const char* what, const DeviceMatrix& matrix, std::size_t rows, std::size_t columns,
                   Precision precision);

/// Copies one column, target or weights, which are checked on the host, as those of Engine::upload() are. Errors: those
/// of checkMatrix(), kInvalid for a stride that is not positive, kUnsupported for memory that is not the device's.
/// Needs a current context. Throws CudaFailure and OutOfMemory.
Result<AlignedBuffer> fetchColumn(const char* what, const DeviceQueue& queue, const DeviceMatrix& matrix,
                                  std::size_t rows, Precision precision);

}  // namespace srjit

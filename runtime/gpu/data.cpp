#include "runtime/gpu/data.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/evaluation/dataset_state.h"

namespace srjit {

namespace {

// Enough for copies to run at full speed; more would only take memory from others.
constexpr std::size_t kMaxChunkBytes = std::size_t{128} << 20;

}  // namespace

/// Rows that stay in host memory and are copied chunk by chunk into two buffers alternately.
struct DeviceData::Streamed {
  Streamed(const DeviceQueue& queue, Dataset::State& state, std::size_t field_count, std::size_t budget)
      : pinned(queue.cuda, state.storage.data(), state.storage.size()),
        host(state.storage.data()),
        host_stride(state.column_stride),
        fields(field_count) {
    const std::size_t row_bytes = field_count * static_cast<std::size_t>(bytesOf(state.precision));
    const std::size_t most = std::min(budget / 2, kMaxChunkBytes) / row_bytes / kChunkQuantum * kChunkQuantum;
    chunk_rows = std::clamp(most, kChunkQuantum, roundUp(state.rows, kChunkQuantum));
    for (Buffer& buffer : buffers) {
      buffer.memory = DeviceBuffer(queue.stream, chunk_rows * row_bytes);
      buffer.copied.emplace(queue.cuda);
      buffer.used.emplace(queue.cuda);
      // The pool hands out memory in the order of `stream`; `copies` must not write before that.
      queue.stream->record(*buffer.used);
    }
  }

  struct Buffer {
    DeviceBuffer memory;
    std::optional<Event> copied, used;
  };
  PinnedRegion pinned;
  const std::byte* host;
  std::size_t host_stride;
  std::size_t fields;
  std::size_t chunk_rows = 0;
  std::array<Buffer, 2> buffers;  ///< used alternately
  std::size_t current = 0;
};

DeviceData::~DeviceData() = default;

DeviceData::DeviceData(std::shared_ptr<DeviceQueue> queue, Precision precision)
    : queue_(std::move(queue)), element_(static_cast<std::size_t>(bytesOf(precision))) {}

bool DeviceData::allocate(std::size_t bytes) {
  try {
    storage_ = DeviceBuffer(queue_->uploads, bytes);
    return true;
  } catch (const CudaFailure& failure) {
    if (failure.code() != CUDA_ERROR_OUT_OF_MEMORY) throw;
    return false;
  }
}

// Spare columns are allocated only if the storage with them takes at most half of the free memory.
bool DeviceData::fitResident(const Dataset::State& state, std::size_t budget, std::size_t spare_bytes) {
  const std::size_t bytes = state.storageBytes(), column_bytes = state.column_stride * element_;
  if (bytes > budget) return false;
  const std::size_t spare = std::min(spare_bytes / column_bytes, kMostSpareColumns);
  const std::size_t with_spare = bytes + spare * column_bytes;
  if (spare > 0 && with_spare <= queue_->cuda->freeMemory() / 2 && allocate(with_spare)) {
    spare_columns_ = spare;
    first_spare_column_ = static_cast<std::uint32_t>(bytes / column_bytes);
  } else if (!allocate(bytes)) {
    return false;
  }
  all_.columns = storage_.address();
  layOut(state, state.column_stride);
  return true;
}

void DeviceData::stream(Dataset::State& state, std::size_t budget) {
  streamed_ = std::make_shared<Streamed>(*queue_, state, state.fields(), budget);
  // Relative to the buffer that holds the chunk.
  layOut(state, streamed_->chunk_rows);
}

void DeviceData::layOut(const Dataset::State& state, std::size_t stride) {
  all_.rows = state.rows;
  all_.column_stride = stride;
  if (state.has_target) all_.target = all_.columns + state.columns * stride * element_;
  if (state.has_weights) all_.weights = all_.columns + (state.fields() - 1) * stride * element_;
}

DeviceData::DeviceData(std::shared_ptr<DeviceQueue> queue, Dataset::State& state, std::size_t budget,
                       std::size_t spare_bytes)
    : DeviceData(std::move(queue), state.precision) {
  if (!fitResident(state, budget, spare_bytes)) {
    stream(state, budget);
    return;
  }
  queue_->uploads->complete(
      [&] { queue_->uploads->copyToDevice(storage_.address(), state.storage.data(), state.storage.size()); });
  state.storage = {};
  state.target = state.weights = nullptr;
}

Result<std::shared_ptr<Dataset::State>> DeviceData::adopt(const std::shared_ptr<DeviceQueue>& queue,
                                                          const DeviceDataView& view, Precision precision) {
  waitForWriter(*queue, view.stream);
  const std::size_t rows = view.columns.rows;
  if (Status fits = checkMatrix("columns", view.columns, rows, view.columns.columns, precision); !fits) {
    return std::move(fits).error();
  }
  auto state = std::make_shared<Dataset::State>();
  if (view.target) {
    DataView host;
    Result<AlignedBuffer> target = fetchColumn("the target", *queue, *view.target, rows, precision);
    if (!target) return std::move(target).error();
    host.target = columnOf(*target, rows, precision);
    std::optional<Result<AlignedBuffer>> weights;
    if (view.weights) {
      weights = fetchColumn("the weights", *queue, *view.weights, rows, precision);
      if (!*weights) return std::move(*weights).error();
      host.weights = columnOf(**weights, rows, precision);
    }
    auto made = Dataset::State::create(host, precision);
    if (!made) return std::move(made).error();
    state = std::move(*made);
  } else if (view.weights) {
    return Error{Errc::kInvalid, "weights without a target", {}};
  }
  state->rows = rows;
  state->columns = view.columns.columns;
  state->names = view.names;
  state->precision = precision;
  std::shared_ptr<DeviceData> data(new DeviceData(queue, precision));
  if (Status adopted = data->adoptColumns(*state, view.columns); !adopted) return std::move(adopted).error();
  state->residence = std::move(data);
  return state;
}

Status DeviceData::adoptColumns(Dataset::State& state, const DeviceMatrix& columns) {
  const auto element = static_cast<std::ptrdiff_t>(element_);
  if (columns.row_stride % element != 0 || columns.column_stride % element != 0) {
    return Error{Errc::kInvalid,
                 fmt::format("strides of {} and {} bytes: expected multiples of {}", columns.row_stride,
                             columns.column_stride, element),
                 {}};
  }
  if (columns.columns != 0) {
    if (Status own = checkOwner("columns", *queue_, columns); !own) return own;
  }
  if (const std::size_t bytes = state.storage.size(); bytes != 0) {
    storage_ = DeviceBuffer(queue_->uploads, bytes);
    queue_->uploads->complete([&] { queue_->uploads->copyToDevice(storage_.address(), state.storage.data(), bytes); });
    all_.target = storage_.address();
    if (state.has_weights) all_.weights = all_.target + state.column_stride * element_;
    state.storage = {};
    state.target = state.weights = nullptr;
  }
  all_.rows = state.rows;
  all_.columns = columns.pointer;
  all_.row_stride = static_cast<std::uint64_t>(columns.row_stride / element);
  all_.column_stride = static_cast<std::uint64_t>(columns.column_stride / element);
  // Kernels read four rows at once. The last column may end before such a read does.
  const bool one_column = columns.columns <= 1;
  strided_ = columns.row_stride != element || columns.pointer % 16 != 0 || columns.rows % 4 != 0 ||
             (!one_column && (columns.column_stride % 16 != 0 || columns.column_stride < 0));
  return okStatus();
}

bool DeviceData::hasTargetBehind(std::size_t columns) const noexcept {
  if (streamed_ != nullptr) return true;
  const CUdeviceptr column_bytes = all_.column_stride * element_;
  const bool has_weights_behind = all_.weights == 0 || all_.weights == all_.target + column_bytes;
  return !strided_ && all_.target == all_.columns + columns * column_bytes && has_weights_behind;
}

std::size_t DeviceData::chunkRows() const noexcept {
  return streamed_ == nullptr ? static_cast<std::size_t>(all_.rows) : streamed_->chunk_rows;
}

void DeviceData::withRows(const QueueLock&, std::size_t first, std::size_t count,
                          const std::function<void(const DeviceRows& rows)>& use) {
  DeviceRows part = all_;
  part.rows = count;
  if (streamed_ == nullptr) {
    part.columns += first * static_cast<std::size_t>(all_.row_stride) * element_;
    if (part.target != 0) part.target += first * element_;
    if (part.weights != 0) part.weights += first * element_;
    return use(part);
  }
  Streamed& s = *streamed_;
  s.current ^= 1;
  Streamed::Buffer& buffer = s.buffers[s.current];
  queue_->copies->wait(*buffer.used);
  queue_->copies->copyRows({buffer.memory.address(), s.chunk_rows * element_},
                           {s.host + first * element_, s.host_stride * element_},
                           std::min(roundUp(count, 4), s.chunk_rows) * element_, s.fields);
  queue_->copies->record(*buffer.copied);
  queue_->stream->wait(*buffer.copied);
  part.columns = buffer.memory.address();
  part.target += buffer.memory.address();
  part.weights += buffer.memory.address();
  try {
    use(part);
    queue_->stream->record(*buffer.used);
  } catch (...) {
    queue_->stream->settle();
    throw;
  }
}

void waitForWriter(const DeviceQueue& queue, std::uint64_t stream) {
  if (stream == 0) return;
  const Event written(queue.cuda);
  const auto writer = reinterpret_cast<CUstream>(stream);  // NOLINT: the interface hands out handles as numbers
  queue.cuda->check(queue.cuda->driver().cuEventRecord(written.get(), writer), "cuEventRecord");
  queue.uploads->wait(written);
  queue.stream->wait(written);
}

Status checkOwner(const char* what, const DeviceQueue& queue, const DeviceMatrix& matrix) {
  if (queue.cuda->owns(matrix.pointer)) return okStatus();
  return Error{Errc::kUnsupported,
               fmt::format("{} at {:#x}, which is not memory of {}", what, matrix.pointer, queue.cuda->limits().name),
               {}};
}

Status checkMatrix(const char* what, const DeviceMatrix& matrix, std::size_t rows, std::size_t columns,
                   Precision precision) {
  if (matrix.type != precision) {
    return Error{Errc::kInvalid,
                 fmt::format("{} in {}, but the engine computes in {}", what, nameOf(matrix.type), nameOf(precision)),
                 {}};
  }
  if (matrix.rows != rows || matrix.columns != columns) {
    return Error{
        Errc::kInvalid,
        fmt::format("{} of {} rows x {} columns, expected {} x {}", what, matrix.rows, matrix.columns, rows, columns),
        {}};
  }
  if (matrix.rows == 0) return Error{Errc::kInvalid, "data without rows", {}};
  return okStatus();
}

Result<AlignedBuffer> fetchColumn(const char* what, const DeviceQueue& queue, const DeviceMatrix& matrix,
                                  std::size_t rows, Precision precision) {
  if (Status fits = checkMatrix(what, matrix, rows, 1, precision); !fits) return std::move(fits).error();
  const auto element = static_cast<std::size_t>(bytesOf(precision));
  if (matrix.row_stride < static_cast<std::ptrdiff_t>(element)) {
    return Error{Errc::kInvalid, fmt::format("{} with a stride of {} bytes", what, matrix.row_stride), {}};
  }
  if (Status own = checkOwner(what, queue, matrix); !own) return std::move(own).error();
  AlignedBuffer column(rows * element);
  queue.uploads->complete([&] {
    queue.uploads->copyRows({column.data(), element}, {matrix.pointer, static_cast<std::size_t>(matrix.row_stride)},
                            element, rows);
  });
  return column;
}

namespace {

/// Fields on the device that lie in the same way; strides in bytes.
struct FieldBand {
  CUdeviceptr first;
  std::ptrdiff_t row_stride, field_stride;
  std::size_t fields;
};

/// The first `fields` fields of resident data.
std::vector<FieldBand> bandsOf(const Dataset::State& data, std::size_t fields) {
  const DeviceRows& layout = deviceDataOf(data).layout();
  const auto element = static_cast<std::ptrdiff_t>(bytesOf(data.precision));
  const auto inBytes = [&](std::uint64_t stride) { return static_cast<std::ptrdiff_t>(stride) * element; };
  FieldBand columns{layout.columns, inBytes(layout.row_stride), inBytes(layout.column_stride), data.columns};
  if (data.has_target && deviceDataOf(data).hasTargetBehind(data.columns)) {
    columns.fields = fields;
    return {columns};
  }
  std::vector<FieldBand> bands = {columns};
  std::size_t left = fields - data.columns;
  if (data.has_target) bands.push_back({layout.target, element, 0, 1}), --left;
  if (left > 0) bands.push_back({layout.weights, element, 0, 1});
  return bands;
}

/// Copies bands of fields to fields at the pitch of `to`, with few calls.
class BandCopier {
 public:
  BandCopier(const Stream& stream, const CopyEnd& to, std::size_t element)
      : stream_(stream), to_(to), element_(element) {}

  /// The copy begins `offset` bytes behind `to`.
  void add(const FieldBand& band, const RowRun& run, std::size_t offset) const {
    const CUdeviceptr from = moved(band.first, run.first, band.row_stride);
    const auto element = static_cast<std::ptrdiff_t>(element_);
    const CopyEnd to = to_ + offset;
    if (band.row_stride == element || run.count == 1) {
      copyApart(to, from, band.field_stride, run.count * element_, band.fields);
    } else if (band.row_stride < element || run.count < band.fields) {
      for (std::size_t r = 0; r < run.count; ++r) {
        copyApart(to + r * element_, moved(from, r, band.row_stride), band.field_stride, element_, band.fields);
      }
    } else {
      for (std::size_t f = 0; f < band.fields; ++f) {
        CopyEnd values = to + f * to.pitch;
        values.pitch = element_;
        copyApart(values, moved(from, f, band.field_stride), band.row_stride, element_, run.count);
      }
    }
  }

 private:
  static CUdeviceptr moved(CUdeviceptr from, std::size_t steps, std::ptrdiff_t stride) {
    return from + static_cast<CUdeviceptr>(static_cast<std::ptrdiff_t>(steps) * stride);
  }
  // The driver takes no pitch that is negative or lets the pieces overlap.
  void copyApart(const CopyEnd& to, CUdeviceptr from, std::ptrdiff_t stride, std::size_t bytes,
                 std::size_t pieces) const {
    if (stride >= static_cast<std::ptrdiff_t>(bytes)) {
      return stream_.copyRows(to, {from, static_cast<std::size_t>(stride)}, bytes, pieces);
    }
    for (std::size_t i = 0; i < pieces; ++i) {
      stream_.copyRows(to + i * to.pitch, {moved(from, i, stride), bytes}, bytes, 1);
    }
  }

  const Stream& stream_;
  CopyEnd to_;
  std::size_t element_;
};

/// Copies the rows of fields of resident data to fields at the pitch of `to`.
void copySelected(const Stream& stream, const Dataset::State& from, const Selection& selection, const CopyEnd& to) {
  const auto element = static_cast<std::size_t>(bytesOf(from.precision));
  const BandCopier copier(stream, to, element);
  std::size_t field = 0;
  for (const FieldBand& band : bandsOf(from, selection.copiedFields(from))) {
    std::size_t at = field * to.pitch;
    for (const RowRun& run : selection.runs) {
      if (band.fields > 0) copier.add(band, run, at);
      at += run.count * element;
    }
    field += band.fields;
  }
}

}  // namespace

Result<std::shared_ptr<Dataset::State>> DeviceData::select(const std::shared_ptr<DeviceQueue>& queue,
                                                           const Dataset::State& from, const Selection& selection,
                                                           std::size_t budget, std::size_t spare_bytes) {
  auto selected = beginSelection(from, selection);
  if (!selected) return std::move(selected).error();
  const std::shared_ptr<Dataset::State> state = selected->state;
  std::shared_ptr<DeviceData> data(new DeviceData(queue, from.precision));
  if (data->fitResident(*state, budget, spare_bytes)) {
    if (Status filled = data->fillFrom(from, selection, *selected); !filled) return std::move(filled).error();
  } else {
    const Stream& stream = *queue->uploads;
    const auto download = [&] {
      copySelected(stream, from, selection, {state->storage.data(), state->column_stride * data->element_});
    };
    const auto made = from.isOnHost() ? finishOnHost(std::move(*selected), from, selection)
                                      : finishSelection(std::move(*selected), [&] { stream.complete(download); });
    if (!made) return made.error();
    data->stream(*state, budget);
  }
  state->residence = std::move(data);
  return state;
}

Status DeviceData::fillFrom(const Dataset::State& from, const Selection& selection, SelectedData& selected) {
  Dataset::State& to = *selected.state;
  const Stream& stream = *queue_->uploads;
  const std::size_t pitch = to.column_stride * element_, copied = selection.copiedFields(from);
  // Target and weights that are copied.
  AlignedBuffer read((copied - to.columns) * to.padded_rows * element_);
  const auto copyRuns = [&] {
    CopyEnd next(storage_.address(), pitch);
    if (!from.isOnHost()) return copySelected(stream, from, selection, next);
    for (const RowRun& run : selection.runs) {
      stream.copyRows(next, {from.column(0) + run.first * element_, from.column_stride * element_},
                      run.count * element_, copied);
      next = next + run.count * element_;
    }
  };
  // Kernels read four rows at once, and no more padding than that.
  const auto pad = [&] {
    const CUdeviceptr end = storage_.address() + to.rows * element_;
    const std::size_t count = roundUp(to.rows, 4) - to.rows, values = to.columns + (to.has_target ? 1 : 0);
    for (std::size_t i = 0; i < count; ++i) {
      stream.copyRows({end + i * element_, pitch}, {end - element_, pitch}, element_, values);
    }
    if (selection.weights) {
      stream.copyToDevice(all_.weights, selected.weights.data(), (to.rows + count) * element_);
    } else if (to.has_weights) {
      stream.fill(all_.weights + to.rows * element_, 0, count * element_);
    }
  };
  stream.complete([&] {
    copyRuns();
    pad();
    stream.copyRows({read.data(), to.padded_rows * element_}, {storage_.address() + to.columns * pitch, pitch},
                    to.rows * element_, copied - to.columns);
  });
  const std::byte* const target = to.has_target ? read.data() : nullptr;
  if (!to.has_weights) return to.describe(target, nullptr);
  if (selection.weights) return to.describe(target, selected.weights.data());
  std::byte* const weights = read.data() + read.size() - to.padded_rows * element_;
  std::memset(weights + to.rows * element_, 0, (to.padded_rows - to.rows) * element_);
  return to.describe(target, weights);
}

}  // namespace srjit

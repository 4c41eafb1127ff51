// Data sets that are made of another one on a device.
#include "runtime/evaluation/selection.h"

#include <cstring>
#include <utility>
#include <vector>

#include "runtime/gpu/data.h"

namespace srjit {
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

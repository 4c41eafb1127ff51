// Memory of a GPU that a test allocates itself: columns, and other arrays.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "runtime/cuda/handles.h"
#include "tests/gpu/machine.h"

namespace srjit {

/// The layout of a matrix, in elements.
struct Layout {
  std::size_t offset, row_stride, column_stride;

  static Layout contiguous(std::size_t rows) { return {0, 1, rows + (4 - rows % 4) % 4}; }
  static Layout rowMajor(std::size_t columns) { return {0, columns, 1}; }
};

/// Device memory of a caller. Throws CudaFailure.
class ForeignMemory {
 public:
  ForeignMemory() : cuda_(Cuda::open(loadDriver().value(), deviceOrdinal()).value()), current_(*cuda_) {
    stream_ = std::make_shared<const Stream>(cuda_);
  }

  /// Copies the columns in this layout; gaps hold NaN.
  DeviceMatrix put(std::span<const std::vector<double>> columns, const Layout& layout, Precision precision) {
    return precision == Precision::kF32 ? putAs<float>(columns, layout) : putAs<double>(columns, layout);
  }
  /// Copies the values as they are.
  template <class T>
  CUdeviceptr putValues(std::span<const T> values) {
    buffers_.emplace_back(stream_, values.size_bytes());
    stream_->copyToDevice(buffers_.back().address(), values.data(), values.size_bytes());
    stream_->synchronize();
    return buffers_.back().address();
  }
  /// After all work of the stream.
  template <class T>
  std::vector<T> read(CUdeviceptr from, std::size_t count) const {
    std::vector<T> values(count);
    stream_->copyToHost(values.data(), from, count * sizeof(T));
    stream_->synchronize();
    return values;
  }
  const Stream& stream() const { return *stream_; }

 private:
  template <class T>
  DeviceMatrix putAs(std::span<const std::vector<double>> columns, const Layout& layout) {
    const std::size_t rows = columns.empty() ? 0 : columns[0].size();
    std::vector<T> image(layout.offset + rows * layout.row_stride + columns.size() * layout.column_stride + 1,
                         static_cast<T>(std::nan("")));
    for (std::size_t c = 0; c < columns.size(); ++c) {
      for (std::size_t r = 0; r < rows; ++r) {
        image[layout.offset + r * layout.row_stride + c * layout.column_stride] = static_cast<T>(columns[c][r]);
      }
    }
    buffers_.emplace_back(stream_, image.size() * sizeof(T));
    stream_->copyToDevice(buffers_.back().address(), image.data(), image.size() * sizeof(T));
    stream_->synchronize();
    return {.pointer = buffers_.back().address() + layout.offset * sizeof(T),
            .rows = rows,
            .columns = columns.size(),
            .row_stride = static_cast<std::ptrdiff_t>(layout.row_stride * sizeof(T)),
            .column_stride = static_cast<std::ptrdiff_t>(layout.column_stride * sizeof(T)),
            .type = kPrecisionOf<T>};
  }

  std::shared_ptr<const Cuda> cuda_;
  CurrentContext current_;
  std::shared_ptr<const Stream> stream_;
  std::vector<DeviceBuffer> buffers_;
};

}  // namespace srjit

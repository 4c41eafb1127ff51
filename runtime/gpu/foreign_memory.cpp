#include "runtime/gpu/foreign_memory.h"

#include <fmt/format.h>

namespace srjit {

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

Result<HostColumn> fetchColumn(const char* what, const DeviceQueue& queue, const DeviceMatrix& matrix, std::size_t rows,
                               Precision precision) {
  if (Status fits = checkMatrix(what, matrix, rows, 1, precision); !fits) return std::move(fits).error();
  const auto element = static_cast<std::size_t>(bytesOf(precision));
  if (matrix.row_stride < static_cast<std::ptrdiff_t>(element)) {
    return Error{Errc::kInvalid, fmt::format("{} with a stride of {} bytes", what, matrix.row_stride), {}};
  }
  if (Status own = checkOwner(what, queue, matrix); !own) return std::move(own).error();
  HostColumn column{AlignedBuffer(rows * element), rows, precision};
  queue.uploads->complete([&] {
    queue.uploads->copyRows({column.values.data(), element},
                            {matrix.pointer, static_cast<std::size_t>(matrix.row_stride)}, element, rows);
  });
  return column;
}

}  // namespace srjit

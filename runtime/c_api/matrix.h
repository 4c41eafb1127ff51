// A matrix of a caller, read and checked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/c_api/handles.h"

namespace srjit::c_api {

/// A caller's matrix with strides that are set. Whether it has the rows and columns that a call needs is not checked.
struct Matrix {
  /// Throws kInvalid with the argument's name if it is null, without data, too large, or has bad strides.
  explicit Matrix(const srjit_matrix* given, const char* name) {
    const srjit_matrix matrix = fromCaller(&required(given, name), name);
    data = static_cast<const std::byte*>(matrix.data);
    if (matrix.rows != 0 && matrix.columns != 0) required(data, fmt::format("data of {}", name).c_str());
    rows = matrix.rows;
    columns = matrix.columns;
    type = precisionOf(matrix.type);
    on_device = flagOf(matrix.on_device, "on_device");
    row_stride = matrix.row_stride;
    column_stride = matrix.column_stride;
    const auto element = std::int64_t{bytesOf(type)};
    constexpr std::size_t kMost = PTRDIFF_MAX / sizeof(double);
    std::size_t numbers = 0;
    if (__builtin_mul_overflow(rows, columns, &numbers) || std::max({numbers, rows, columns}) > kMost) {
      refuse(Errc::kInvalid, fmt::format("{} has {} rows and {} columns", name, rows, columns));
    }
    if (row_stride == 0 && column_stride == 0) {
      row_stride = element;
      column_stride = element * static_cast<std::int64_t>(rows);
    }
    if (row_stride % element != 0 || column_stride % element != 0) {
      refuse(Errc::kInvalid, fmt::format("the strides of {} are {} and {}, expected multiples of {}", name, row_stride,
                                         column_stride, element));
    }
  }

  DeviceMatrix onDevice() const {
    return {reinterpret_cast<std::uint64_t>(data), rows, columns, row_stride, column_stride, type};
  }

  const std::byte* data = nullptr;
  std::size_t rows = 0, columns = 0;
  std::int64_t row_stride = 0, column_stride = 0;
  Precision type = Precision::kF32;
  bool on_device = false;
};

}  // namespace srjit::c_api

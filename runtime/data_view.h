// Views of a caller's data, as an Engine takes them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <vector>

#include "ir/numeric.h"
#include "ir/text.h"

namespace srjit {

/// A borrowed column of numbers: a vector, span or array of float or double. Converted to the engine's precision on
/// upload.
struct ColumnView {
  template <std::ranges::contiguous_range Values>
    requires std::same_as<std::ranges::range_value_t<Values>, float> ||
                 std::same_as<std::ranges::range_value_t<Values>, double>
  ColumnView(const Values& values)
      : data(std::ranges::data(values)),
        size(std::ranges::size(values)),
        type(kPrecisionOf<std::ranges::range_value_t<Values>>) {}
  const void* data;
  std::size_t size;
  Precision type;
};

/// Columns of equal length, at least one row. Columns may hold NaN and infinities. An engine in f32 refuses doubles
/// that f32 does not have: a finite number that becomes infinite, one of a column that becomes 0, and numbers that are
/// rounded where all are below the normal range, or so near to each other that few differ in f32. A small target or
/// weight may become 0 beside a larger one. `target` and `weights` are needed for losses only, and are finite; weights
/// are not negative, not all zero, and their sum is finite.
struct DataView {
  std::vector<ColumnView> columns;
  std::optional<ColumnView> target = {};
  std::optional<ColumnView> weights = {};
  ColumnNames names = {};  ///< of the columns, for messages; none, or one per column
};

/// Numbers in a GPU's memory that the caller owns, as the CUDA array interface describes them: a matrix of rows x
/// columns in the engine's precision, with strides in bytes that are multiples of the element's size. Its memory must
/// stay valid and unchanged as long as the data set that Engine::adopt() makes of it.
struct DeviceMatrix {
  std::uint64_t pointer = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::ptrdiff_t row_stride = 0;
  std::ptrdiff_t column_stride = 0;
  Precision type = Precision::kF32;
};

/// As DataView, in a GPU's memory. Target and weights have one column.
struct DeviceDataView {
  DeviceMatrix columns;
  std::optional<DeviceMatrix> target = {};
  std::optional<DeviceMatrix> weights = {};
  std::uint64_t stream = 0;  ///< the CUDA stream that writes them; its pending work is waited for. 0: none
  ColumnNames names = {};
};

}  // namespace srjit

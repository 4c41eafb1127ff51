// What a Dataset holds on the host.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/aligned_buffer.h"
#include "runtime/engine.h"

namespace srjit {

/// Columns, target and weights in the engine's precision in one allocation, each of paddedRows() elements and each on a
/// cache line. Rows past the end repeat the last row, so that padding meets no value that the data do not have; weights
/// past the end are 0.
struct Dataset::State {
  std::size_t rows = 0;
  std::size_t columns = 0;
  Precision precision = Precision::kF32;
  std::size_t padded_rows = 0;    ///< a multiple of kGroupRows
  std::size_t column_stride = 0;  ///< elements from one column to the next
  AlignedBuffer storage;
  const std::byte* target = nullptr;   ///< null without one
  const std::byte* weights = nullptr;  ///< null without
  double weight_sum = 0;               ///< the number of rows without weights
  double target_variance = 0;          ///< weighted, over all rows, divided by weight_sum
  std::vector<double> group_weights;   ///< with weights: their sum over every group, as a kernel adds it

  const std::byte* column(std::size_t index) const noexcept {
    return storage.data() + index * column_stride * static_cast<std::size_t>(bytesOf(precision));
  }

  /// Checks, converts and copies. Errors: kInvalid as Engine::upload says. Throws OutOfMemory.
  static Result<std::shared_ptr<const State>> create(const DataView& data, Precision precision);
};

}  // namespace srjit

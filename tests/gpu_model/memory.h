// Common parts of the models of kernels: typed access to memory, columns, and outputs with their sums.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compiler/nvptx/options.h"
#include "runtime/platform/aligned_buffer.h"
#include "tests/gpu_model/kernels.h"

namespace srjit {

/// The rule is formatted only if it is broken: models check every access of a kernel.
template <class... Args>
void requireOfModel(bool holds, fmt::format_string<Args...> rule, Args&&... args) {
  if (!holds) throw ModelFault(fmt::format(rule, std::forward<Args>(args)...));
}

template <class T>
std::span<T> elementsAt(ModelMemory& memory, std::uint64_t address, std::size_t count) {
  if (count == 0) return {};
  requireOfModel(address % alignof(T) == 0, "address {:#x} is not aligned to {} bytes", address, alignof(T));
  return {reinterpret_cast<T*>(memory.range(address, count * sizeof(T))), count};
}

/// The only parameter of a kernel with a grid in x only.
template <class Arguments>
Arguments structOf(const ModelLaunch& launch) {
  requireOfModel(launch.arguments.size() * sizeof(std::uint64_t) == sizeof(Arguments), "{} words of arguments",
                 launch.arguments.size());
  requireOfModel(launch.grid[1] == 1 && launch.grid[2] == 1, "a grid of {} x {}", launch.grid[1], launch.grid[2]);
  Arguments arguments;
  std::memcpy(static_cast<void*>(&arguments), launch.arguments.data(), sizeof arguments);
  return arguments;
}

/// A device address as the host's; null stays.
template <class T>
void translate(ModelMemory& memory, T*& address, std::size_t count) {
  if (address == nullptr) return;
  address = elementsAt<std::remove_const_t<T>>(memory, reinterpret_cast<std::uint64_t>(address), count).data();
}
template <class T>
void translate(ModelMemory& memory, std::span<const T>& array) {
  const T* first = array.data();
  translate(memory, first, array.size());
  array = {first, array.size()};
}

/// A table of 16-byte aligned entries, in whole groups of four, as kernels load them.
template <class T>
std::span<T> vectorAt(ModelMemory& memory, std::uint64_t address, std::size_t rows) {
  requireOfModel(address % 16 == 0, "address {:#x} is not aligned to 16 bytes", address);
  return elementsAt<T>(memory, address, ceilDivide(rows, 4) * 4);
}

/// The first four parameters of kernels over rows.
struct ModelColumns {
  std::uint64_t address, column_stride, row_stride, rows;
  bool strided;

  static ModelColumns of(const ModelLaunch& launch, bool strided) {
    const auto& a = launch.arguments;
    return {a[0], a[1], a[2], a[3], strided};
  }

  /// Reads column `column` of rows from `first` on.
  template <class T>
  std::vector<T> read(ModelMemory& memory, std::size_t column, std::size_t first, std::size_t count) const {
    std::vector<T> values(count, std::numeric_limits<T>::quiet_NaN());
    const std::size_t end = std::min<std::size_t>(first + count, rows);
    if (strided) {
      for (std::size_t r = first; r < end; ++r) {
        const std::uint64_t offset = column * column_stride + r * row_stride;  // strides may be negative: modulo 2^64
        values[r - first] = elementsAt<T>(memory, address + offset * sizeof(T), 1)[0];
      }
      return values;
    }
    requireOfModel(column_stride % 4 == 0 && column_stride >= rows, "a column stride of {} for {} rows", column_stride,
                   rows);
    const auto source = vectorAt<T>(memory, address + column * column_stride * sizeof(T), rows);
    if (first < end) std::copy(source.begin() + first, source.begin() + end, values.begin());
    return values;
  }
};

/// Adds the items of one row group in the fixed tree.
template <class T>
T sumOfRowGroup(std::span<const T> items) {
  std::vector<T> sums(items.begin(), items.end());
  for (std::size_t width = sums.size(); width > 1; width /= 2) {
    for (std::size_t i = 0; i < width / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  return sums[0];
}

/// The destination of one output: predictions, or sums of row groups.
template <class T>
class ModelOutputs {
 public:
  ModelOutputs(const std::optional<LossSpec>& loss, std::span<const std::uint64_t> arguments, std::size_t rows,
               ModelMemory& memory)
      : loss_(loss), arguments_(arguments), rows_(rows), memory_(memory) {
    if (!loss_) return;
    target_ = vectorAt<T>(memory, arguments[0], rows);
    if (loss_->weighted) weights_ = vectorAt<T>(memory, arguments[1], rows);
    if (isOfMoments(loss_->term)) std::memcpy(&centre_, &arguments[4], sizeof centre_);
  }

  /// `values` are those of rows from `first` on, a multiple of kGroupRows; values past the last row are ignored.
  void put(std::size_t output, std::size_t first, std::span<const T> values) {
    const std::size_t count = std::min(values.size(), rows_ - first);
    if (loss_) {
      for (std::size_t i = 0; i < count; i += kGroupRows) {
        putRowGroup(output, first + i, values.subspan(i, std::min(kGroupRows, count - i)));
      }
      return;
    }
    requireOfModel(arguments_[1] % 4 == 0 && arguments_[1] >= rows_, "an output stride of {} for {} rows",
                   arguments_[1], rows_);
    const auto out = vectorAt<T>(memory_, arguments_[0] + output * arguments_[1] * sizeof(T), rows_);
    std::copy_n(values.begin(), count, out.begin() + first);
    std::fill(out.begin() + first + count, out.begin() + std::min(out.size(), first + values.size()),
              std::numeric_limits<T>::quiet_NaN());
  }

 private:
  void putRowGroup(std::size_t output, std::size_t first, std::span<const T> values) {
    std::array<std::array<T, kGroupRows>, kMostChannels> items{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (loss_->skip_invalid && !std::isfinite(values[i])) continue;
      std::size_t channel = 0;
      const auto add = [&](T term) { items[channel++][i] = loss_->weighted ? weights_[first + i] * term : term; };
      const T target = target_[first + i] - centre_;
      eachLossTerm<T>(loss_->term, values[i], target, add);
      if (loss_->targetSums() > 0) eachTargetTerm(target, add);
      if (loss_->skip_invalid) items[channel++][i] = 1;
      if (loss_->counts() == 2) items[channel][i] = weights_[first + i];
    }
    for (std::size_t channel = 0; channel < loss_->channels(); ++channel) {
      write(channel, output, first / kGroupRows, sumOfRowGroup<T>(items[channel]));
    }
  }

  void write(std::size_t channel, std::size_t output, std::size_t row_group, T sum) {
    const std::uint64_t index = channel * arguments_[3] + output * ceilDivide(rows_, kGroupRows) + row_group;
    elementsAt<T>(memory_, arguments_[2] + index * sizeof(T), 1)[0] = sum;
  }

  std::optional<LossSpec> loss_;
  std::span<const std::uint64_t> arguments_;
  std::size_t rows_;
  ModelMemory& memory_;
  std::span<T> target_, weights_;
  T centre_ = 0;
};

inline void requireBlocks(const ModelLaunch& launch, std::size_t x, std::size_t y) {
  requireOfModel(launch.block == std::array<unsigned, 3>{kBlockThreads, 1, 1}, "a block of {} x {} x {} threads",
                 launch.block[0], launch.block[1], launch.block[2]);
  requireOfModel(launch.grid == std::array<unsigned, 3>{static_cast<unsigned>(x), static_cast<unsigned>(y), 1},
                 "a grid of {} x {} x {} blocks instead of {} x {} x 1", launch.grid[0], launch.grid[1], launch.grid[2],
                 x, y);
}

}  // namespace srjit

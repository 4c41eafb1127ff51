// What an evaluation is of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "compiler/direct/emitter.h"
#include "runtime/code/kernel_store.h"
#include "runtime/code/parts.h"
#include "runtime/gpu/data.h"
#include "runtime/gpu/queue.h"

namespace srjit {

/// Code on data, for one kind of kernel. Of the data it has only what decides about a run. Invariant: the store made
/// the code, for `kind`; the data have the store's precision; and the numbers of the code's outputs are less than
/// `outputs`. Constant once a run has it.
struct RunPlan {
  std::shared_ptr<DeviceQueue> queue;
  std::shared_ptr<KernelStore> store;
  std::shared_ptr<const DeviceCode> code;
  std::uint64_t data_serial;  ///< of the data of all its evaluations
  KernelKind kind;
  std::size_t outputs;                         ///< of the program
  std::optional<DirectGrid> direct_grid = {};  ///< none: directGrid()
  /// Whether output o goes to column o of the data, resident ones, instead of to the host; all rows
  /// in one chunk.
  bool into_columns = false;

  /// Whether a run of `other` can serve an evaluation of this plan.
  bool fitsRunOf(const RunPlan& other) const {
    return queue == other.queue && code == other.code && data_serial == other.data_serial && kind == other.kind &&
           direct_grid == other.direct_grid && into_columns == other.into_columns;
  }
  /// Of the code and the data.
  Precision precision() const noexcept { return store->precision(); }
  /// Of a number.
  std::size_t elementBytes() const noexcept { return static_cast<std::size_t>(bytesOf(precision())); }
  /// Sums that a loss needs for each output: of terms, of valid rows, of their weights.
  std::size_t channels() const noexcept {
    if (!kind.loss || !kind.loss->skip_invalid) return 1;
    return kind.loss->weighted ? 3 : 2;
  }
};

}  // namespace srjit

// The state of a Dataset, and data sets that are made of the numbers of another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data_view.h"
#include "runtime/dataset.h"
#include "runtime/platform/aligned_buffer.h"

namespace srjit {

/// A column of the first numbers in a buffer.
ColumnView columnOf(const AlignedBuffer& values, std::size_t rows, Precision precision);

/// What a machine has of a data set: its numbers, or values of its rows that it keeps. The executor that placed them
/// knows the class. Thread-safe.
class Residence {
 public:
  virtual ~Residence() = default;
  /// Dataset::subtrees().
  virtual SubtreeStats subtrees() const { return {}; }
};

/// Columns behind those of a data set on a GPU, for values that are kept there. The interpreter stages all columns of a
/// strip in shared memory, so more columns would reduce its occupancy.
inline constexpr std::size_t kMostSpareColumns = 32;

/// Columns, target and weights in the engine's precision in one allocation, each of padded_rows elements and each on a
/// cache line. Rows past the end repeat the last row, so that padding evaluates no value that is not in the data;
/// weights past the end are 0.
struct Dataset::State {
  std::uint64_t serial = nextSerial();  ///< unique in this process, never reused
  std::size_t rows = 0;
  std::size_t columns = 0;
  ColumnNames names;  ///< of the columns; may be empty
  Precision precision = Precision::kF32;
  std::string device = "cpu";     ///< device of the engine that made it
  std::size_t padded_rows = 0;    ///< a multiple of kGroupRows
  std::size_t column_stride = 0;  ///< elements between starts of adjacent columns
  AlignedBuffer storage;
  bool has_target = false, has_weights = false;
  const std::byte* target = nullptr;   ///< in `storage`; null without a target
  const std::byte* weights = nullptr;  ///< null without weights
  /// On GPUs; `storage` is then empty, and the pointers into it are null, unless the numbers are streamed. Null: only
  /// in `storage`.
  std::shared_ptr<Residence> residence;
  /// Of adopted columns: a copy with target and weights behind them, made when it is first needed; guarded by the
  /// mutex.
  mutable std::shared_ptr<const Dataset::State> copy_with_target;
  mutable std::mutex copy_mutex;
  double weight_sum = 0;  ///< without weights, the number of rows
  /// LossConstants::scale and weight_scale of losses of these data. Both are 1 if the largest target and weight are
  /// ordinary: squares of differences from the target's last place up to many times the target are then in the range of
  /// the precision.
  double scale = 1, weight_scale = 1;
  double target_mean = 0;       ///< weighted, over all rows; of target * scale
  double target_mean_rest = 0;  ///< what its rounding to double left: the mean is the sum of both
  double target_variance = 0;   ///< weighted, over all rows; of target * scale
  double least_target = 0, most_target = 0;
  std::vector<double> row_group_weights;  ///< with weights: their sum over every row group, as a kernel adds it

  double largestTarget() const noexcept;  ///< in magnitude
  /// Whether kernels may square differences and multiply by weights as they are.
  bool isOrdinary() const noexcept { return scale == 1 && weight_scale == 1; }
  /// Whether the numbers are in `storage`.
  bool isOnHost() const noexcept { return storage.data() != nullptr; }
  /// Sizes, names, and the facts of target and weights; no numbers, and a serial of its own.
  std::shared_ptr<State> withoutNumbers() const;
  /// Columns, target and weights.
  std::size_t fields() const noexcept { return columns + (has_target ? 1 : 0) + (has_weights ? 1 : 0); }
  /// Bytes of all fields with their padding. Throws OutOfMemory if no memory can hold them.
  std::size_t storageBytes() const;
  const std::byte* column(std::size_t index) const noexcept {
    return storage.data() + index * column_stride * static_cast<std::size_t>(bytesOf(precision));
  }

  static std::uint64_t nextSerial() noexcept;
  /// Checks, converts and copies. Errors: kInvalid as for Engine::upload(). Throws OutOfMemory.
  static Result<std::shared_ptr<State>> create(const DataView& data, Precision precision);
  /// Sets the sizes that follow from the number of rows, not 0, and the precision.
  void setRows(std::size_t count) noexcept;
  /// Allocates `storage` for the fields, uninitialised, with `target` and `weights` in it. Throws OutOfMemory.
  void allocate();
  /// Computes the facts of target and weights in host memory, null for none: one target for each row, and weights with
  /// their padding. Errors: kInvalid if the weights are all zero, or for their sum.
  Status describe(const std::byte* target_at, const std::byte* weights_at);
  /// Weights for the rows, in the precision, with their padding. Errors: kInvalid as for those of Engine::upload().
  /// Throws OutOfMemory.
  Result<AlignedBuffer> convertWeights(const ColumnView& column) const;
};

/// Adjacent rows of a data set.
struct RowRun {
  std::size_t first = 0, count = 0;

  friend bool operator==(const RowRun&, const RowRun&) = default;
};

/// What a data set gets of another one: rows, at least one, in the order of the runs; and the weights of these rows, or
/// others, one for each of them.
struct Selection {
  std::vector<RowRun> runs;
  std::optional<ColumnView> weights = {};
  bool is_for_host = false;  ///< the numbers go to host memory: select() of any executor reads them there

  std::size_t rows() const noexcept;
  /// How many fields of the other one, from the first column on, are copied.
  std::size_t copiedFields(const Dataset::State& from) const noexcept;
};

/// `groups` different groups of kGroupRows adjacent rows, in ascending order, adjacent ones as one run. The last group
/// of all may have fewer rows. Each set of groups has the same probability, but for less than `all` / 2^64, where `all`
/// is the number of groups of `rows`. Precondition: 0 < groups <= all.
///
/// The algorithm is R. Floyd's (J. Bentley, R. Floyd, "A sample of brilliance", CACM 30(9), 1987), with the numbers
/// Random(seed).below(n): for every last = all - groups .. all - 1, in this order, the group below(last + 1), or the
/// group `last` if that one is chosen already.
std::vector<RowRun> sampleGroups(std::size_t rows, std::size_t groups, std::uint64_t seed);

/// A data set to be filled.
struct SelectedData {
  std::shared_ptr<Dataset::State> state;  ///< names, sizes and what fields it has; no numbers
  AlignedBuffer weights;                  ///< in the precision, with padding, if the selection has weights
};

/// Errors: kInvalid as for Engine::withWeights(). Throws OutOfMemory.
Result<SelectedData> beginSelection(const Dataset::State& from, const Selection& selection);

/// Allocates host memory, has `copy` copy the rows of the copied fields to its fields, and does the rest. Errors: as
/// Dataset::State::describe(). Throws OutOfMemory, and what `copy` throws.
Result<std::shared_ptr<Dataset::State>> finishSelection(SelectedData selected, const std::function<void()>& copy);

/// Both, of data whose numbers are in host memory.
Result<std::shared_ptr<Dataset::State>> selectOnHost(const Dataset::State& from, const Selection& selection);
/// The second step of it.
Result<std::shared_ptr<Dataset::State>> finishOnHost(SelectedData selected, const Dataset::State& from,
                                                     const Selection& selection);

}  // namespace srjit

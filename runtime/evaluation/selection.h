// Data sets that are made of the numbers of another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/evaluation/dataset_state.h"

namespace srjit {

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
  /// Of all rows, for graphs that read target and weights as the columns behind the others: select() gives the data
  /// themselves if these are there already, or else always the same copy.
  bool is_for_graphs = false;

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

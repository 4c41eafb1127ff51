#include "runtime/evaluation/dataset_state.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "ir/numbers/loss_sums.h"
#include "ir/numbers/random.h"
#include "runtime/dataset.h"

namespace srjit {

namespace {

// Columns at a distance of a power of two map to the same cache sets, so the stride is an odd number of cache lines.
std::size_t columnStride(std::size_t padded_rows, Precision precision) {
  const std::size_t line = kCacheLine / static_cast<std::size_t>(bytesOf(precision));
  return padded_rows / line % 2 == 0 ? padded_rows + line : padded_rows;
}

template <class To, class From>
void convert(const void* from, std::size_t rows, std::size_t padded_rows, To* to) {
  const auto* const source = static_cast<const From*>(from);
  for (std::size_t r = 0; r < rows; ++r) to[r] = static_cast<To>(source[r]);
  for (std::size_t r = rows; r < padded_rows; ++r) to[r] = to[rows - 1];
}

template <class To>
void copyColumn(const ColumnView& column, std::size_t padded_rows, To* to) {
  withZeroOf(column.type, [&]<class From>(From) { convert<To, From>(column.data, column.size, padded_rows, to); });
}

/// A sum with the errors of its additions carried along (A. Neumaier, ZAMM 54(1), 1974).
class CompensatedSum {
 public:
  void add(double x) {
    const double sum = sum_ + x;
    error_ += std::fabs(sum_) >= std::fabs(x) ? (sum_ - sum) + x : (x - sum) + sum_;
    sum_ = sum;
  }
  double value() const { return std::isfinite(error_) ? sum_ + error_ : sum_; }

 private:
  double sum_ = 0, error_ = 0;
};

Status checkSizes(const DataView& data, std::size_t rows) {
  const std::string first = data.columns.empty() ? "the target" : data.names.empty() ? "x0" : data.names.describe(0);
  const std::string expected = fmt::format("{} rows, as {} has", rows, first);
  for (std::size_t i = 0; i < data.columns.size(); ++i) {
    if (data.columns[i].size == rows) continue;
    return Error{Errc::kInvalid,
                 fmt::format("{} has {} rows, expected {}", data.names.describe(i), data.columns[i].size, expected),
                 {}};
  }
  if (data.target && data.target->size != rows) {
    return Error{Errc::kInvalid, fmt::format("the target has {} rows, expected {}", data.target->size, expected), {}};
  }
  if (data.weights && data.weights->size != rows) {
    return Error{
        Errc::kInvalid, fmt::format("the weights have {} rows, expected {}", data.weights->size, expected), {}};
  }
  return okStatus();
}

/// What numbers are for. A small target or weight may become 0 beside a larger one, and weights may become equal.
enum class Role { kColumn, kTarget, kWeights };

// Numbers whose range is a smaller part of their magnitude than this have eight different values in f32 at most ...
constexpr double kLeastRangeOfF32 = 0x1p-21;
// ... and differ by no more than rounding in f64 below this: f32 then does them no harm.
constexpr double kLeastRangeOfF64 = 0x1p-48;

// Whether numbers of a column keep their meaning when they are converted to To.
template <class To, class From>
Status checkRepresentable(const std::string& name, const From* values, std::size_t rows, Role role) {
  if constexpr (sizeof(To) >= sizeof(From)) return okStatus();
  const auto isKept = [&](std::size_t r) { return From(static_cast<To>(values[r])) == values[r]; };
  const auto refusal = [&](std::size_t r, const char* fault, const char* remedy = "another unit") {
    return Error{Errc::kInvalid,
                 fmt::format("{} has {} in row {}, {}: choose f64, or {}", name, values[r], r + 1, fault, remedy),
                 {}};
  };
  To largest = 0;
  From least = std::numeric_limits<From>::infinity(), most = -least;
  std::size_t rounded = rows;  // the first
  for (std::size_t r = 0; r < rows; ++r) {
    if (!std::isfinite(values[r])) continue;
    const To magnitude = std::fabs(static_cast<To>(values[r]));
    if (!std::isfinite(magnitude)) return refusal(r, "which is beyond the range of f32");
    if (magnitude == 0 && values[r] != 0 && role == Role::kColumn) return refusal(r, "which is 0 in f32");
    largest = std::max(largest, magnitude);
    least = std::min(least, values[r]);
    most = std::max(most, values[r]);
    if (rounded == rows && !isKept(r)) rounded = r;
  }
  if (rounded == rows) return okStatus();
  if (largest < std::numeric_limits<To>::min()) {
    return refusal(rounded, "and all of its numbers are below the normal range of f32");
  }
  const double range = static_cast<double>(most - least) / static_cast<double>(largest);
  if (role == Role::kWeights || range >= kLeastRangeOfF32 || range <= kLeastRangeOfF64) return okStatus();
  return refusal(rounded, "and all of its numbers are so near to each other that f32 cannot tell them apart",
                 "subtract an offset");
}

template <class From>
Status checkTarget(const From* target, std::size_t rows) {
  for (std::size_t r = 0; r < rows; ++r) {
    if (std::isfinite(target[r])) continue;
    return Error{Errc::kInvalid, fmt::format("target {} in row {}: expected a finite number", target[r], r + 1), {}};
  }
  return okStatus();
}

template <class From>
Status checkWeights(const From* weights, std::size_t rows) {
  bool given = false;
  for (std::size_t r = 0; r < rows; ++r) {
    if (!std::isfinite(weights[r]) || weights[r] < 0) {
      return Error{Errc::kInvalid,
                   fmt::format("weight {} in row {}, expected a finite number that is not negative", weights[r], r + 1),
                   {}};
    }
    given = given || weights[r] > 0;
  }
  return given ? okStatus() : Error{Errc::kInvalid, "the weights are all zero", {}};
}

/// Checks that target and weights are valid for losses, and that all numbers are in the range of To. Reads them before
/// conversion, so that messages show the given numbers.
template <class To>
Status checkValues(const DataView& data, std::size_t rows) {
  Status valid = okStatus();
  const auto check = [&](const ColumnView& column, const std::string& name, Role role, const auto& of) {
    if (!valid) return;
    withZeroOf(column.type, [&]<class From>(From) {
      const auto* const values = static_cast<const From*>(column.data);
      valid = of(values);
      if (valid) valid = checkRepresentable<To>(name, values, rows, role);
    });
  };
  for (std::size_t i = 0; i < data.columns.size(); ++i) {
    check(data.columns[i], data.names.describe(i), Role::kColumn, [](const auto*) { return okStatus(); });
  }
  if (data.target)
    check(*data.target, "the target", Role::kTarget, [&](const auto* values) { return checkTarget(values, rows); });
  if (data.weights) {
    check(*data.weights, "the column of weights", Role::kWeights,
          [&](const auto* values) { return checkWeights(values, rows); });
  }
  return valid;
}

/// Binary exponents of magnitudes that need no scale, and the largest of a scale.
struct OrdinaryExponents {
  int least, most, largest_scale;
};

// Products w (d d) are in the normal range for differences from the last place of the least target to 2^10 times the
// largest, with the least and the largest weight: (-30 - 23) 2 - 20 = -126 and (30 + 10) 2 + 40 = 120 in f32.
constexpr OrdinaryExponents ordinaryTargets(Precision precision) {
  return precision == Precision::kF32 ? OrdinaryExponents{-30, 30, 112} : OrdinaryExponents{-400, 400, 1008};
}
constexpr OrdinaryExponents ordinaryWeights(Precision precision) {
  return precision == Precision::kF32 ? OrdinaryExponents{-20, 40, 112} : OrdinaryExponents{-100, 100, 1008};
}

// 1, or a power of two that brings a large magnitude near 1, and a small one to the lower end of the ordinary range, so
// that predictions may be many times the target. The code of losses has the scale in it: in steps, samples of the same
// data mostly have the same.
double scaleFor(double magnitude, const OrdinaryExponents& ordinary) {
  constexpr int kStep = 4;
  if (magnitude == 0) return 1;
  const int exponent = std::ilogb(magnitude);
  if (exponent >= ordinary.least && exponent <= ordinary.most) return 1;
  const int steps = exponent > 0 ? -exponent / kStep : (ordinary.least - exponent + kStep - 1) / kStep;
  return std::ldexp(1.0, std::clamp(steps * kStep, -ordinary.largest_scale, ordinary.largest_scale));
}

// Two loops: the mean, then the squares of the deviations, and what the rounding of the mean left: of targets far from
// 0 it is not small beside their deviation.
template <class T>
void takeTarget(Dataset::State& state, const T* target, const T* weights) {
  const std::size_t rows = state.rows;
  const auto [least, most] = std::minmax_element(target, target + rows);
  state.least_target = static_cast<double>(*least);
  state.most_target = static_cast<double>(*most);
  state.scale = scaleFor(state.largestTarget(), ordinaryTargets(state.precision));
  const auto weight = [&](std::size_t r) {
    return weights == nullptr ? 1.0 : state.weight_scale * static_cast<double>(weights[r]);
  };
  const double weight_sum = state.weight_sum * state.weight_scale;
  CompensatedSum sum;
  for (std::size_t r = 0; r < rows; ++r) sum.add(weight(r) * (state.scale * static_cast<double>(target[r])));
  const double mean = sum.value() / weight_sum;
  CompensatedSum rest, squares;
  for (std::size_t r = 0; r < rows; ++r) {
    const double distance = state.scale * static_cast<double>(target[r]) - mean;
    rest.add(weight(r) * distance);
    squares.add(weight(r) * (distance * distance));
  }
  state.target_mean = mean;
  state.target_mean_rest = rest.value() / weight_sum;
  const double about_mean = squares.value() / weight_sum;
  state.target_variance = std::max(0.0, about_mean - state.target_mean_rest * state.target_mean_rest);
}

template <class T>
Status describeAs(Dataset::State& state, const T* target, const T* weights) {
  state.weight_sum = static_cast<double>(state.rows);
  if (weights != nullptr) {
    CompensatedSum sum;
    for (std::size_t r = 0; r < state.rows; ++r) sum.add(static_cast<double>(weights[r]));
    for (std::size_t first = 0; first < state.padded_rows; first += kGroupRows) {
      std::array<T, kGroupRows> items;
      std::copy_n(weights + first, kGroupRows, items.begin());
      state.row_group_weights.push_back(static_cast<double>(pairwiseSum(items)));
    }
    state.weight_sum = sum.value();
    if (!std::isfinite(state.weight_sum)) {
      return Error{Errc::kInvalid, "the sum of the weights is beyond the range of f64", {}};
    }
    if (state.weight_sum == 0) return Error{Errc::kInvalid, "the weights of these rows are all zero", {}};
    const auto largest = static_cast<double>(*std::max_element(weights, weights + state.rows));
    state.weight_scale = scaleFor(largest, ordinaryWeights(state.precision));
  }
  if (target != nullptr) takeTarget(state, target, weights);
  return okStatus();
}

// Padding of weights is 0.
template <class To>
void copyWeights(const ColumnView& weights, std::size_t padded_rows, To* to) {
  copyColumn(weights, padded_rows, to);
  std::fill(to + weights.size, to + padded_rows, To(0));
}

template <class T>
Status fill(Dataset::State& state, const DataView& data) {
  state.allocate();
  if (Status valid = checkValues<T>(data, state.rows); !valid) return valid;
  T* next = state.storage.template as<T>();
  const auto place = [&](const ColumnView& column) {
    copyColumn(column, state.padded_rows, next);
    next += state.column_stride;
  };
  for (const ColumnView& column : data.columns) place(column);
  if (data.target) place(*data.target);
  if (data.weights) copyWeights(*data.weights, state.padded_rows, next);
  return state.describe(state.target, state.weights);
}

}  // namespace

ColumnView columnOf(const AlignedBuffer& values, std::size_t rows, Precision precision) {
  return withZeroOf(precision, [&]<class T>(T) { return ColumnView(std::span(values.as<T>(), rows)); });
}

std::uint64_t Dataset::State::nextSerial() noexcept {
  static std::atomic<std::uint64_t> next = 0;
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::size_t Dataset::State::storageBytes() const {
  const auto element = static_cast<std::size_t>(bytesOf(precision));
  if (column_stride > SIZE_MAX / element / (fields() + 1)) throw OutOfMemory(SIZE_MAX);
  return fields() * column_stride * element;
}

std::shared_ptr<Dataset::State> Dataset::State::withoutNumbers() const {
  auto state = std::make_shared<State>();
  state->rows = rows;
  state->columns = columns;
  state->names = names;
  state->precision = precision;
  state->device = device;
  state->padded_rows = padded_rows;
  state->column_stride = column_stride;
  state->has_target = has_target;
  state->has_weights = has_weights;
  state->weight_sum = weight_sum;
  state->scale = scale;
  state->weight_scale = weight_scale;
  state->target_mean = target_mean;
  state->target_mean_rest = target_mean_rest;
  state->target_variance = target_variance;
  state->least_target = least_target;
  state->most_target = most_target;
  state->row_group_weights = row_group_weights;
  return state;
}

double Dataset::State::largestTarget() const noexcept { return std::max(-least_target, most_target); }

void Dataset::State::setRows(std::size_t count) noexcept {
  rows = count;
  padded_rows = roundUp(count, kGroupRows);
  column_stride = columnStride(padded_rows, precision);
}

void Dataset::State::allocate() {
  storage = AlignedBuffer(storageBytes());
  target = has_target ? column(columns) : nullptr;
  weights = has_weights ? column(fields() - 1) : nullptr;
}

Status Dataset::State::describe(const std::byte* target_at, const std::byte* weights_at) {
  return withZeroOf(precision, [&]<class T>(T) {
    return describeAs(*this, reinterpret_cast<const T*>(target_at), reinterpret_cast<const T*>(weights_at));
  });
}

Result<AlignedBuffer> Dataset::State::convertWeights(const ColumnView& column) const {
  if (column.size != rows) {
    return Error{Errc::kInvalid, fmt::format("the weights have {} rows, expected {} rows", column.size, rows), {}};
  }
  return withZeroOf(precision, [&]<class T>(T) -> Result<AlignedBuffer> {
    DataView view;
    view.weights = column;
    if (Status valid = checkValues<T>(view, rows); !valid) return std::move(valid).error();
    AlignedBuffer converted(padded_rows * sizeof(T));
    copyWeights(column, padded_rows, converted.as<T>());
    return converted;
  });
}

Result<std::shared_ptr<Dataset::State>> Dataset::State::create(const DataView& data, Precision precision) {
  const std::size_t rows = !data.columns.empty() ? data.columns[0].size : data.target ? data.target->size : 0;
  if (Status sizes = checkSizes(data, rows); !sizes) return std::move(sizes).error();
  if (rows == 0) return Error{Errc::kInvalid, "data without rows", {}};
  auto state = std::make_shared<State>();
  state->columns = data.columns.size();
  state->names = data.names;
  state->has_target = data.target.has_value();
  state->has_weights = data.weights.has_value();
  state->precision = precision;
  state->setRows(rows);
  Status filled = withZeroOf(precision, [&]<class T>(T) { return fill<T>(*state, data); });
  if (!filled) return std::move(filled).error();
  return state;
}

static_assert(kRowsPerGroup == kGroupRows);

std::size_t Dataset::rows() const noexcept { return state_->rows; }
std::size_t Dataset::rowGroups() const noexcept { return state_->padded_rows / kRowsPerGroup; }
std::size_t Dataset::columns() const noexcept { return state_->columns; }

SubtreeStats Dataset::subtrees() const {
  return state_->residence == nullptr ? SubtreeStats{} : state_->residence->subtrees();
}

std::size_t Selection::rows() const noexcept {
  std::size_t sum = 0;
  for (const RowRun& run : runs) sum += run.count;
  return sum;
}

std::size_t Selection::copiedFields(const Dataset::State& from) const noexcept {
  return from.columns + (from.has_target ? 1 : 0) + (from.has_weights && !weights ? 1 : 0);
}

std::vector<RowRun> sampleGroups(std::size_t rows, std::size_t groups, std::uint64_t seed) {
  const std::size_t all = roundUp(rows, kGroupRows) / kGroupRows;
  std::vector<bool> is_chosen(all);
  Random random(seed);
  for (std::size_t last = all - groups; last < all; ++last) {
    const auto drawn = static_cast<std::size_t>(random.below(last + 1));
    is_chosen[is_chosen[drawn] ? last : drawn] = true;
  }
  std::vector<RowRun> runs;
  for (std::size_t group = 0; group < all; ++group) {
    if (!is_chosen[group]) continue;
    const std::size_t first = group * kGroupRows, count = std::min(kGroupRows, rows - first);
    if (!runs.empty() && runs.back().first + runs.back().count == first) {
      runs.back().count += count;
    } else {
      runs.push_back({first, count});
    }
  }
  return runs;
}

Result<SelectedData> beginSelection(const Dataset::State& from, const Selection& selection) {
  SelectedData selected{std::make_shared<Dataset::State>(), {}};
  Dataset::State& state = *selected.state;
  state.columns = from.columns;
  state.names = from.names;
  state.device = from.device;
  state.precision = from.precision;
  state.has_target = from.has_target;
  state.has_weights = from.has_weights || selection.weights;
  state.setRows(selection.rows());
  if (selection.weights) {
    auto converted = state.convertWeights(*selection.weights);
    if (!converted) return std::move(converted).error();
    selected.weights = std::move(*converted);
  }
  return selected;
}

Result<std::shared_ptr<Dataset::State>> finishSelection(SelectedData selected, const std::function<void()>& copy) {
  Dataset::State& state = *selected.state;
  state.allocate();
  copy();
  const std::size_t last = state.has_weights ? state.fields() - 1 : state.fields();
  withZeroOf(state.precision, [&]<class T>(T) {
    T* field = state.storage.as<T>();
    for (std::size_t f = 0; f < last; ++f, field += state.column_stride) {
      std::fill(field + state.rows, field + state.padded_rows, field[state.rows - 1]);
    }
    if (!state.has_weights) return;
    if (selected.weights.size() != 0) {
      std::memcpy(field, selected.weights.data(), selected.weights.size());
    } else {
      std::fill(field + state.rows, field + state.padded_rows, T(0));
    }
  });
  if (Status valid = state.describe(state.target, state.weights); !valid) return std::move(valid).error();
  return std::move(selected.state);
}

Result<std::shared_ptr<Dataset::State>> finishOnHost(SelectedData selected, const Dataset::State& from,
                                                     const Selection& selection) {
  Dataset::State& to = *selected.state;
  const auto element = static_cast<std::size_t>(bytesOf(to.precision));
  return finishSelection(std::move(selected), [&] {
    for (std::size_t f = 0; f < selection.copiedFields(from); ++f) {
      std::byte* next = to.storage.data() + f * to.column_stride * element;
      for (const RowRun& run : selection.runs) {
        std::memcpy(next, from.column(f) + run.first * element, run.count * element);
        next += run.count * element;
      }
    }
  });
}

Result<std::shared_ptr<Dataset::State>> selectOnHost(const Dataset::State& from, const Selection& selection) {
  auto selected = beginSelection(from, selection);
  if (!selected) return std::move(selected).error();
  return finishOnHost(std::move(*selected), from, selection);
}

}  // namespace srjit

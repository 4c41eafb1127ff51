#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/c_api/handles.h"
#include "runtime/c_api/matrix.h"

namespace srjit::c_api {

namespace {

/// Columns of adjacent numbers: those of a matrix, or copies of them.
template <class T>
class HostColumns {
 public:
  explicit HostColumns(const Matrix& matrix) : matrix_(matrix) {
    if (!isAdjacent()) gather();
  }

  ColumnView operator[](std::size_t column) const {
    const T* const first =
        isAdjacent()
            ? reinterpret_cast<const T*>(matrix_.data + static_cast<std::ptrdiff_t>(column) * matrix_.column_stride)
            : gathered_.data() + column * matrix_.rows;
    return std::span(first, matrix_.rows);
  }

 private:
  bool isAdjacent() const {
    return matrix_.row_stride == sizeof(T) && reinterpret_cast<std::uintptr_t>(matrix_.data) % alignof(T) == 0;
  }

  // Rows that fit in the first-level cache are read for all columns, since a row may be adjacent numbers.
  void gather() {
    constexpr std::size_t kRows = 64;
    gathered_.resize(matrix_.rows * matrix_.columns);
    for (std::size_t first = 0; first < matrix_.rows; first += kRows) {
      const std::size_t end = std::min(first + kRows, matrix_.rows);
      for (std::size_t c = 0; c < matrix_.columns; ++c) {
        for (std::size_t r = first; r < end; ++r) {
          std::memcpy(&gathered_[c * matrix_.rows + r],
                      matrix_.data + static_cast<std::ptrdiff_t>(r) * matrix_.row_stride +
                          static_cast<std::ptrdiff_t>(c) * matrix_.column_stride,
                      sizeof(T));
        }
      }
    }
  }

  const Matrix& matrix_;
  std::vector<T> gathered_;
};

/// Calls `use` with the columns of a matrix in the processor's memory.
template <class Use>
auto withColumns(const Matrix& matrix, const Use& use) {
  return withZeroOf(matrix.type, [&]<class T>(T) { return use(HostColumns<T>(matrix)); });
}

void checkOneColumn(const Matrix& matrix, const char* name) {
  if (matrix.columns != 1) {
    refuse(Errc::kInvalid, fmt::format("{} has {} columns, expected 1", name, matrix.columns));
  }
}

/// Target or weights, if there are some.
std::optional<Matrix> vectorOf(const srjit_matrix* given, const char* name) {
  if (given == nullptr) return {};
  Matrix matrix(given, name);
  checkOneColumn(matrix, name);
  return matrix;
}

Dataset uploadFrom(const Engine& engine, const Matrix& columns, const std::optional<Matrix>& target,
                   const std::optional<Matrix>& weights, ColumnNames names) {
  DataView view;
  view.names = std::move(names);
  const auto withVector = [](const std::optional<Matrix>& matrix, std::optional<ColumnView>& to, const auto& next) {
    if (!matrix) return next();
    return withColumns(*matrix, [&](const auto& numbers) {
      to.emplace(numbers[0]);
      return next();
    });
  };
  return withColumns(columns, [&](const auto& numbers) {
    for (std::size_t c = 0; c < columns.columns; ++c) view.columns.push_back(numbers[c]);
    return withVector(target, view.target,
                      [&] { return withVector(weights, view.weights, [&] { return engine.upload(view).value(); }); });
  });
}

Dataset datasetOf(const Engine& engine, const srjit_data& data) {
  const Matrix columns(data.columns, "columns");
  const std::optional<Matrix> target = vectorOf(data.target, "target");
  const std::optional<Matrix> weights = vectorOf(data.weights, "weights");
  ColumnNames names = namesOf(data.names, columns.columns);
  if ((target && target->on_device != columns.on_device) || (weights && weights->on_device != columns.on_device)) {
    refuse(Errc::kInvalid, "of columns, target and weights, some are on the device and others are not");
  }
  if (!columns.on_device && data.stream != 0) refuse(Errc::kInvalid, "there is a stream, but no data on the device");
  if (!columns.on_device) return uploadFrom(engine, columns, target, weights, std::move(names));
  DeviceDataView view{.columns = columns.onDevice(), .stream = data.stream, .names = std::move(names)};
  if (target) view.target = target->onDevice();
  if (weights) view.weights = weights->onDevice();
  return engine.adopt(view).value();
}

}  // namespace

ColumnNames namesOf(const char* const* names, std::uint64_t columns) {
  if (names == nullptr) return {};
  std::vector<std::string> list;
  for (std::uint64_t c = 0; c < columns; ++c) list.emplace_back(&required(names[c], "a name"));
  return ColumnNames(std::move(list));
}

extern "C" {

int32_t srjit_dataset_create(const srjit_engine* engine, const srjit_data* data, srjit_dataset** dataset,
                             srjit_error* error) {
  return answerWith(dataset, "dataset", error, [&] {
    return srjit_dataset{datasetOf(required(engine, "engine").engine, fromCaller(&required(data, "data"), "data"))};
  });
}

void srjit_dataset_free(srjit_dataset* dataset) { delete dataset; }

int32_t srjit_dataset_rows(const srjit_engine* engine, const srjit_dataset* data, uint64_t first, uint64_t count,
                           srjit_dataset** dataset, srjit_error* error) {
  return answerWith(dataset, "dataset", error, [&] {
    return srjit_dataset{required(engine, "engine").engine.rows(required(data, "data").data, first, count).value()};
  });
}

int32_t srjit_dataset_sample(const srjit_engine* engine, const srjit_dataset* data, uint64_t groups, uint64_t seed,
                             srjit_dataset** dataset, srjit_error* error) {
  return answerWith(dataset, "dataset", error, [&] {
    return srjit_dataset{required(engine, "engine").engine.sample(required(data, "data").data, groups, seed).value()};
  });
}

int32_t srjit_dataset_with_weights(const srjit_engine* engine, const srjit_dataset* data, const srjit_matrix* weights,
                                   uint64_t stream, srjit_dataset** dataset, srjit_error* error) {
  return answerWith(dataset, "dataset", error, [&] {
    const Engine& of = required(engine, "engine").engine;
    const Dataset& before = required(data, "data").data;
    const Matrix matrix(weights, "weights");
    checkOneColumn(matrix, "weights");
    if (matrix.on_device) return srjit_dataset{of.withWeights(before, matrix.onDevice(), stream).value()};
    return withColumns(matrix,
                       [&](const auto& numbers) { return srjit_dataset{of.withWeights(before, numbers[0]).value()}; });
  });
}

int32_t srjit_dataset_get_info(const srjit_dataset* dataset, srjit_dataset_info* info, srjit_error* error) {
  return answer(error, [&] {
    const Dataset& data = required(dataset, "dataset").data;
    const SubtreeStats subtrees = data.subtrees();
    describeTo(info, "info", [&](srjit_dataset_info& to) {
      to.rows = data.rows();
      to.columns = data.columns();
      to.row_groups = data.rowGroups();
      to.subtree_capacity = subtrees.capacity;
      to.subtrees_kept = subtrees.kept;
      to.subtree_bytes = subtrees.bytes;
      to.subtrees_computed = subtrees.computed;
      to.subtrees_replaced = subtrees.replaced;
      to.subtree_reads = subtrees.reads;
    });
  });
}

}  // extern "C"

}  // namespace srjit::c_api

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/c_api/handles.h"
#include "runtime/platform/aligned_buffer.h"

namespace srjit::c_api {

namespace {

/// Columns of adjacent numbers in the processor's memory: those of a matrix, which must outlive it, or copies of them.
class HostColumns {
 public:
  explicit HostColumns(const Matrix& matrix)
      : type_(matrix.type), rows_(matrix.rows), data_(matrix.data), stride_(matrix.column_stride) {
    withZeroOf(type_, [&]<class T>(T) {
      const bool is_aligned = reinterpret_cast<std::uintptr_t>(data_) % alignof(T) == 0;
      if (matrix.row_stride != sizeof(T) || !is_aligned) gather<T>(matrix);
    });
  }

  ColumnView operator[](std::size_t column) const {
    return withZeroOf(type_, [&]<class T>(T) {
      const std::byte* const first = data_ + static_cast<std::ptrdiff_t>(column) * stride_;
      return ColumnView(std::span(reinterpret_cast<const T*>(first), rows_));
    });
  }

 private:
  // Rows that fit in the first-level cache are read for all columns, since a row may be adjacent numbers.
  template <class T>
  void gather(const Matrix& from) {
    constexpr std::size_t kRows = 64;
    gathered_ = AlignedBuffer(from.rows * from.columns * sizeof(T));
    for (std::size_t first = 0; first < from.rows; first += kRows) {
      const std::size_t end = std::min(first + kRows, from.rows);
      for (std::size_t c = 0; c < from.columns; ++c) {
        const std::byte* const column = from.data + static_cast<std::ptrdiff_t>(c) * from.column_stride;
        for (std::size_t r = first; r < end; ++r) {
          std::memcpy(gathered_.as<T>() + c * from.rows + r, column + static_cast<std::ptrdiff_t>(r) * from.row_stride,
                      sizeof(T));
        }
      }
    }
    data_ = gathered_.data();
    stride_ = static_cast<std::ptrdiff_t>(from.rows * sizeof(T));
  }

  Precision type_;
  std::size_t rows_;
  const std::byte* data_;
  std::ptrdiff_t stride_;
  AlignedBuffer gathered_;
};

void checkOneColumn(const Matrix& matrix, const char* name) {
  if (matrix.columns != 1) {
    refuse(Errc::kInvalid, fmt::format("{} has {} columns, expected 1", name, matrix.columns));
  }
}

/// Target or weights, if any.
std::optional<Matrix> vectorOf(const srjit_matrix* given, const char* name) {
  if (given == nullptr) return {};
  Matrix matrix(given, name);
  checkOneColumn(matrix, name);
  return matrix;
}

/// The matrices of a caller, which are in one kind of memory.
struct Matrices {
  explicit Matrices(const srjit_data& data)
      : columns(data.columns, "columns"),
        target(vectorOf(data.target, "target")),
        weights(vectorOf(data.weights, "weights")),
        names(namesOf(data.names, columns.columns)) {
    if ((target && target->on_device != columns.on_device) || (weights && weights->on_device != columns.on_device)) {
      refuse(Errc::kInvalid, "of columns, target and weights, some are on the device and others are not");
    }
    if (!columns.on_device && data.stream != 0) refuse(Errc::kInvalid, "there is a stream, but no data on the device");
  }

  Matrix columns;
  std::optional<Matrix> target, weights;
  ColumnNames names;
};

/// Of matrices in the processor's memory.
template <class Use>
auto useOnHost(const Matrices& of, const Use& use) {
  DataView view;
  view.names = of.names;
  const HostColumns numbers(of.columns);
  for (std::size_t c = 0; c < of.columns.columns; ++c) view.columns.push_back(numbers[c]);
  std::optional<HostColumns> of_target, of_weights;
  if (of.target) view.target = of_target.emplace(*of.target)[0];
  if (of.weights) view.weights = of_weights.emplace(*of.weights)[0];
  return use(view);
}

Dataset datasetOf(const Engine& engine, const srjit_data& data) {
  const Matrices of(data);
  if (!of.columns.on_device) {
    return useOnHost(of, [&](const DataView& view) { return engine.upload(view).value(); });
  }
  DeviceDataView view{.columns = of.columns.onDevice(), .stream = data.stream, .names = of.names};
  if (of.target) view.target = of.target->onDevice();
  if (of.weights) view.weights = of.weights->onDevice();
  return engine.adopt(view).value();
}

}  // namespace

void withHostData(const srjit_data& data, const std::function<void(const DataView&)>& use) {
  const Matrices of(data);
  if (of.columns.on_device) refuse(Errc::kUnsupported, "the data are on the device, expected the processor's memory");
  useOnHost(of, use);
}

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
    return srjit_dataset{of.withWeights(before, HostColumns(matrix)[0]).value()};
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
#define SRJIT_SUBTREE_COUNTER(name, c_name) to.c_name = subtrees.name;
#include "runtime/platform/counters.def"
    });
  });
}

}  // extern "C"

}  // namespace srjit::c_api

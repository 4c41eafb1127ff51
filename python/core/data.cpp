// Data sets.
#include <optional>

#include "core/bindings.h"
#include "runtime/engine.h"

namespace srjit::python {

namespace {

ColumnView columnOf(const Column& column) {
  if (column.dtype() == nb::dtype<float>()) {
    return std::span(static_cast<const float*>(column.data()), column.size());
  }
  if (column.dtype() == nb::dtype<double>()) {
    return std::span(static_cast<const double*>(column.data()), column.size());
  }
  throw ErrorException({Errc::kInvalid, "a column has numbers of another type than float32 and float64", {}});
}

/// Keeps what a DLPack capsule has.
struct DeviceOwner {
  nb::ndarray<nb::ro> array;
};

std::optional<DeviceMatrix> matrixIfAny(const std::optional<DeviceArray>& array) {
  if (!array) return {};
  return matrixOf(*array);
}

Dataset upload(const Engine& engine, const std::vector<Column>& columns, const std::optional<Column>& target,
               const std::optional<Column>& weights, const std::vector<std::string>& names) {
  const DataView view = viewOf(columns, target, weights, names);
  // The arrays are arguments, so they live until this returns; copying is not interrupted.
  const nb::gil_scoped_release free;
  return engine.upload(view).value();
}

Dataset adopt(const Engine& engine, const DeviceArray& columns, const std::optional<DeviceArray>& target,
              const std::optional<DeviceArray>& weights, std::uint64_t stream, const std::vector<std::string>& names) {
  const DeviceDataView view{matrixOf(columns), matrixIfAny(target), matrixIfAny(weights), stream, namesOf(names)};
  const nb::gil_scoped_release free;
  return engine.adopt(view).value();
}

Dataset withWeights(const Engine& engine, const Dataset& data, const Column& weights) {
  const ColumnView view = columnOf(weights);
  const nb::gil_scoped_release free;
  return engine.withWeights(data, view).value();
}

Dataset withDeviceWeights(const Engine& engine, const Dataset& data, const DeviceArray& weights, std::uint64_t stream) {
  const DeviceMatrix matrix = matrixOf(weights);
  const nb::gil_scoped_release free;
  return engine.withWeights(data, matrix, stream).value();
}

/// Pointer, shape, strides in bytes, type and owner of a DLPack capsule of a GPU.
nb::tuple deviceMemory(const nb::ndarray<nb::ro>& array) {
  nb::list shape, strides;
  const auto itemsize = static_cast<std::int64_t>(array.itemsize());
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.append(array.shape(i));
    strides.append(array.stride(i) * itemsize);
  }
  const auto type = [&] {
    if (array.dtype() == nb::dtype<float>()) return "float32";
    if (array.dtype() == nb::dtype<double>()) return "float64";
    if (array.dtype() == nb::dtype<std::int32_t>()) return "int32";
    if (array.dtype() == nb::dtype<std::int64_t>()) return "int64";
    return "another";
  };
  return nb::make_tuple(reinterpret_cast<std::uint64_t>(array.data()), nb::tuple(shape), nb::tuple(strides), type(),
                        DeviceOwner{array});
}

nb::dict subtreesOf(const Dataset& data) {
  const SubtreeStats stats = data.subtrees();
  nb::dict dict;
#define SRJIT_SUBTREE_COUNTER(name, c_name) dict[#name] = stats.name;
#include "runtime/platform/counters.def"
  return dict;
}

}  // namespace

DataView viewOf(const std::vector<Column>& columns, const std::optional<Column>& target,
                const std::optional<Column>& weights, const std::vector<std::string>& names) {
  DataView view;
  for (const Column& column : columns) view.columns.push_back(columnOf(column));
  if (target) view.target = columnOf(*target);
  if (weights) view.weights = columnOf(*weights);
  view.names = namesOf(names);
  return view;
}

DeviceMatrix matrixOf(const DeviceArray& array) {
  const auto& [pointer, rows, columns, row_stride, column_stride, type] = array;
  return {pointer, rows, columns, row_stride, column_stride, choiceOf("type", type, kPrecisions)};
}

void defineData(nb::module_& module) {
  // Attributes of its own: the package stores there what owns the memory of a GPU that a data set uses in place.
  nb::class_<Dataset>(module, "Dataset", nb::dynamic_attr())
      .def_prop_ro("rows", &Dataset::rows)
      .def_prop_ro("columns", &Dataset::columns)
      .def_prop_ro("row_groups", &Dataset::rowGroups)
      .def("subtrees", subtreesOf);
  nb::class_<DeviceOwner>(module, "DeviceOwner");
  module.def("device_memory", deviceMemory, nb::arg("capsule"));
  module.def("upload", upload, nb::arg("engine"), nb::arg("columns"), nb::arg("target").none(),
             nb::arg("weights").none(), nb::arg("names"));
  module.def("adopt", adopt, nb::arg("engine"), nb::arg("columns"), nb::arg("target").none(), nb::arg("weights").none(),
             nb::arg("stream"), nb::arg("names"));
  module.def("with_weights", withWeights, nb::arg("engine"), nb::arg("data"), nb::arg("weights"));
  module.def("with_device_weights", withDeviceWeights, nb::arg("engine"), nb::arg("data"), nb::arg("weights"),
             nb::arg("stream"));
  module.def(
      "rows",
      [](const Engine& engine, const Dataset& data, std::size_t first, std::size_t count) {
        const nb::gil_scoped_release free;
        return engine.rows(data, first, count).value();
      },
      nb::arg("engine"), nb::arg("data"), nb::arg("first"), nb::arg("count"));
  module.def(
      "sample",
      [](const Engine& engine, const Dataset& data, std::size_t groups, std::uint64_t seed) {
        const nb::gil_scoped_release free;
        return engine.sample(data, groups, seed).value();
      },
      nb::arg("engine"), nb::arg("data"), nb::arg("groups"), nb::arg("seed"));
}

}  // namespace srjit::python

// What the sources of the extension module srjit._core have in common. Its classes and functions are the private half
// of the package: srjit/*.py checks and converts arguments, and documents them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "ir/population.h"
#include "ir/text.h"
#include "runtime/data_view.h"
#include "runtime/population_arrays.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit::python {

namespace nb = nanobind;

void defineExpressions(nb::module_& module);
void defineTrees(nb::module_& module);
void defineData(nb::module_& module);
void defineEngine(nb::module_& module);
void defineEvaluations(nb::module_& module);
void defineDeviceLosses(nb::module_& module);
void defineSearch(nb::module_& module);

/// One-dimensional arrays of adjacent numbers in the processor's memory, read only.
template <class T>
using Numbers = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
/// The same of float or double.
using Column = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> spanOf(const Numbers<T>& numbers) {
  return {numbers.data(), numbers.size()};
}

/// A caller's token arrays.
inline PopulationView populationOf(const Numbers<std::int32_t>& codes, const Numbers<double>& constants,
                                   const Numbers<std::int64_t>& offsets, bool prefix) {
  return {spanOf(codes), spanOf(constants), spanOf(offsets), prefix ? Notation::kPrefix : Notation::kPostfix};
}

/// A NumPy array that takes the numbers of `values`.
template <class T>
nb::object arrayOf(std::vector<T> values) {
  auto* const owned = new std::vector<T>(std::move(values));
  const nb::capsule owner(owned, [](void* of) noexcept { delete static_cast<std::vector<T>*>(of); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

/// The memory of a GPU: pointer, rows, columns, strides of rows and columns in bytes, type.
using DeviceArray = std::tuple<std::uint64_t, std::size_t, std::size_t, std::int64_t, std::int64_t, std::string>;
DeviceMatrix matrixOf(const DeviceArray& array);

/// An instance of srjit.Error.
nb::object errorObject(const Error& error);
/// A list of pairs: the number of an expression, and its error.
nb::list failureList(std::span<const Failure> failures);

/// The one of `choices` that has this name (nameOf()). Throws kInvalid for another word.
template <class T, std::size_t kCount>
T choiceOf(std::string_view what, std::string_view word, const T (&choices)[kCount]) {
  std::string words;
  for (const T choice : choices) {
    if (word == nameOf(choice)) return choice;
    words += (words.empty() ? "'" : ", '") + std::string(nameOf(choice)) + "'";
  }
  throw ErrorException(
      {Errc::kInvalid, std::string(what) + " is '" + std::string(word) + "', expected one of " + words, {}});
}

/// Names of columns; none if there is none.
ColumnNames namesOf(const std::vector<std::string>& names);

/// Numbers of a caller, borrowed. Throws kInvalid for columns of another type than float and double.
DataView viewOf(const std::vector<Column>& columns, const std::optional<Column>& target,
                const std::optional<Column>& weights, const std::vector<std::string>& names);

/// Calls `body` without the GIL; it must not use Python. `owned` is what it reads and writes of Python's objects.
///
/// Python's signal handlers run only on the main thread, so there `body` runs on another thread while this one waits,
/// and looks for signals every 20 ms. If a handler raises an exception, as that of Ctrl-C does, `stop` is requested,
/// and this throws the exception at once; `body` goes on to its end, and then `owned` is released.
void callWithoutGil(std::function<void()> body, nb::object owned, std::stop_source* stop);

/// The same with what `body` gives.
template <class Body>
auto withoutGil(Body body, nb::object owned, std::stop_source* stop = nullptr) {
  using Value = std::invoke_result_t<Body>;
  // Shared, since `body` may outlive this call.
  const auto value = std::make_shared<std::optional<Value>>();
  callWithoutGil([value, body = std::move(body)] { value->emplace(body()); }, std::move(owned), stop);
  return std::move(**value);
}

/// Waits until `is_ready` gives true, which is called without the GIL, again and again; throws what a handler of a
/// signal raises.
void waitUntil(const std::function<bool()>& is_ready);

/// Waits for calls whose waiting was ended early: before Python finalises, and takes what they use.
void finishCalls();

/// The number of the expressions of a result, and the failures of reading them.
struct Origin {
  std::size_t expressions = 0;
  std::shared_ptr<const std::vector<Failure>> failures = {};
};

/// A compiled batch of expressions.
struct CompiledTokens {
  Program program;
  Origin origin;
};
/// Why some expressions of a result have none. Objects of Python are made of it only where they are asked for.
struct Failures {
  Failures(std::vector<Failure> failures, const Origin& origin)
      : list(explainFailures(std::move(failures), origin.expressions,
                             origin.failures == nullptr ? std::span<const Failure>() : *origin.failures)) {}

  std::vector<Failure> list;
};

}  // namespace srjit::python

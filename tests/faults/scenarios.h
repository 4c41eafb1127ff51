// The table of scenarios: public calls, each with what must be there before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ir/error.h"
#include "ir/ops.h"
#include "ir/token_codes.h"
#include "runtime/cuda/handles.h"
#include "runtime/results.h"
#include "tests/faults/kinds.h"
#include "tests/faults/spared_scope.h"
#include "tests/generators/scratch.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {

/// A machine with an empty folder.
struct World {
  explicit World(const FakeOptions& fake) : machine(fake) {}
  Scratch scratch;
  FakeMachine machine;
};

/// Memory of the GPU that belongs to the caller.
class CallersColumns {
 public:
  CallersColumns(FakeDriver& driver, std::size_t rows, std::size_t columns) : driver_(driver) {
    std::vector<float> values(rows * columns);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) - 3;
    matrix_ = {driver.allocateForeign(std::as_bytes(std::span(values))), rows,           columns, sizeof(float),
               static_cast<std::ptrdiff_t>(rows * sizeof(float)),        Precision::kF32};
  }
  ~CallersColumns() { driver_.freeForeign(matrix_.pointer); }
  CallersColumns(const CallersColumns&) = delete;
  CallersColumns& operator=(const CallersColumns&) = delete;

  const DeviceMatrix& matrix() const { return matrix_; }
  std::vector<double> read() const {
    const std::vector<std::byte> bytes =
        driver_.readForeign(matrix_.pointer, matrix_.rows * matrix_.columns * sizeof(float));
    const std::span numbers(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
    return {numbers.begin(), numbers.end()};
  }

 private:
  FakeDriver& driver_;
  DeviceMatrix matrix_;
};

/// Expressions in the memory of the GPU, x0 + x1 and x0 * 1.5, with room for their losses, and a stream of the caller.
struct CallersArrays {
  explicit CallersArrays(FakeDriver& of)
      : driver(of), cuda(Cuda::open(of.load().value(), 0).value()), current(*cuda), stream(cuda) {
    const std::int32_t x = variableCode(0);
    add(std::vector{x, variableCode(1), codeOf(Op::kAdd), x, kConstantCode, codeOf(Op::kMul)});
    add(std::vector<float>{0, 0, 0, 0, 1.5F, 0});
    add(std::vector<std::int64_t>{0, 3, 6});
    add(std::vector<float>{77, 77});
  }
  CallersArrays(const CallersArrays&) = delete;
  CallersArrays& operator=(const CallersArrays&) = delete;
  ~CallersArrays() {
    for (const CUdeviceptr address : addresses) driver.freeForeign(address);
  }
  template <class T>
  void add(const std::vector<T>& values) {
    addresses.push_back(driver.allocateForeign(std::as_bytes(std::span(values))));
  }
  std::uint64_t streamNumber() const { return reinterpret_cast<std::uint64_t>(stream.get()); }
  std::vector<double> losses() const {
    const std::vector<std::byte> bytes = driver.readForeign(addresses[3], 2 * sizeof(float));
    const std::span numbers(reinterpret_cast<const float*>(bytes.data()), 2);
    return {numbers.begin(), numbers.end()};
  }

  FakeDriver& driver;
  std::shared_ptr<const Cuda> cuda;
  CurrentContext current;
  Stream stream;
  std::vector<CUdeviceptr> addresses;  ///< of codes, values, offsets and losses
};

/// What the calls of a scenario gave: numbers, in an order of the scenario's choice, and errors. Where an expression
/// failed, its numbers are NaN; after the error of a whole call no numbers are added.
struct Outcome {
  std::vector<double> numbers = {};
  std::vector<Error> errors = {};
  bool is_cut = false;  ///< a whole call has failed

  void add(std::span<const double> values) {
    if (!is_cut) numbers.insert(numbers.end(), values.begin(), values.end());
  }
  void add(std::span<const Failure> failures) {
    for (const Failure& failure : failures) errors.push_back(failure.error);
  }
  void add(const std::vector<Failure>& failures) { add(std::span(failures)); }
  void add(const Losses& losses) {
    add(losses.values);
    add(losses.failures);
  }
  void add(const Gradients& gradients) { add(gradients.losses); }
  /// Whether a call has given a value; its error is added.
  template <class Value>
  bool isThere(const Result<Value>& result) {
    if (!result) errors.push_back(result.error());
    is_cut = is_cut || !result;
    return result.ok();
  }
  /// The same, and adds the value.
  template <class Value>
  bool take(const Result<Value>& result) {
    if (isThere(result)) add(*result);
    return result.ok();
  }
};

/// Runs `call`, which is the library's, with faults. Exceptions are those that are documented.
template <class Call>
auto tried(const Call& call) {
  const LibraryScope library;
  return call();
}

/// Destroys an object, with faults: a destructor of the library runs.
template <class Object>
void dropped(Object&& object) {
  const LibraryScope library;
  const auto last = std::forward<Object>(object);
}

/// The calls that are tried. May be called several times; owns the preparation.
using Calls = std::function<Outcome()>;

struct Scenario {
  std::string_view name;
  unsigned uses;             ///< bits of Uses
  Calls (*prepare)(World&);  ///< without faults
  FakeOptions (*machine)() = [] { return FakeOptions(); };
  /// Calls that are documented to throw std::bad_alloc are among them.
  bool may_throw = false;
};

/// A new engine, and one evaluation: what an engine makes at its first use.
Calls firstUse(World& world, const EngineOptions& options);
/// Predictions of a program that has served before.
Calls predictions(World& world, const EngineOptions& options);

std::span<const Scenario> gpuScenarios();
std::span<const Scenario> hostScenarios();
std::span<const Scenario> fileScenarios();
std::span<const Scenario> cScenarios();

}  // namespace srjit

// Engines on a model of a GPU, and the CPU engine whose results they must equal.
#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "ir/ops.h"
#include "runtime/engine/parts.h"
#include "runtime/evaluation/program_state.h"
#include "tests/generators/workload.h"
#include "tests/gpu_model/fake_driver.h"
#include "tests/gpu_model/fake_image_maker.h"

namespace srjit {

/// A model of a machine with a GPU. Must outlive its engines and their programs and data.
struct FakeMachine {
  explicit FakeMachine(FakeOptions options = {}) : driver(std::move(options)) {}

  EngineParts parts() {
    return {.driver = [this] { return driver.load(); }, .images = images, .population_parts = population_parts};
  }
  /// An engine on cuda:0, without a disk cache and with 2 threads, unless the options set these.
  Result<Engine> tryEngine(EngineOptions options = {}) {
    if (options.device == "auto") options.device = "cuda:0";
    if (!options.cache_directory) options.cache_directory = "";
    if (options.threads == 0) options.threads = 2;
    return createEngine(options, parts());
  }
  Engine engine(EngineOptions options = {}) { return tryEngine(std::move(options)).value(); }

  FakeDriver driver;
  std::shared_ptr<FakeImageMaker> images = std::make_shared<FakeImageMaker>();
  std::size_t population_parts = 0;  ///< EngineParts::population_parts
};

/// Arrays of a caller in the memory of the model's device.
class ForeignArrays {
 public:
  explicit ForeignArrays(FakeDriver& driver) : driver_(driver) {}
  ForeignArrays(const ForeignArrays&) = delete;
  ForeignArrays& operator=(const ForeignArrays&) = delete;
  ~ForeignArrays() {
    for (const CUdeviceptr address : addresses_) driver_.freeForeign(address);
  }
  /// 0 for no values.
  template <class T>
  std::uint64_t add(const std::vector<T>& values) {
    if (values.empty()) return 0;
    addresses_.push_back(driver_.allocateForeign(std::as_bytes(std::span(values))));
    return addresses_.back();
  }
  template <class T>
  std::vector<T> read(std::uint64_t address, std::size_t count) const {
    const std::vector<std::byte> bytes = driver_.readForeign(address, count * sizeof(T));
    std::vector<T> values(count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  FakeDriver& driver_;
  std::vector<CUdeviceptr> addresses_;
};

/// Only arithmetic, which has the same bits on every device in strict mode.
inline std::vector<Op> arithmeticOps() { return {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kNeg, Op::kAbs}; }

inline Workload arithmeticWorkload(std::uint64_t seed, std::size_t count, std::size_t rows, Precision precision,
                                   bool weighted = false, const std::vector<Op>& ops = arithmeticOps()) {
  const GeneratorOptions options{.seed = seed,
                                 .min_nodes = 1,
                                 .max_nodes = 40,
                                 .variables = 5,
                                 .parameters = 3,
                                 .ops = ops,
                                 .parameter_probability = 0.2,
                                 .special_probability = 0.1};
  Workload w = Workload::random(options, count, rows, Spread::kSpecial, precision);
  if (weighted) {
    for (std::size_t r = 0; r < rows; ++r) w.weights.push_back(r == 0 ? 1.0 : 0.25 * static_cast<double>(r % 5));
  }
  return w;
}

/// The error of a call that took longer than `limit`, e.g. "0.5 s".
template <class T>
void expectLate(const Result<T>& result, const std::string& limit, const char* what) {
  ASSERT_FALSE(result) << what;
  EXPECT_EQ(result.error().code, Errc::kLimit) << what;
  EXPECT_THAT(result.error().message,
              testing::AllOf(testing::HasSubstr(limit), testing::HasSubstr("max_seconds (--max-seconds)")))
      << what;
}

/// Small expressions of arithmetic with up to three parameters: many fits of them converge.
inline Workload fitWorkload(std::size_t expressions, std::size_t rows, Precision precision) {
  const GeneratorOptions options{.seed = 23,
                                 .min_nodes = 3,
                                 .max_nodes = 20,
                                 .variables = 2,
                                 .parameters = 3,
                                 .ops = arithmeticOps(),
                                 .parameter_probability = 0.4};
  return Workload::random(options, expressions, rows, Spread::kTame, precision);
}

/// Waits for background work without a time limit of its own: a condition that never holds fails by the timeout of
/// ctest.
template <class Condition>
void waitUntil(const Condition& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Waits until a program and its background work have released the program's source.
inline void waitForEnd(const std::weak_ptr<const ProgramSource>& source) {
  waitUntil([&] { return source.expired(); });
}

}  // namespace srjit

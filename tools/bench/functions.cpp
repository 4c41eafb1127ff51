// Functions one at a time on the host: the engine's interpreter, precise and on one thread, against loops over libmvec.
//
// Both read 1,000,000 values of each operand and write 1,000,000 values. Before they are timed, their values must
// agree, where libmvec's errors of a few ulp allow it. Counters: nanoseconds per value of both, and libmvec's time
// divided by the engine's.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ir/numbers/random.h"
#include "ir/ops.h"
#include "runtime/engine.h"
#include "runtime/platform/clock.h"
#include "tools/bench/baselines/functions.h"
#include "tools/bench/libmvec.h"

namespace srjit {
namespace {

constexpr std::size_t kFunctionRows = 1'000'000;
constexpr int kFunctionRuns = 200;

template <class T>
class FunctionScenario {
 public:
  explicit FunctionScenario(std::size_t row) : function_(allLibraryFunctions()[row]) {
    const LibraryLoops loops = libraryLoops(row);
    if constexpr (std::is_same_v<T, float>) {
      loop_ = loops.f32;
    } else {
      loop_ = loops.f64;
    }
    Random random(7);
    const auto fill = [&](std::vector<T>& values, double low, double high) {
      for (T& value : values) value = static_cast<T>(random.between(low, high));
    };
    fill(xs_, function_.x_low, function_.x_high);
    fill(ys_, function_.y_low, function_.y_high);
    std::vector<Token> tokens = {Token::variable(0)};
    DataView view{.columns = {xs_}};
    if (arityOf(function_.op) == 2) {
      tokens.push_back(Token::variable(1));
      view.columns.emplace_back(ys_);
    }
    tokens.push_back(Token::operation(function_.op));
    const Expression expression = Expression::create(std::move(tokens)).value();
    data_.emplace(engine_.upload(view).value());
    program_.emplace(engine_.compile({&expression, 1}, {.tier = Tier::kInterpret}));
  }

  bool runEngine() {
    const auto failures = engine_.evaluate(*program_, *data_, {}, std::span<T>(out_));
    return failures.ok() && failures->empty();
  }
  void runLibrary() { loop_(xs_.data(), ys_.data(), library_out_.data(), kFunctionRows); }

  bool agree() const {
    // Below 1, libmvec's functions may lose relative accuracy: sines near multiples of pi.
    const T tolerance = 16 * std::numeric_limits<T>::epsilon();
    for (std::size_t i = 0; i < kFunctionRows; ++i) {
      if (!(std::fabs(out_[i] - library_out_[i]) <= tolerance * std::max(T(1), std::fabs(out_[i])))) return false;
    }
    return true;
  }

 private:
  const LibraryFunction& function_;
  void (*loop_)(const T*, const T*, T*, std::size_t) = nullptr;
  std::vector<T> xs_ = std::vector<T>(kFunctionRows), ys_ = xs_, out_ = xs_, library_out_ = xs_;
  Engine engine_ = Engine::create({.device = "cpu",
                                   .precision = std::is_same_v<T, float> ? Precision::kF32 : Precision::kF64,
                                   .math = Math::kPrecise,
                                   .threads = 1})
                       .value();
  std::optional<Dataset> data_;
  std::optional<Program> program_;
};

template <class T>
void compareFunction(benchmark::State& state, std::size_t row) {
  FunctionScenario<T> scenario(row);
  const bool is_evaluated = scenario.runEngine();
  scenario.runLibrary();
  if (!is_evaluated || !scenario.agree()) {
    state.SkipWithError(is_evaluated ? "the values differ" : "the engine failed");
    return;
  }
  double engine = INFINITY, library = INFINITY;
  for (auto _ : state) {
    const Stopwatch watch;
    scenario.runEngine();
    const double middle = watch.seconds();
    scenario.runLibrary();
    engine = std::min(engine, middle);
    library = std::min(library, watch.seconds() - middle);
    state.SetIterationTime(middle);
  }
  state.counters["ns_per_value"] = engine * 1e9 / kFunctionRows;
  state.counters["library_ns_per_value"] = library * 1e9 / kFunctionRows;
  state.counters["vs_library"] = library / engine;
}

const bool kFunctionsRegistered = [] {
  const auto functions = allLibraryFunctions();
  for (std::size_t row = 0; row < functions.size(); ++row) {
    const auto add = [&](const char* precision, auto compare) {
      const std::string name =
          "functions/" + std::string(precision) + "/" + std::string(infoOf(functions[row].op).name);
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { compare(state, row); })
          ->Unit(benchmark::kMillisecond)
          ->Iterations(kFunctionRuns)
          ->UseManualTime();
    };
    add("f32", compareFunction<float>);
    add("f64", compareFunction<double>);
  }
  return true;
}();

}  // namespace
}  // namespace srjit

// Node evaluations per second on the host: a plain stack machine, the interpreter and compiled code, on all cores.
//
// A node evaluation is one token of an expression for one row. The populations are those of population.h, in f32 fast,
// over 100,000 rows. Before anything is timed, the two tiers must agree bit for bit, and with the float64 reference
// within its error bound. The counters vs_baseline and vs_interpreter are ratios of rates measured in this run.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/reference.h"
#include "runtime/engine.h"
#include "tests/generators/population.h"
#include "tools/bench/baselines/designs/cpu_switch.h"

namespace srjit {
namespace {

constexpr std::size_t kEvaluateExpressions = 256;
constexpr std::size_t kEvaluateRows = 100000;

class Scenario {
 public:
  explicit Scenario(const std::string& population)
      : expressions_(ExpressionGenerator(findPopulation(population).value()).batch(kEvaluateExpressions)) {
    Random random(7);
    DataView view;
    for (int c = 0; c < 10; ++c) {
      std::vector<float>& column = baseline_data_.columns.emplace_back(kEvaluateRows);
      for (float& value : column) value = static_cast<float>(random.between(-3.0, 3.0));
      view.columns.emplace_back(std::span<const float>(column));
    }
    baseline_data_.target = baseline_data_.columns[0];
    view.target.emplace(std::span<const float>(baseline_data_.target));
    data_.emplace(engine_.upload(view).value());
    for (const Expression& expression : expressions_) nodes_ += expression.size();
    predictions_.resize(kEvaluateExpressions * kEvaluateRows);
    baseline_ = makeCpuSwitch(baseline_data_);
    baseline_->prepare(expressions_);
  }

  /// The scenario of a population, created once.
  static Scenario& of(const std::string& population) {
    static std::map<std::string, std::unique_ptr<Scenario>> scenarios;
    auto& scenario = scenarios[population];
    if (scenario == nullptr) scenario = std::make_unique<Scenario>(population);
    return *scenario;
  }

  void runBaseline() { baseline_->predictions({}, predictions_); }

  const Program& program(Tier tier) {
    auto& program = programs_[tier];
    if (program == nullptr) program = std::make_unique<Program>(compile(tier));
    return *program;
  }
  Program compile(Tier tier) const { return engine_.compile(expressions_, {.tier = tier}); }
  bool evaluate(Tier tier) {
    const auto failures = engine_.evaluate(program(tier), *data_, {}, std::span<float>(predictions_));
    return failures.ok() && failures->empty();
  }
  bool loss(Tier tier) { return engine_.loss(program(tier), *data_, {}).ok(); }

  double nodes() const { return static_cast<double>(nodes_); }
  double evaluations() const { return nodes() * kEvaluateRows; }
  std::map<std::string, double> core_seconds;  ///< best processor time of each method

  /// Error message of the comparison of tiers; empty if all agree.
  const std::string& fault() {
    if (!checked_) fault_ = findFault();
    checked_ = true;
    return fault_;
  }

 private:
  std::string findFault() {
    if (!evaluate(Tier::kCompile)) return "the compiled tier failed";
    const std::vector<float> compiled = predictions_;
    if (!evaluate(Tier::kInterpret)) return "the interpreter failed";
    for (std::size_t i = 0; i < compiled.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(compiled[i]) != std::bit_cast<std::uint32_t>(predictions_[i]) &&
          !(std::isnan(compiled[i]) && std::isnan(predictions_[i]))) {
        return "the tiers differ in expression " + std::to_string(i / kEvaluateRows);
      }
    }
    for (std::size_t e = 0; e < expressions_.size(); ++e) {
      for (std::size_t row = e; row < kEvaluateRows; row += kEvaluateRows / 8) {
        if (!withinBound(e, row)) return "expression " + std::to_string(e) + " is outside its error bound";
      }
    }
    return "";
  }

  bool withinBound(std::size_t expression, std::size_t row) const {
    std::vector<double> variables;
    for (const auto& column : baseline_data_.columns) variables.push_back(static_cast<double>(column[row]));
    const Bounded expected = evaluateBounded(expressions_[expression], variables, {}, {Precision::kF32, Math::kFast});
    const auto got = static_cast<double>(predictions_[expression * kEvaluateRows + row]);
    return !std::isfinite(expected.error) || got == expected.value || (std::isnan(got) && std::isnan(expected.value)) ||
           std::fabs(got - expected.value) <= expected.error;
  }

  Engine engine_ = Engine::create({.math = Math::kFast}).value();
  std::vector<Expression> expressions_;
  BaselineData baseline_data_;
  std::unique_ptr<Baseline> baseline_;
  std::optional<Dataset> data_;
  std::size_t nodes_ = 0;
  std::vector<float> predictions_;
  std::map<Tier, std::unique_ptr<Program>> programs_;
  bool checked_ = false;
  std::string fault_;
};

/// Times `body` and reports rates, and ratios to the methods that ran before.
template <class Body>
void measure(benchmark::State& state, const std::string& population, const std::string& method, const Body& body) {
  Scenario& scenario = Scenario::of(population);
  if (const std::string& fault = scenario.fault(); !fault.empty()) {
    state.SkipWithError(fault.c_str());
    return;
  }
  double best = INFINITY, best_of_cores = INFINITY;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t start_of_cores = std::clock();
    body(scenario);
    best_of_cores = std::min(best_of_cores, static_cast<double>(std::clock() - start_of_cores) / CLOCKS_PER_SEC);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  scenario.core_seconds[method] = best_of_cores;
  state.counters["nodes_per_s"] = scenario.evaluations() / best;
  state.counters["nodes_per_core_s"] = scenario.evaluations() / best_of_cores;
  const auto ratio = [&](const char* counter, const std::string& other) {
    const auto found = scenario.core_seconds.find(other);
    if (found != scenario.core_seconds.end() && other != method)
      state.counters[counter] = found->second / best_of_cores;
  };
  ratio("vs_baseline", "baseline");
  if (method == "compiled") ratio("vs_interpreter", "interpreter");
  if (method == "compiled_loss") ratio("vs_interpreter", "interpreter_loss");
}

/// Times Engine::compile(), for runtime/host/cost_model.h.
void measureCompile(benchmark::State& state, const std::string& population, Tier tier) {
  const Scenario& scenario = Scenario::of(population);
  for (auto _ : state) benchmark::DoNotOptimize(scenario.compile(tier));
  state.counters["s_per_node"] =
      benchmark::Counter(scenario.nodes(), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

const bool kEvaluateRegistered = [] {
  const auto add = [](const std::string& name, auto body) {
    return benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMillisecond)->UseRealTime();
  };
  for (const std::string population : {"mixed", "arithmetic"}) {
    const auto addMethod = [&](const std::string& method, auto body) {
      return add("evaluate/" + population + "/" + method,
                 [=](benchmark::State& state) { measure(state, population, method, body); });
    };
    addMethod("baseline", [](Scenario& s) { s.runBaseline(); })->Iterations(2);
    addMethod("interpreter", [](Scenario& s) { s.evaluate(Tier::kInterpret); });
    addMethod("compiled", [](Scenario& s) { s.evaluate(Tier::kCompile); });
    addMethod("interpreter_loss", [](Scenario& s) { s.loss(Tier::kInterpret); });
    addMethod("compiled_loss", [](Scenario& s) { s.loss(Tier::kCompile); });
    for (const auto& [name, tier] : {std::pair{"interpreter", Tier::kInterpret}, {"compiled", Tier::kCompile}}) {
      add("compile/" + population + "/" + name,
          [=, t = tier](benchmark::State& state) { measureCompile(state, population, t); });
    }
  }
  return true;
}();

}  // namespace
}  // namespace srjit

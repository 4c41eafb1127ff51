// Scaled losses of predictions and targets in any unit and far from 0: against sums in long double over the engine's
// own predictions, in every tier, on the CPU and on a model of a GPU.
#include <atomic>
#include <cmath>
#include <string>

#include <gmock/gmock.h>

#include "ir/text.h"
#include "runtime/platform/trace_events.h"
#include "tests/generators/token_arrays.h"
#include "tests/generators/workload.h"
#include "tests/gpu_model/direct_machine.h"

namespace srjit {
namespace {

using testing::HasSubstr;

/// Scaled-nmse and correlation by their definitions.
struct Exact {
  double nmse, correlation;
};

Exact exactOf(std::span<const double> f, const Workload& w, Precision precision) {
  using Wide = long double;
  const std::size_t rows = f.size();
  // Less the first row, without rounding.
  const auto y = [&](std::size_t r) { return Wide(roundTo(precision, w.target[r])) - roundTo(precision, w.target[0]); };
  const auto of = [&](std::size_t r) { return Wide(f[r]) - f[0]; };
  const auto weight = [&](std::size_t r) {
    return w.weights.empty() ? Wide(1) : Wide(roundTo(precision, w.weights[r]));
  };
  Wide weights = 0, mean_f = 0, mean_y = 0;
  for (std::size_t r = 0; r < rows; ++r) weights += weight(r);
  for (std::size_t r = 0; r < rows; ++r) {
    mean_f += weight(r) * of(r) / weights;
    mean_y += weight(r) * y(r) / weights;
  }
  Wide ff = 0, fy = 0, yy = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const Wide g = of(r) - mean_f, z = y(r) - mean_y;
    ff += weight(r) * g * g;
    fy += weight(r) * g * z;
    yy += weight(r) * z * z;
  }
  const Wide correlation = fy / (sqrtl(ff) * sqrtl(yy));
  return {static_cast<double>(1 - correlation * correlation), static_cast<double>(correlation)};
}

/// Of docs/losses.md: of the target's variance.
double accuracyOf(Precision precision) { return precision == Precision::kF32 ? 1e-5 : 1e-14; }

Workload workloadOf(std::initializer_list<std::string_view> texts, std::vector<std::vector<double>> columns,
                    std::vector<double> target) {
  Workload w{.columns = std::move(columns), .target = std::move(target)};
  for (const std::string_view text : texts) w.expressions.push_back(parse(text, Language::kInfix, {"a", "b"}).value());
  return w;
}

std::vector<double> uniform(std::uint64_t seed, std::size_t rows, double least, double most) {
  Random random(seed);
  std::vector<double> numbers(rows);
  for (double& number : numbers) number = random.between(least, most);
  return numbers;
}

template <class Function>
std::vector<double> targetOf(const std::vector<std::vector<double>>& columns, const Function& function) {
  std::vector<double> target;
  for (std::size_t r = 0; r < columns[0].size(); ++r) target.push_back(function(columns[0][r], columns[1][r]));
  return target;
}

/// Predictions c (f + d) with variations near c for the units c and the offsets d of a precision, and targets likewise.
class ScaledLosses : public testing::TestWithParam<Precision> {
 protected:
  bool isWide() const { return GetParam() == Precision::kF64; }
  std::vector<double> units() const {
    return isWide() ? std::vector{1.0, 1e-290, 1e-20, 1e150, 1e290} : std::vector{1.0, 1e-31, 1e-10, 1e9, 1e30};
  }
  std::vector<double> offsets() const {
    return isWide() ? std::vector{0.0, -3.0, 1e4, 1e12} : std::vector{0.0, -3.0, 1e3, 1e6};
  }

  /// One expression p0 x0 + p1 x1 + p2 for each unit and offset of it.
  Workload manyUnits(std::size_t rows, double unit_of_y, double offset_of_y, bool weighted) const {
    Workload w = workloadOf({}, {uniform(1, rows, -1, 1), uniform(2, rows, -1, 1)}, {});
    for (std::vector<double>& column : w.columns) {
      for (double& number : column) number = roundTo(GetParam(), number);
    }
    w.target = targetOf(w.columns, [&](double a, double b) { return unit_of_y * (a + 0.25 * b + offset_of_y); });
    if (weighted) w.weights = uniform(3, rows, 0.25, 4);
    for (const double unit : units()) {
      for (const double offset : offsets()) {
        w.expressions.push_back(infix("p0*x0 + p1*x1 + p2"));
        for (const double parameter : {unit, -0.5 * unit, offset * unit}) w.parameters.push_back(parameter);
      }
    }
    return w;
  }

  void expectExact(const Engine& engine, const Workload& w, NanPolicy nan) const {
    const auto [data, program] = prepared(engine, w);
    const std::vector<double> f = predict(engine, program, data, w.parameters);
    const Losses nmse = engine.loss(program, data, w.parameters, {LossKind::kScaledNmse, nan}).value();
    const Losses r2 = engine.loss(program, data, w.parameters, {LossKind::kScaledR2, nan}).value();
    const Losses correlation = engine.loss(program, data, w.parameters, {LossKind::kCorrelation, nan}).value();
    for (std::size_t e = 0; e < program.size(); ++e) {
      const Exact exact = exactOf(std::span(f).subspan(e * w.rows(), w.rows()), w, GetParam());
      const std::string what = fmt::format("{} x0 + {} x1 + {}, targets near {}", w.parameters[3 * e],
                                           w.parameters[3 * e + 1], w.parameters[3 * e + 2], w.target[0]);
      ASSERT_NEAR(nmse.values[e], exact.nmse, accuracyOf(GetParam())) << what;
      ASSERT_NEAR(r2.values[e], 1 - exact.nmse, accuracyOf(GetParam())) << what;
      ASSERT_NEAR(correlation.values[e], exact.correlation, accuracyOf(GetParam())) << what;
      EXPECT_EQ(nmse.valid_rows[e], w.rows());
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Precisions, ScaledLosses, testing::Values(Precision::kF32, Precision::kF64),
                         [](const auto& test) { return std::string(nameOf(test.param)); });

TEST_P(ScaledLosses, DoNotDependOnUnitsAndOffsets) {
  const Engine engine = cpuEngine(GetParam(), Math::kPrecise);
  for (const double unit : units()) {
    for (const double offset : offsets()) {
      for (const bool weighted : {false, true}) {
        const NanPolicy nan = weighted ? NanPolicy::kSkip : NanPolicy::kPropagate;
        expectExact(engine, manyUnits(300, unit, offset, weighted), nan);
      }
    }
  }
}

TEST_P(ScaledLosses, HaveTheSameBitsInEveryTierAndOfPopulations) {
  const Engine cpu = cpuEngine(GetParam());
  FakeMachine machine({.lag = true});
  machine.population_parts = 3;
  const Engine gpu = machine.engine({.precision = GetParam(), .math = Math::kStrict});
  Workload w = manyUnits(40, units().back(), offsets().back(), true);
  w.expressions.erase(w.expressions.begin() + 8, w.expressions.end());  // two units are left
  w.parameters.resize(24);
  const LossOptions options{LossKind::kScaledNmse, NanPolicy::kSkip};
  const Losses expected = lossesOf(cpu, w, Tier::kInterpret, options);
  expectSameLosses(lossesOf(cpu, w, Tier::kCompile, options), expected, "compiled");
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    expectSameLosses(lossesOf(gpu, w, tier, options), expected, nameOf(tier));
  }
  const TokenArrays arrays = tokensOf(w.expressions);
  for (const Engine& engine : {cpu, gpu}) {
    const Dataset data = engine.upload(w.view()).value();
    expectSameLosses(engine.loss(arrays.view(), data, w.parameters, options).value(), expected, "population");
  }
}

/// Random expressions, many of which are far from 0, constant, or not finite in some rows.
Workload randomWorkload(std::uint64_t seed, std::size_t count, std::size_t rows, bool weighted, Precision precision) {
  const GeneratorOptions options{.seed = seed, .min_nodes = 1, .max_nodes = 20, .variables = 3, .parameters = 2};
  Workload w = Workload::random(options, count, rows, Spread::kTame, precision);
  if (weighted) w.weights = uniform(seed, rows, 0.25, 4);
  return w;
}

// Kernels add the moments of predictions; the sums of gradients are those of graphs that are derived for them.
TEST_P(ScaledLosses, HaveTheBitsOfDerivedGraphs) {
  for (const Math math : kMathModes) {
    const Engine engine = cpuEngine(GetParam(), math);
    for (const bool weighted : {false, true}) {
      for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip, NanPolicy::kReject}) {
        for (const std::size_t rows : {40U, 700U}) {
          const Workload w = randomWorkload(rows, 300, rows, weighted, GetParam());
          const auto [data, program] = prepared(engine, w);
          const LossOptions options{LossKind::kScaledNmse, nan};
          const Losses losses = engine.loss(program, data, w.parameters, options).value();
          const Gradients derived = engine.gradient(program, data, w.parameters, {.loss = options}).value();
          expectSameLosses(losses, derived.losses, fmt::format("{} rows", rows));
        }
      }
    }
  }
}

// A model of a GPU runs direct code.
TEST_P(ScaledLosses, OfRandomExpressionsHaveTheSameBitsOnAGpu) {
  const Engine cpu = cpuEngine(GetParam());
  DirectMachine machine;
  EngineOptions options = machine.strict();
  options.precision = GetParam();
  const Engine gpu = machine.engine(options);
  for (const bool weighted : {false, true}) {
    const Workload w = randomWorkload(7, 60, 300, weighted, GetParam());
    for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
      const LossOptions loss{LossKind::kScaledNmse, nan};
      const Losses expected = lossesOf(cpu, w, Tier::kInterpret, loss);
      for (const Tier tier : {Tier::kInterpret, Tier::kCompile, Tier::kDirect}) {
        expectSameLosses(lossesOf(gpu, w, tier, loss), expected, nameOf(tier));
      }
    }
  }
}

TEST_P(ScaledLosses, DoNotDependOnTheBatch) {
  const Engine engine = cpuEngine(GetParam());
  const Workload w = manyUnits(150, 1, offsets().back(), true);
  const LossOptions options{.kind = LossKind::kScaledNmse};
  const Losses expected = lossesOf(engine, w, Tier::kInterpret, options);
  const Dataset data = engine.upload(w.view()).value();
  for (std::size_t e = 0; e < w.expressions.size(); ++e) {
    const Program program = engine.compile(std::span(w.expressions).subspan(e, 1));
    const std::span<const double> parameters = std::span(w.parameters).subspan(3 * e, 3);
    EXPECT_TRUE(sameBits(engine.loss(program, data, parameters, options).value().values[0], expected.values[e])) << e;
  }
  std::vector<double> parameters = w.parameters;
  auto pending = engine.submitLoss(engine.compile(w.expressions), data, parameters, options).value();
  parameters.assign(parameters.size(), 7);  // they are the caller's again
  expectSameLosses(std::move(pending).result().value(), expected, "submitted");
}

TEST_P(ScaledLosses, OfAPopulationAreThoseOfItsProgram) {
  const Engine cpu = cpuEngine(GetParam());
  FakeMachine machine({.lag = true});
  machine.population_parts = 3;
  const Engine gpu = machine.engine({.precision = GetParam(), .math = Math::kStrict});
  const Workload w = manyUnits(150, 1, offsets().back(), false);
  TokenArrays arrays;
  for (const Expression& expression : w.expressions) arrays.addPostfix(expression);
  const LossOptions options{LossKind::kScaledNmse, NanPolicy::kReject};
  const Losses expected = lossesOf(cpu, w, Tier::kInterpret, options);
  expectSameLosses(cpu.loss(arrays.view(), cpu.upload(w.view()).value(), w.parameters, options).value(), expected,
                   "CPU");
  expectSameLosses(gpu.loss(arrays.view(), gpu.upload(w.view()).value(), w.parameters, options).value(), expected,
                   "three parts");
}

// As a search evaluates: y = a - k b, where b alone explains all but 1 / k^2.
TEST_P(ScaledLosses, TellALawFromItsLargestTerm) {
  for (const double k : {20.0, 100.0, 200.0}) {
    Workload w = workloadOf({"b", fmt::format("b - a/{}", k)}, {uniform(1, 300, 1, 5), uniform(2, 300, 1, 5)}, {});
    w.target = targetOf(w.columns, [&](double a, double b) { return a - k * b; });
    const Losses losses = lossesOf(cpuEngine(GetParam()), w, Tier::kInterpret, {.kind = LossKind::kScaledNmse});
    EXPECT_NEAR(losses.values[0], 0.9 / (k * k), 0.2 / (k * k)) << k;
    EXPECT_LT(losses.values[1], losses.values[0] / 4) << k;
  }
}

TEST_P(ScaledLosses, OfLargeTargetsSeeSmallPredictions) {
  for (const double k : {1000.0, 1e8, 1e12}) {
    Workload w = workloadOf({"a/b"}, {uniform(1, 300, 1, 5), uniform(2, 300, 1, 5)}, {});
    w.target = targetOf(w.columns, [&](double a, double b) { return k * a / b; });
    const Losses losses = lossesOf(cpuEngine(GetParam()), w, Tier::kInterpret, {.kind = LossKind::kCorrelation});
    EXPECT_NEAR(losses.values[0], 1, 1e-6) << k;
  }
}

/// What a call evaluates.
template <class Call>
int evaluationsOf(const Call& call) {
  std::atomic<int> kernels = 0;
  const auto count = [&](const TraceEvent& event) { kernels += event.kind == TraceKind::kKernel ? 1 : 0; };
  startTrace(count);
  call();
  EXPECT_TRUE(endTrace());
  return kernels;
}

TEST_P(ScaledLosses, AreOnePassUnlessAGpuHasPredictionsFarFromZero) {
  const Engine engine = cpuEngine(GetParam());
  Workload w = workloadOf({"a", "b", "a*b", "a/b - 2", "a + 3*b"}, {uniform(1, 300, 1, 5), uniform(2, 300, 1, 5)}, {});
  w.target = targetOf(w.columns, [](double a, double b) { return a * b; });
  const Dataset data = engine.upload(w.view()).value();
  const LossOptions options{.kind = LossKind::kScaledNmse};
  const Program program = engine.compile(w.expressions);
  EXPECT_EQ(evaluationsOf([&] { (void)engine.loss(program, data, {}, options).value(); }), 1);
  for (const char* const text : {"0", "1e30", "7"}) w.expressions.push_back(infix(text));
  const Program constants = engine.compile(w.expressions);
  EXPECT_EQ(evaluationsOf([&] { (void)engine.loss(constants, data, {}, options).value(); }), 1);
  w.expressions.push_back(infix("x0 + 1000"));
  const Program far = engine.compile(w.expressions);
  EXPECT_EQ(evaluationsOf([&] { (void)engine.loss(far, data, {}, options).value(); }), 1) << "sums are added again";
  EXPECT_EQ(evaluationsOf([&] { (void)engine.gradient(far, data, {}, {.loss = options}).value(); }), 2);
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.precision = GetParam(), .math = Math::kStrict});
  const Dataset on_gpu = gpu.upload(w.view()).value();
  const auto timesOf = [&](const Program& made) {
    return evaluationsOf([&] { (void)gpu.loss(made, on_gpu, {}, options).value(); });
  };
  EXPECT_EQ(timesOf(gpu.compile(std::span(w.expressions).first(8))), 1);
  EXPECT_EQ(timesOf(gpu.compile(w.expressions)), 2);
}

TEST_P(ScaledLosses, OfConstantsAreThoseOfTheMean) {
  const Engine engine = cpuEngine(GetParam());
  Workload w = workloadOf({"0", "7", "1e30", "-1e-30", "0.1 + 0*a", "1e9*(1 + 1e-25*a)", "1/(a - a)", "log(-a)"},
                          {uniform(1, 300, 1, 5), uniform(2, 300, 1, 5)}, {});
  w.target = targetOf(w.columns, [](double a, double b) { return a * b; });
  const Losses nmse = lossesOf(engine, w, Tier::kInterpret, {.kind = LossKind::kScaledNmse});
  const Losses correlation = lossesOf(engine, w, Tier::kInterpret, {.kind = LossKind::kCorrelation});
  for (std::size_t e = 0; e < 6; ++e) {
    EXPECT_NEAR(nmse.values[e], 1, 1e-15) << e;
    EXPECT_EQ(correlation.values[e], 0) << e;
    EXPECT_EQ(nmse.valid_rows[e], 300U) << e;
  }
  for (std::size_t e = 6; e < 8; ++e) {
    EXPECT_TRUE(std::isnan(nmse.values[e])) << e;
    EXPECT_EQ(nmse.valid_rows[e], Losses::kNotCounted) << e;
  }
}

// Rows that are skipped, and an expression that fails beside one that is evaluated again.
TEST_P(ScaledLosses, FollowPoliciesAndFailures) {
  const Engine engine = cpuEngine(GetParam());
  Workload w =
      workloadOf({"1e4 + sqrt(a)", "x9 + 1e4", "1e4 + 0/(a - a)"}, {uniform(1, 300, -1, 4), uniform(2, 300, 1, 5)}, {});
  w.target = targetOf(w.columns, [](double a, double) { return 3 * std::sqrt(std::fabs(a)); });
  std::uint64_t valid = 0;
  for (const double a : w.columns[0]) valid += roundTo(GetParam(), a) >= 0;
  const Losses losses = lossesOf(engine, w, Tier::kInterpret, {LossKind::kScaledNmse, NanPolicy::kSkip});
  EXPECT_NEAR(losses.values[0], 0, isWide() ? 1e-12 : 1e-5);
  EXPECT_EQ(losses.valid_rows[0], valid);
  EXPECT_TRUE(std::isnan(losses.values[1]));
  ASSERT_EQ(losses.failures.size(), 1U);
  EXPECT_THAT(losses.failures[0].error.message, HasSubstr("variable x9"));
  EXPECT_TRUE(std::isnan(losses.values[2]));
  EXPECT_EQ(losses.valid_rows[2], 0U);
  const Losses rejected = lossesOf(engine, w, Tier::kInterpret, {LossKind::kScaledNmse, NanPolicy::kReject});
  EXPECT_EQ(rejected.values[0], kInfinity);
}

TEST(ScaledLossGradients, FarFromZeroAreThoseOfDifferences) {
  const Engine engine = cpuEngine(Precision::kF64);
  Workload w = workloadOf({"p0*sin(p1*a) + b*p2 + 1e6", "1e-200*(a^p0 + p1*b)", "p0 + p1*a + a^2"},
                          {uniform(1, 300, 1, 5), uniform(2, 300, 1, 5)}, {});
  w.target = targetOf(w.columns, [](double a, double b) { return 1e5 + a * b; });
  w.parameters = {1.5, 0.7, -0.3, 1.5, 2.0, 1e5, -2.0};
  const auto [data, program] = prepared(engine, w);
  for (const LossKind kind :
       {LossKind::kScaledNmse, LossKind::kScaledR2, LossKind::kScaledRmse, LossKind::kCorrelation}) {
    const LossOptions options{.kind = kind};
    const Gradients gradients = engine.gradient(program, data, w.parameters, {.loss = options}).value();
    expectSameBits(gradients.losses.values, engine.loss(program, data, w.parameters, options).value().values, 1,
                   "losses");
    for (std::size_t p = 0; p < w.parameters.size(); ++p) {
      const double step = 1e-4 * std::max(1.0, std::fabs(w.parameters[p]) * 1e-3);
      const auto at = [&](double offset) {
        std::vector<double> moved = w.parameters;
        moved[p] += offset;
        const std::vector<double> values = engine.loss(program, data, moved, options).value().values;
        return values[p < 3 ? 0 : p < 5 ? 1 : 2];
      };
      const double expected = (at(step) - at(-step)) / (2 * step);
      EXPECT_NEAR(gradients.derivatives[p], expected, 1e-5 * (1 + std::fabs(expected)))
          << infoOf(kind).name << " p" << p;
    }
  }
}

}  // namespace
}  // namespace srjit

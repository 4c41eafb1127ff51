// Gradients and Jacobians on the processor: their numbers, layouts, policies and errors.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "ir/ops.h"
#include "ir/text.h"
#include "tests/generators/workload.h"

namespace srjit {
namespace {

using testing::HasSubstr;

Engine wideEngine(Math math = Math::kStrict) { return cpuEngine(Precision::kF64, math); }

Workload slopesOf(std::initializer_list<std::string_view> texts, std::vector<double> parameters) {
  return {.expressions = infixes(texts),
          .columns = {{1, 2, 3, 4, 5}, {0.5, -1, 2, 0.25, 1}},
          .target = {2, 1, 4, 3, 6},
          .parameters = std::move(parameters)};
}

/// Random smooth expressions with three parameters and weights.
Workload smoothWorkload(std::size_t count, std::size_t rows) {
  const GeneratorOptions options{.seed = 7,
                                 .min_nodes = 3,
                                 .max_nodes = 25,
                                 .variables = 3,
                                 .parameters = 3,
                                 .ops = {Op::kAdd, Op::kSub, Op::kMul, Op::kSin, Op::kCos, Op::kTanh, Op::kAq},
                                 .parameter_probability = 0.4};
  Workload w = Workload::random(options, count, rows, Spread::kTame, Precision::kF64);
  for (std::size_t r = 0; r < rows; ++r) w.weights.push_back(0.25 * static_cast<double>(1 + r % 5));
  return w;
}

void expectFiniteDifferences(const Engine& engine, const Workload& w, const LossOptions& loss, std::string_view name) {
  const auto [data, program] = prepared(engine, w);
  const Gradients gradients = engine.gradient(program, data, w.parameters, {.loss = loss}).value();
  const Losses losses = engine.loss(program, data, w.parameters, loss).value();
  expectSameBits(gradients.losses.values, losses.values, 1, "losses");
  EXPECT_EQ(gradients.losses.valid_rows, losses.valid_rows);
  const bool is_scaled = !loss.custom && infoOf(loss.kind).isScaled();
  std::size_t compared = 0;
  for (std::size_t e = 0; e < program.size(); ++e) {
    for (std::size_t p = program.parameterOffset(e); p < program.parameterOffset(e + 1); ++p) {
      if (!std::isfinite(losses.values[e])) {
        EXPECT_TRUE(std::isnan(gradients.derivatives[p]));
        continue;
      }
      // Scaled losses of almost constant predictions have large roundings, which a longer step makes smaller.
      const double step = (is_scaled ? 1e-4 : 1e-5) * std::max(1.0, std::fabs(w.parameters[p]));
      const auto at = [&](double offset) {
        std::vector<double> moved = w.parameters;
        moved[p] += offset;
        return engine.loss(program, data, moved, loss).value().values[e];
      };
      const double expected = (at(step) - at(-step)) / (2 * step);
      if (!std::isfinite(expected)) continue;
      const double scale = std::fabs(expected) + std::fabs(losses.values[e]) + 1;
      const double tolerance = is_scaled ? 1e-5 : 1e-6;
      EXPECT_NEAR(gradients.derivatives[p], expected, tolerance * scale)
          << name << ' ' << print(w.expressions[e], Language::kInfix);
      ++compared;
    }
  }
  EXPECT_GT(compared, 3U) << name;
}

TEST(EngineGradient, AgreesWithFiniteDifferencesForEveryLoss) {
  const Engine engine = wideEngine();
  const Workload w = withShares(smoothWorkload(40, 150));
  for (const LossInfo& info : allLosses()) {
    if (info.kind == LossKind::kMae || info.kind == LossKind::kQuantile) continue;  // not smooth
    expectFiniteDifferences(engine, w, {.kind = info.kind}, info.name);
  }
  for (const char* const text : {"log(cosh(f - y))", "square(f - y)/(1 + w)", "exp(f*y)"}) {
    expectFiniteDifferences(engine, w, lossBy(text), text);
  }
}

TEST(EngineGradient, OfTheMeanErrorHasTheSignsOfTheResiduals) {
  const Workload w = slopesOf({"p0 * x0"}, {1});  // residuals -1, 1, -1, 1, -1
  const Gradients gradients = gradientsOf(wideEngine(), w, Tier::kInterpret, {.loss = {.kind = LossKind::kMae}});
  EXPECT_EQ(gradients.losses.values[0], 1);
  EXPECT_DOUBLE_EQ(gradients.derivatives[0], (-1 + 2 - 3 + 4 - 5) / 5.0);
}

TEST(EngineGradient, TiersGiveTheSameBits) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    const Engine engine = cpuEngine(precision, Math::kPrecise);
    const Workload w = smoothWorkload(20, 213);
    for (const DerivativesBy by : {DerivativesBy::kParameters, DerivativesBy::kVariables}) {
      const GradientOptions options{.loss = {.kind = LossKind::kMse, .nan = NanPolicy::kSkip}, .by = by};
      expectSameGradients(gradientsOf(engine, w, Tier::kCompile, options),
                          gradientsOf(engine, w, Tier::kInterpret, options), "compiled");
      expectSameBits(jacobianOf(engine, w, Tier::kCompile, by), jacobianOf(engine, w, Tier::kInterpret, by), w.rows(),
                     "compiled");
    }
  }
}

TEST(EngineGradient, AJacobianHasOneColumnPerParameter) {
  const Workload w = slopesOf({"p0 * x0 + p1", "x0 + 1", "sin(p0) * x1", "p2 * x0"}, {2, 3, 0.5, 7, 7, 4});
  const std::vector<double> j = jacobianOf(wideEngine(), w, Tier::kInterpret, DerivativesBy::kParameters);
  ASSERT_EQ(j.size(), 6U * 5);
  for (std::size_t r = 0; r < 5; ++r) {
    EXPECT_EQ(j[r], w.columns[0][r]);
    EXPECT_EQ(j[5 + r], 1);
    EXPECT_DOUBLE_EQ(j[10 + r], std::cos(0.5) * w.columns[1][r]);
    EXPECT_EQ(j[15 + r], 0) << "p0, which the last expression does not use";
    EXPECT_EQ(j[20 + r], 0);
    EXPECT_EQ(j[25 + r], w.columns[0][r]);
  }
}

TEST(EngineGradient, AJacobianByVariablesHasOneColumnPerColumnOfTheData) {
  const Workload w = slopesOf({"square(x1)", "p0"}, {2});
  const std::vector<double> j = jacobianOf(wideEngine(), w, Tier::kInterpret, DerivativesBy::kVariables);
  ASSERT_EQ(j.size(), 2U * 2 * 5);
  for (std::size_t r = 0; r < 5; ++r) {
    EXPECT_EQ(j[r], 0);
    EXPECT_EQ(j[5 + r], 2 * w.columns[1][r]);
    EXPECT_EQ(j[10 + r], 0);
    EXPECT_EQ(j[15 + r], 0);
  }
}

TEST(EngineGradient, NothingToDifferentiateByIsNoError) {
  const Workload w = slopesOf({"x0", "x1 * 2"}, {});
  EXPECT_TRUE(jacobianOf(wideEngine(), w, Tier::kInterpret, DerivativesBy::kParameters).empty());
  const Gradients gradients = gradientsOf(wideEngine(), w, Tier::kInterpret, {});
  EXPECT_EQ(gradients.losses.values.size(), 2U);
  EXPECT_TRUE(gradients.derivatives.empty());
}

// sqrt(p0 * x1) is NaN in the row where x1 = -1; its slope is infinite for p0 = 0.
TEST(EngineGradient, RowsThatAreNotFiniteFollowThePolicy) {
  const Engine engine = wideEngine();
  const Workload w = slopesOf({"sqrt(p0 * x1)"}, {1});
  const auto by = [&](NanPolicy nan) { return gradientsOf(engine, w, Tier::kInterpret, {.loss = {.nan = nan}}); };
  const Gradients open = by(NanPolicy::kPropagate);
  EXPECT_TRUE(std::isnan(open.losses.values[0]));
  EXPECT_TRUE(std::isnan(open.derivatives[0]));
  EXPECT_EQ(open.losses.valid_rows[0], Losses::kNotCounted);
  const Gradients skipped = by(NanPolicy::kSkip);
  double loss = 0, slope = 0;
  for (const std::size_t r : {0U, 2U, 3U, 4U}) {
    const double f = std::sqrt(w.columns[1][r]);
    loss += (f - w.target[r]) * (f - w.target[r]) / 4;
    slope += 2 * (f - w.target[r]) * (0.5 / f * w.columns[1][r]) / 4;
  }
  EXPECT_DOUBLE_EQ(skipped.losses.values[0], loss);
  EXPECT_DOUBLE_EQ(skipped.derivatives[0], slope);
  EXPECT_EQ(skipped.losses.valid_rows[0], 4U);
  const Gradients rejected = by(NanPolicy::kReject);
  EXPECT_EQ(rejected.losses.values[0], std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(rejected.derivatives[0]));
}

TEST(EngineGradient, WeightsOfSkippedRowsDoNotCount) {
  Workload w = slopesOf({"sqrt(p0 * x1)"}, {1});
  w.weights = {1, 100, 1, 2, 0};
  const Gradients got = gradientsOf(wideEngine(), w, Tier::kInterpret, {.loss = {.nan = NanPolicy::kSkip}});
  double loss = 0;
  for (const std::size_t r : {0U, 2U, 3U}) {
    const double f = std::sqrt(w.columns[1][r]);
    loss += w.weights[r] * (f - w.target[r]) * (f - w.target[r]) / 4;
  }
  EXPECT_DOUBLE_EQ(got.losses.values[0], loss);
  EXPECT_EQ(got.losses.valid_rows[0], 4U);
}

TEST(EngineGradient, AnExpressionWhoseVariablesAreMissingFailsAlone) {
  const Engine engine = wideEngine();
  const Workload w = slopesOf({"p0 * x0", "p0 * x7", "p0 * x1"}, {1, 1, 1});
  const Gradients got = gradientsOf(engine, w, Tier::kInterpret, {});
  ASSERT_EQ(got.losses.failures.size(), 1U);
  EXPECT_EQ(got.losses.failures[0].expression, 1U);
  EXPECT_EQ(got.losses.failures[0].error.message, "variable x7, but the data has 2 variables");
  EXPECT_TRUE(std::isnan(got.losses.values[1]));
  EXPECT_EQ(got.losses.valid_rows[1], 0U);
  EXPECT_TRUE(std::isnan(got.derivatives[1]));
  EXPECT_TRUE(std::isfinite(got.derivatives[0]) && std::isfinite(got.derivatives[2]));
  const std::vector<double> j = jacobianOf(engine, w, Tier::kInterpret, DerivativesBy::kParameters);
  EXPECT_TRUE(std::isnan(j[5]));
  EXPECT_EQ(j[10], w.columns[1][0]);
}

// It has no derivatives to fill with NaN, and where no expression has one, there is no output.
TEST(EngineGradient, AFailureWithoutParametersHasNoColumns) {
  const Engine engine = wideEngine();
  const Workload w = slopesOf({"x70", "p0*x0"}, {2});
  const Dataset data = engine.upload(w.view()).value();
  std::vector<double> out(5, 12345);
  const auto failures = engine.jacobian(engine.compile(w.expressions), data, w.parameters, std::span(out)).value();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].expression, 0U);
  EXPECT_EQ(out, w.columns[0]);
  const Program alone = engine.compile(std::span(w.expressions).first(1));
  EXPECT_EQ(engine.jacobian(alone, data, {}, std::span<double>()).value().size(), 1U);
}

TEST(EngineGradient, AnInvalidTokenArrayFailsAlone) {
  const Engine engine = wideEngine();
  const std::vector<std::int32_t> codes = {parameterCode(0), codeOf(Op::kAdd), parameterCode(0)};
  const std::vector<std::int64_t> offsets = {0, 2, 3};
  const Program program = engine.compile(PopulationView{codes, {}, offsets}).value();
  const Dataset data = engine.upload(slopesOf({}, {}).view()).value();
  const Gradients got = engine.gradient(program, data, std::vector{1.0}).value();
  ASSERT_EQ(got.losses.failures.size(), 1U);
  EXPECT_EQ(got.losses.failures[0].expression, 0U);
  EXPECT_DOUBLE_EQ(got.derivatives[0], 2 * (1 - 3.2));
}

// A pipeline of the caller makes the expressions; derivatives are derived of what it leaves.
TEST(EngineGradient, FollowsTheProgramsPipeline) {
  const Engine engine = wideEngine(Math::kPrecise);
  const Workload w = smoothWorkload(30, 150);
  const Dataset data = engine.upload(w.view()).value();
  for (const char* const passes : {"standard", "hoist", "simplify,hoist,schedule"}) {
    const Pipeline pipeline = Pipeline::parse(passes, Math::kPrecise).value();
    const Program program = engine.compile(w.expressions, {.pipeline = pipeline});
    const Gradients got = engine.gradient(program, data, w.parameters).value();
    const Gradients standard = gradientsOf(engine, w, Tier::kInterpret, {});
    for (std::size_t p = 0; p < got.derivatives.size(); ++p) {
      EXPECT_NEAR(got.derivatives[p], standard.derivatives[p], 1e-9 * (1 + std::fabs(standard.derivatives[p])));
    }
    expectSameBits(got.losses.values, engine.loss(program, data, w.parameters).value().values, 1, passes);
  }
}

// Passes that change the number of roots are for people to look at.
TEST(EngineGradient, APipelineMayNotDifferentiate) {
  const Engine engine = wideEngine();
  const Workload w = slopesOf({"p0 * x0"}, {1});
  const Pipeline pipeline = Pipeline::standard(Math::kStrict).withDerivatives();
  const Program program = engine.compile(w.expressions, {.pipeline = pipeline});
  ASSERT_EQ(program.failures().size(), 1U);
  EXPECT_EQ(program.failures()[0].error.message, "the passes give 2 roots for 1 expressions");
}

// The loss's derivative by its constant is infinite.
TEST(EngineGradient, OfAConstantThatACustomLossHasTooAreZero) {
  const Engine engine = wideEngine();
  const Workload w = slopesOf({"0", "x0"}, {});
  const Gradients gradients =
      gradientsOf(engine, w, Tier::kAuto, {.loss = lossBy("(f - y)^2 + sqrt(0)"), .by = DerivativesBy::kVariables});
  ASSERT_EQ(gradients.derivatives.size(), 4U);
  EXPECT_EQ(gradients.derivatives[0], 0);
  EXPECT_EQ(gradients.derivatives[1], 0);
  EXPECT_NE(gradients.derivatives[2], 0);
  EXPECT_EQ(gradients.derivatives[3], 0);
}

}  // namespace
}  // namespace srjit

// Engine::fit() on the processor.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "ir/text.h"
#include "runtime/platform/trace_events.h"
#include "tests/generators/graphs.h"
#include "tests/generators/workload.h"

namespace srjit {
namespace {

Engine fittingEngine(Precision precision = Precision::kF64) { return cpuEngine(precision, Math::kPrecise); }

/// Rows of x0 on (0.1, 5), with the target that `of` gives.
template <class Of>
Workload samplesOf(std::initializer_list<std::string_view> texts, const Of& of, std::size_t rows = 200) {
  Workload w{.expressions = infixes(texts), .columns = {{}}};
  for (std::size_t r = 0; r < rows; ++r) {
    const double x = 0.1 + 4.9 * static_cast<double>(r) / static_cast<double>(rows - 1);
    w.columns[0].push_back(x);
    w.target.push_back(of(x));
  }
  return w;
}

Fits fitted(const Engine& engine, const Workload& w, std::vector<double> starts, const FitOptions& options = {}) {
  const auto [data, program] = prepared(engine, w);
  return engine.fit(program, data, starts, options).value();
}

double decay(double x) { return 3 * std::exp(-0.7 * x) + 1.5; }

TEST(EngineFit, FindsKnownParameters) {
  const Workload w = samplesOf({"p0*exp(p1*x0) + p2", "p2 + p0/exp(p1*x0)"}, decay);
  const Fits fits = fitted(fittingEngine(), w, {1, -1, 0, 1, 1, 0});
  const double expected[] = {3, -0.7, 1.5, 3, 0.7, 1.5};
  for (std::size_t p = 0; p < 6; ++p) EXPECT_NEAR(fits.parameters[p], expected[p], 1e-7) << p;
  for (std::size_t e = 0; e < 2; ++e) {
    EXPECT_LT(fits.losses.values[e], 1e-14);
    EXPECT_EQ(fits.statuses[e], FitStatus::kConverged);
    EXPECT_LT(fits.iterations[e], 30U);
    EXPECT_EQ(fits.losses.valid_rows[e], 200U);
  }
}

TEST(EngineFit, LinearParametersNeedTwoPasses) {
  const Workload w = samplesOf({"p0 + p1*x0 + p2*square(x0)"}, [](double x) { return 1 - 2 * x + 0.5 * x * x; });
  const Fits fits = fitted(fittingEngine(), w, {7, 7, 7});
  EXPECT_NEAR(fits.parameters[0], 1, 1e-9);
  EXPECT_NEAR(fits.parameters[1], -2, 1e-9);
  EXPECT_NEAR(fits.parameters[2], 0.5, 1e-9);
  EXPECT_LE(fits.iterations[0], 3U);
}

// Each pass has the sums of all normal equations: 861 of 40 parameters.
TEST(EngineFit, OfManyParametersTakesFewPasses) {
  for (const std::size_t count : {17, 40}) {
    std::string text = "0";
    for (std::size_t i = 0; i < count; ++i) text += fmt::format(" + p{}*sin({}*x0)", i, i + 1);
    const Workload w = samplesOf({text}, [&](double x) {
      double sum = 0;
      for (std::size_t i = 0; i < count; ++i)
        sum += std::sin(static_cast<double>(i + 1) * x) / static_cast<double>(i + 1);
      return sum;
    });
    const Fits fits = fitted(fittingEngine(), w, std::vector<double>(count, 3.0));
    EXPECT_LE(fits.iterations[0], 3U);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_NEAR(fits.parameters[i], 1 / static_cast<double>(i + 1), 1e-9) << i << " of " << count;
    }
  }
}

// The textbook's formulas of a straight line.
TEST(EngineFit, StandardErrorsAreThoseOfLinearRegression) {
  Workload w = samplesOf({"p0 + p1*x0"}, [](double x) { return x + 0.1 * std::sin(40 * x); }, 50);
  const Fits fits = fitted(fittingEngine(), w, {0, 0});
  double mean = 0, squares = 0, residuals = 0;
  for (const double x : w.columns[0]) mean += x / 50;
  for (std::size_t r = 0; r < 50; ++r) {
    squares += (w.columns[0][r] - mean) * (w.columns[0][r] - mean);
    const double residual = w.target[r] - fits.parameters[0] - fits.parameters[1] * w.columns[0][r];
    residuals += residual * residual;
  }
  const double variance = residuals / 48;
  EXPECT_NEAR(fits.standard_errors[1], std::sqrt(variance / squares), 1e-10);
  EXPECT_NEAR(fits.standard_errors[0], std::sqrt(variance * (1.0 / 50 + mean * mean / squares)), 1e-10);
}

TEST(EngineFit, TheBestOfSeveralStartsWins) {
  const Workload w = samplesOf({"sin(p0*x0)"}, [](double x) { return std::sin(3 * x); });
  const Fits one = fitted(fittingEngine(), w, {0.2});
  EXPECT_GT(one.losses.values[0], 0.1) << "a local minimum";
  const Fits several = fitted(fittingEngine(), w, {0.2, 7, 2.9});
  EXPECT_EQ(several.starts[0], 2U);
  EXPECT_NEAR(several.parameters[0], 3, 1e-8);
}

TEST(EngineFit, DrawnStartsFindWhatTheGivenOneDoesNot) {
  const Workload w = samplesOf({"sin(p0*x0)"}, [](double x) { return std::sin(3 * x); });
  const Engine engine = fittingEngine();
  const auto [data, program] = prepared(engine, w);
  const Fits fits = engine.fit(program, data, program.drawStarts(std::vector{0.2}, 40, 1).value()).value();
  EXPECT_GT(fits.starts[0], 0U);
  EXPECT_NEAR(std::fabs(fits.parameters[0]), 3, 1e-8);
}

// Two passes are enough for those that are linear.
// As soon as half has ended, if the program was there: making it again would not pay so early.
TEST(EngineFitPasses, LeaveOutWhatHasEnded) {
  Workload w = samplesOf({"p0*x0 + p1", "p0 + p1*sqrt(x0)", "p0*exp(p1*x0) + p2"}, decay);
  const Engine engine = fittingEngine();
  const auto [data, program] = prepared(engine, w);
  const std::vector<double> starts = {1, 1, 1, 1, 1, -1, 0};
  const Fits before = engine.fit(program, data, starts).value();
  std::vector<double> outputs;
  startTrace([&](const TraceEvent& event) {
    if (event.kind == TraceKind::kKernel) outputs.push_back(event.numbers[0].value);
  });
  const Fits fits = engine.fit(program, data, starts).value();
  ASSERT_TRUE(endTrace());
  ASSERT_GT(outputs.size(), 4U);
  EXPECT_EQ(outputs.size(), fits.iterations[2]);
  EXPECT_EQ(outputs.front(), 6 + 6 + 10) << "1 + k + k (k + 1) / 2 sums of each";
  EXPECT_EQ(outputs.back(), 10);
  EXPECT_TRUE(std::ranges::is_sorted(outputs, std::greater<>()));
  EXPECT_EQ(fits.parameters, before.parameters);
}

TEST(EngineFit, WeightsCount) {
  Workload w = samplesOf({"p0"}, [](double x) { return x < 2 ? 0.0 : 1.0; }, 10);
  w.weights = {1, 1, 1, 1, 6, 0, 0, 0, 0, 0};
  const Fits fits = fitted(fittingEngine(), w, {5});
  EXPECT_NEAR(fits.parameters[0], 0.6, 1e-12);
  EXPECT_NEAR(fits.losses.values[0], 0.24, 1e-12);
}

// log(p0 * x0) is not finite where x0 is negative.
TEST(EngineFit, RowsThatAreNotFiniteFollowThePolicy) {
  Workload w = samplesOf({"log(p0*x0)"}, [](double x) { return std::log(2 * x); }, 50);
  w.columns[0][7] = -1;
  const Engine engine = fittingEngine();
  EXPECT_EQ(fitted(engine, w, {1}).statuses[0], FitStatus::kNotFinite);
  const Fits rejected = fitted(engine, w, {1}, {.loss = {.nan = NanPolicy::kReject}});
  EXPECT_EQ(rejected.statuses[0], FitStatus::kNotFinite);
  EXPECT_EQ(rejected.losses.valid_rows[0], 0U);
  EXPECT_EQ(rejected.losses.values[0], infoOf(LossKind::kMse).worst);
  const Fits skipped = fitted(engine, w, {1}, {.loss = {.nan = NanPolicy::kSkip}});
  EXPECT_NEAR(skipped.parameters[0], 2, 1e-8);
  EXPECT_EQ(skipped.losses.valid_rows[0], 49U);
  EXPECT_LT(skipped.losses.values[0], 1e-14);
}

TEST(EngineFit, AStartThatIsNotFiniteLosesAgainstOneThatIs) {
  const Workload w = samplesOf({"sqrt(p0)*x0"}, [](double x) { return 2 * x; });
  const Fits fits = fitted(fittingEngine(), w, {-1, 1});
  EXPECT_EQ(fits.starts[0], 1U);
  EXPECT_NEAR(fits.parameters[0], 4, 1e-8);
}

TEST(EngineFit, IsNeverWorseThanTheStart) {
  const GeneratorOptions options{
      .seed = 17, .min_nodes = 3, .max_nodes = 25, .variables = 2, .parameters = 3, .parameter_probability = 0.4};
  const Workload w = Workload::random(options, 400, 64, Spread::kTame, Precision::kF64);
  const Engine engine = fittingEngine();
  const auto [data, program] = prepared(engine, w);
  const Losses before = engine.loss(program, data, w.parameters).value();
  const Fits fits = engine.fit(program, data, w.parameters).value();
  const Losses after = engine.loss(program, data, fits.parameters).value();
  std::size_t better = 0;
  for (std::size_t e = 0; e < program.size(); ++e) {
    if (!std::isfinite(before.values[e]) || fits.statuses[e] == FitStatus::kNotFinite) continue;
    EXPECT_LE(after.values[e], before.values[e]) << print(w.expressions[e], Language::kInfix);
    EXPECT_EQ(after.values[e], fits.losses.values[e]);
    better += after.values[e] < 0.999 * before.values[e] ? 1 : 0;
  }
  EXPECT_GT(better, 40U);
}

// Fits that end leave the launch; what others get does not depend on it.
TEST(EngineFit, AnExpressionsFitDoesNotDependOnTheOthers) {
  const GeneratorOptions options{
      .seed = 19, .min_nodes = 3, .max_nodes = 25, .variables = 2, .parameters = 3, .parameter_probability = 0.4};
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    const Workload w = Workload::random(options, 40, 200, Spread::kTame, precision);
    const Engine engine = fittingEngine(precision);
    const auto [data, program] = prepared(engine, w);
    const Fits together = engine.fit(program, data, w.parameters).value();
    for (std::size_t e = 0; e < program.size(); ++e) {
      const auto own = w.parametersOf(program, e);
      const Program single = engine.compile(std::span(w.expressions).subspan(e, 1));
      const Fits alone = own.empty() ? engine.fit(single, data, {}).value() : engine.fit(single, data, own).value();
      EXPECT_EQ(alone.statuses[0], together.statuses[e]);
      EXPECT_EQ(alone.iterations[0], together.iterations[e]);
      const auto first = together.parameters.begin() + static_cast<std::ptrdiff_t>(program.parameterOffset(e));
      expectSameBits(alone.parameters, {first, first + static_cast<std::ptrdiff_t>(own.size())}, 1, "alone");
    }
  }
}

TEST(EngineFit, ExpressionsWithoutParametersEndAtOnce) {
  const Workload w = samplesOf({"x0", "p0*x0"}, [](double x) { return 2 * x; });
  const Fits fits = fitted(fittingEngine(), w, {1});
  EXPECT_EQ(fits.iterations[0], 1U);
  EXPECT_EQ(fits.statuses[0], FitStatus::kNoParameters);
  EXPECT_EQ(fits.statuses[1], FitStatus::kConverged);
  EXPECT_GT(fits.losses.values[0], 1);
  EXPECT_NEAR(fits.parameters[0], 2, 1e-12);
  const Workload none = samplesOf({"x0"}, [](double x) { return 2 * x; });
  EXPECT_EQ(fitted(fittingEngine(), none, {}).losses.values.size(), 1U);
  for (const LossKind kind : {LossKind::kScaledMse, LossKind::kMae, LossKind::kNmse}) {
    EXPECT_EQ(fitted(fittingEngine(), none, {}, {.loss = {.kind = kind}}).statuses[0], FitStatus::kNoParameters);
  }
  EXPECT_EQ(nameOf(FitStatus::kNoParameters), "no parameters");
}

TEST(EngineFit, AFailedExpressionDoesNotDisturbTheOthers) {
  const Workload w = samplesOf({"p0*x5", "p0*x0"}, [](double x) { return 2 * x; });
  const Fits fits = fitted(fittingEngine(), w, {1, 1});
  ASSERT_EQ(fits.losses.failures.size(), 1U);
  EXPECT_EQ(fits.losses.failures[0].error.message, "variable x5, but the data has 1 variable");
  EXPECT_TRUE(std::isnan(fits.parameters[0]));
  EXPECT_NEAR(fits.parameters[1], 2, 1e-12);
}

// Both derivatives are the same column, up to a factor.
TEST(EngineFit, NonlinearParametersThatDependOnEachOtherShareTheStep) {
  const Workload w = samplesOf({"sqrt(p0) + sqrt(p1) + sqrt(x0)"}, [](double x) { return 5 + std::sqrt(x); });
  const Fits fits = fitted(fittingEngine(), w, {1.04, 1.05});
  EXPECT_EQ(fits.statuses[0], FitStatus::kConverged);
  EXPECT_LT(fits.losses.values[0], 1e-12);
  EXPECT_NEAR(fits.parameters[0], 6.25, 0.5);
  EXPECT_NEAR(fits.parameters[1], 6.25, 0.5);
}

// The undamped first step leads to the pole, and a damping that only doubles from 1e-3 would need five passes to
// matter.
TEST(EngineFit, AFirstStepThatIsMuchTooLongIsShortened) {
  const Workload w = samplesOf({"x0*exp(-inv(2*p0))"}, [](double) { return 0.0; });
  const Fits fits = fitted(fittingEngine(), w, {0.88}, {.iterations = 5});
  const Fits start = fitted(fittingEngine(), w, {0.88}, {.iterations = 1});
  EXPECT_LT(fits.losses.values[0], 0.1 * start.losses.values[0]);
}

TEST(EngineFit, StopsOnRequest) {
  const Workload w = samplesOf({"p0*exp(p1*x0) + p2"}, decay);
  std::stop_source source;
  source.request_stop();
  const Fits fits = fitted(fittingEngine(), w, {1, -1, 0}, {.stop = source.get_token()});
  EXPECT_EQ(fits.statuses[0], FitStatus::kCancelled);
  EXPECT_EQ(fits.parameters, (std::vector<double>{1, -1, 0}));
}

// In half of the rows one branch is NaN, or a slope infinite: all count.
TEST(EngineFit, BranchesAndKinksCountByThePrediction) {
  Workload w;
  w.columns.resize(2);
  for (int r = 0; r < 101; ++r) {
    w.columns[0].push_back((r - 50) / 25.0);
    w.columns[1].push_back(1 + std::fmod(7.3 * r, 4.0));
  }
  const auto fits = [&](const char* text, std::vector<double> starts, const std::function<double(double, double)>& of) {
    w.expressions = {infix(text)};
    w.target.clear();
    for (std::size_t r = 0; r < w.columns[0].size(); ++r) w.target.push_back(of(w.columns[0][r], w.columns[1][r]));
    for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
      const Fits got = fitted(fittingEngine(), w, starts, {.loss = {.nan = nan}});
      EXPECT_EQ(got.statuses[0], FitStatus::kConverged) << text;
      EXPECT_LT(got.losses.values[0], 1e-14) << text;
      EXPECT_EQ(got.losses.valid_rows[0], w.columns[0].size()) << text;
      EXPECT_NEAR(got.parameters[0], 2, 1e-6) << text;
      if (starts.size() > 1) {
        EXPECT_NEAR(got.parameters[1], 3, 1e-6) << text;
      }
    }
  };
  const auto branches = [](double x, double z) { return x > 0 ? 2 * std::sqrt(x) : 3 * z; };
  fits("if(x0, p0*sqrt(x0), p1*x1)", {1, 1}, branches);
  fits("if(le(x0, 0), p1*x1, p0*sqrt(x0))", {1, 1}, branches);
  fits("if(x0, sqrt(square(p0)*x0), p1*x1)", {1, 1}, branches);
  fits("max(p0*log(abs(x0)), p1 - 4)", {1, 1},
       [](double x, double) { return std::max(2 * std::log(std::fabs(x)), -1.0); });
  fits("psqrt(p0*x0)", {1}, [](double x, double) { return std::sqrt(2 * std::fabs(x)); });
  fits("sqrt(p0*abs(x0))", {1}, [](double x, double) { return std::sqrt(2 * std::fabs(x)); });
  fits("exp(p0*log(abs(x0)))", {1}, [](double x, double) { return x * x; });
  fits("pow(abs(x0), p0)", {1}, [](double x, double) { return x * x; });
}

// One row is left at the start, which any two parameters meet.
TEST(EngineFit, RowsThatAreLeftMustBeAsManyAsParameters) {
  const Workload w = samplesOf({"p1*sqrt(x0 - p0)"}, [](double x) { return x; }, 50);
  const Fits fits = fitted(fittingEngine(), w, {4.95, 1}, {.loss = {.nan = NanPolicy::kSkip}});
  EXPECT_EQ(fits.statuses[0], FitStatus::kNotFinite);
  EXPECT_TRUE(std::isnan(fits.losses.values[0]));
  EXPECT_EQ(fits.losses.valid_rows[0], 0U);
}

TEST(EngineFit, IterationsAreLimited) {
  const Workload w = samplesOf({"p0*exp(p1*x0) + p2"}, decay);
  const Fits fits = fitted(fittingEngine(), w, {1, -1, 0}, {.iterations = 2});
  EXPECT_EQ(fits.statuses[0], FitStatus::kIterations);
  EXPECT_EQ(fits.iterations[0], 2U);
}

/// A straight line, with every tenth row far above it.
Workload withOutliers(std::initializer_list<std::string_view> texts) {
  Workload w = samplesOf(texts, [](double x) { return 2 * x + 1; });
  for (std::size_t r = 0; r < w.target.size(); r += 10) w.target[r] += 50;
  return w;
}

TEST(EngineFit, OfRobustLossesFindsTheLineBelowOutliers) {
  const Workload w = withOutliers({"p0*x0 + p1", "p1 + x0/p0"});
  for (const LossOptions& loss :
       {LossOptions{.kind = LossKind::kMae}, LossOptions{.kind = LossKind::kHuber, .tuning = 0.01},
        LossOptions{.kind = LossKind::kQuantile}, lossBy("log(1 + (f - y)^2)")}) {
    const Fits fits = fitted(fittingEngine(), w, {1, 0, 1, 0}, {.loss = loss, .iterations = 300});
    const double expected[] = {2, 1, 0.5, 1};
    for (std::size_t p = 0; p < 4; ++p) EXPECT_NEAR(fits.parameters[p], expected[p], 0.02) << p;
    EXPECT_TRUE(std::isnan(fits.standard_errors[0]));
  }
  EXPECT_GT(fitted(fittingEngine(), w, {1, 0, 1, 0}).parameters[1], 3) << "least squares do not";
}

TEST(EngineFit, OfQuantilesLeavesThatPartBelow) {
  Workload w = samplesOf({"p0"}, [](double x) { return x * x; }, 1000);
  for (const double level : {0.1, 0.5, 0.9}) {
    const Fits fits =
        fitted(fittingEngine(), w, {1}, {.loss = {.kind = LossKind::kQuantile, .tuning = level}, .iterations = 500});
    const auto below = std::ranges::count_if(w.target, [&](double y) { return y < fits.parameters[0]; });
    EXPECT_NEAR(static_cast<double>(below), 1000 * level, 2);
  }
}

// Where the gradient is 0; both are convex in these parameters.
TEST(EngineFit, OfLikelihoodsEndsAtTheirMaximum) {
  Workload w = samplesOf({"p0*x0 + p1"}, [](double x) { return std::fmod(7.3 * x, 1.0) < x / 5 ? 1.0 : 0.0; });
  const Engine engine = fittingEngine();
  const auto check = [&](const LossOptions& loss) {
    const auto [data, program] = prepared(engine, w);
    const Fits fits =
        engine.fit(program, data, std::vector<double>{0.5, 0.5}, {.loss = loss, .loss_tolerance = 1e-15}).value();
    EXPECT_EQ(fits.statuses[0], FitStatus::kConverged);
    EXPECT_LT(fits.iterations[0], 25U);
    const Gradients slopes = engine.gradient(program, data, fits.parameters, {.loss = loss}).value();
    for (const double slope : slopes.derivatives) EXPECT_NEAR(slope, 0, 1e-6);
    EXPECT_DOUBLE_EQ(fits.losses.values[0], slopes.losses.values[0]);
  };
  check({.kind = LossKind::kLogLoss});
  for (double& y : w.target) y *= 3;
  w.expressions = {infix("exp(p0*x0 + p1)")};
  check({.kind = LossKind::kPoisson});
  // The same but for a factor and what does not depend on f; it is negative.
  check(lossBy("f - y*log(f) - 7"));
}

TEST(EngineFit, OfAScaledLossIsThatWithFactorAndOffset) {
  const Workload w =
      samplesOf({"exp(p0*x0)", "x0", "p0 + p1*x0"}, [](double x) { return decay(x) + 0.1 * std::sin(9 * x); });
  const Workload full = samplesOf({"p1 + p2*exp(p0*x0)", "p0 + p1*x0", "p0 + p1*x0"},
                                  [](double x) { return decay(x) + 0.1 * std::sin(9 * x); });
  for (const auto& [scaled, plain] :
       {std::pair(LossKind::kScaledMse, LossKind::kMse), std::pair(LossKind::kScaledR2, LossKind::kR2)}) {
    const Fits fits = fitted(fittingEngine(), w, {-1, 3, 1}, {.loss = {.kind = scaled}});
    const Fits expected = fitted(fittingEngine(), full, {-1, 0, 1, 0, 1, 3, 1}, {.loss = {.kind = plain}});
    ASSERT_EQ(fits.parameters.size(), 3U);
    EXPECT_NEAR(fits.parameters[0], expected.parameters[0], 1e-7);
    for (std::size_t e = 0; e < 3; ++e) EXPECT_NEAR(fits.losses.values[e], expected.losses.values[e], 1e-9) << e;
    EXPECT_NEAR(fits.standard_errors[0], expected.standard_errors[0], 1e-6);
    Workload at = w;
    at.parameters = fits.parameters;
    expectSameLosses(fits.losses, lossesOf(fittingEngine(), at, Tier::kAuto, {.kind = scaled}), "losses");
  }
}

// Unlike a sum of squares, this loss is 0 where it is not least.
TEST(EngineFit, ALossOfZeroNeedNotBeTheLeast) {
  const Workload w = samplesOf({"p0"}, [](double) { return 5.0; });
  const Fits fits = fitted(fittingEngine(), w, {0}, {.loss = lossBy("(f - 1)^2 - 1")});
  EXPECT_NEAR(fits.parameters[0], 1, 1e-6);
  EXPECT_NEAR(fits.losses.values[0], -1, 1e-10);
}

// At the start there is a slope, but no curvature.
TEST(EngineFit, OfALossWithItsMinimumElsewhereThanAtTheTarget) {
  const Workload w = samplesOf({"p0*x0"}, [](double x) { return x; });
  for (const double start : {0.5, 1.0, 1.5, 3.0}) {
    const Fits fits = fitted(fittingEngine(), w, {start}, {.loss = lossBy("abs(f - 2*y)")});
    EXPECT_NEAR(fits.parameters[0], 2, 1e-5) << start;
    EXPECT_NE(fits.statuses[0], FitStatus::kSingular) << start;
  }
}

TEST(EngineFit, OfLogLossStartsWhereItsCurvatureUnderflows) {
  const Workload w = samplesOf({"p0*x0 + p1"}, [](double x) { return std::fmod(7.3 * x, 1.0) < x / 5 ? 1.0 : 0.0; });
  const FitOptions options{.loss = {.kind = LossKind::kLogLoss}};
  const Fits expected = fitted(fittingEngine(), w, {0.5, 0.5}, options);
  for (const double offset : {2000.0, -2000.0}) {
    const Fits fits = fitted(fittingEngine(), w, {0, offset}, options);
    EXPECT_EQ(fits.statuses[0], FitStatus::kConverged);
    EXPECT_NEAR(fits.losses.values[0], expected.losses.values[0], 1e-9);
  }
}

TEST(EngineFit, OfAScaledLossNeedsTwoParametersMore) {
  Workload w = samplesOf({"p0*x0", "p1048575"}, decay);
  const std::vector<double> starts(1 + (std::size_t{1} << 20), 1.0);
  const Fits fits = fitted(fittingEngine(), w, starts, {.loss = {.kind = LossKind::kScaledMse}});
  ASSERT_EQ(fits.losses.failures.size(), 1U);
  EXPECT_EQ(fits.losses.failures[0].expression, 1U);
  EXPECT_EQ(fits.losses.failures[0].error.message,
            "1048576 parameters: expected at most 1048574, since the fit of a scaled loss has two more");
  EXPECT_EQ(fits.statuses[1], FitStatus::kFailed);
  EXPECT_TRUE(std::isfinite(fits.losses.values[0]));
}

TEST(EngineFit, OfAScaledLossNeedsNoParameters) {
  const Engine engine = fittingEngine();
  const Workload w = samplesOf({"x0"}, [](double x) { return 3 - 2 * x; });
  const FitOptions options{.loss = {.kind = LossKind::kScaledMse}};
  const Fits fits = fitted(engine, w, {}, options);
  EXPECT_EQ(fits.statuses[0], FitStatus::kNoParameters);
  EXPECT_LT(fits.losses.values[0], 1e-13) << "rounding of the sums of Engine::loss()";
  EXPECT_TRUE(fits.parameters.empty());
  EXPECT_TRUE(fitted(engine, samplesOf({}, decay), {}, options).statuses.empty());
}

TEST(EngineFit, RefusesWhatDoesNotFit) {
  const Engine engine = fittingEngine();
  const Workload w = samplesOf({"p0*x0 + p1"}, [](double x) { return x; });
  const auto [data, program] = prepared(engine, w);
  const auto messageOf = [&](std::vector<double> starts, const FitOptions& options = {}) {
    const auto fits = engine.fit(program, data, starts, options);
    return fits.ok() ? std::string() : fits.error().message;
  };
  EXPECT_EQ(messageOf({}), "no start for the parameters");
  EXPECT_EQ(messageOf({1, 2, 3}), "3 start values: expected a multiple of the program's 2 parameters");
  EXPECT_EQ(messageOf({1, 2}, {.iterations = 0}), "0 iterations: expected at least 1");
  for (const LossKind kind : {LossKind::kSum, LossKind::kCorrelation}) {
    EXPECT_EQ(messageOf({1, 2}, {.loss = {.kind = kind}}),
              std::string(infoOf(kind).name) +
                  " cannot be fitted: expected a loss that is smallest for the best predictions");
  }
  EXPECT_EQ(messageOf({1, 2}, {.loss = {.kind = LossKind::kPoisson, .tuning = 1.0}}),
            "the constant 1 of poisson: expected none");
}

}  // namespace
}  // namespace srjit

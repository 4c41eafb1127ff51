// Engine::fit() on the processor.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "ir/text.h"
#include "tests/generators/workload.h"

namespace srjit {
namespace {

using testing::HasSubstr;

Engine fittingEngine(Precision precision = Precision::kF64) {
  return Engine::create({.device = "cpu", .precision = precision, .math = Math::kPrecise, .threads = 2}).value();
}

/// Rows of x0 on (0.1, 5), with the target that `of` gives.
template <class Of>
Workload samplesOf(std::initializer_list<std::string_view> texts, const Of& of, std::size_t rows = 200) {
  Workload w;
  for (const std::string_view text : texts) w.expressions.push_back(parse(text, Language::kInfix).value());
  w.columns.emplace_back();
  for (std::size_t r = 0; r < rows; ++r) {
    const double x = 0.1 + 4.9 * static_cast<double>(r) / static_cast<double>(rows - 1);
    w.columns[0].push_back(x);
    w.target.push_back(of(x));
  }
  return w;
}

Fits fitted(const Engine& engine, const Workload& w, std::vector<double> starts, const FitOptions& options = {}) {
  const Dataset data = engine.upload(w.view()).value();
  return engine.fit(engine.compile(w.expressions), data, starts, options).value();
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
  EXPECT_EQ(fitted(engine, w, {1}, {.loss = {.nan = NanPolicy::kReject}}).statuses[0], FitStatus::kNotFinite);
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
  const Dataset data = engine.upload(w.view()).value();
  const Program program = engine.compile(w.expressions);
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
    const Dataset data = engine.upload(w.view()).value();
    const Program program = engine.compile(w.expressions);
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
  EXPECT_GT(fits.losses.values[0], 1);
  EXPECT_NEAR(fits.parameters[0], 2, 1e-12);
  const Workload none = samplesOf({"x0"}, [](double x) { return 2 * x; });
  EXPECT_EQ(fitted(fittingEngine(), none, {}).losses.values.size(), 1U);
}

TEST(EngineFit, AFailedExpressionDoesNotDisturbTheOthers) {
  const Workload w = samplesOf({"p0*x5", "p0*x0"}, [](double x) { return 2 * x; });
  const Fits fits = fitted(fittingEngine(), w, {1, 1});
  ASSERT_EQ(fits.losses.failures.size(), 1U);
  EXPECT_EQ(fits.losses.failures[0].error.message, "variable x5, but the data has 1 variable");
  EXPECT_TRUE(std::isnan(fits.parameters[0]));
  EXPECT_NEAR(fits.parameters[1], 2, 1e-12);
}

TEST(EngineFit, StopsOnRequest) {
  const Workload w = samplesOf({"p0*exp(p1*x0) + p2"}, decay);
  std::stop_source source;
  source.request_stop();
  const Fits fits = fitted(fittingEngine(), w, {1, -1, 0}, {.stop = source.get_token()});
  EXPECT_EQ(fits.statuses[0], FitStatus::kCancelled);
  EXPECT_EQ(fits.parameters, (std::vector<double>{1, -1, 0}));
}

// One row is left at the start, which any two parameters meet.
TEST(EngineFit, RowsThatAreLeftMustBeAsManyAsParameters) {
  const Workload w = samplesOf({"p1*sqrt(x0 - p0)"}, [](double x) { return x; }, 50);
  const Fits fits = fitted(fittingEngine(), w, {4.95, 1}, {.loss = {.nan = NanPolicy::kSkip}});
  EXPECT_EQ(fits.statuses[0], FitStatus::kNotFinite);
}

TEST(EngineFit, IterationsAreLimited) {
  const Workload w = samplesOf({"p0*exp(p1*x0) + p2"}, decay);
  const Fits fits = fitted(fittingEngine(), w, {1, -1, 0}, {.iterations = 2});
  EXPECT_EQ(fits.statuses[0], FitStatus::kIterations);
  EXPECT_EQ(fits.iterations[0], 2U);
}

TEST(EngineFit, RefusesWhatDoesNotFit) {
  const Engine engine = fittingEngine();
  const Workload w = samplesOf({"p0*x0 + p1"}, [](double x) { return x; });
  const Dataset data = engine.upload(w.view()).value();
  const Program program = engine.compile(w.expressions);
  const auto messageOf = [&](std::vector<double> starts, const FitOptions& options = {}) {
    const auto fits = engine.fit(program, data, starts, options);
    return fits.ok() ? std::string() : fits.error().message;
  };
  EXPECT_EQ(messageOf({}), "no start for the parameters");
  EXPECT_EQ(messageOf({1, 2, 3}), "3 start values: expected a multiple of the program's 2 parameters");
  EXPECT_EQ(messageOf({1, 2}, {.iterations = 0}), "0 iterations: expected at least 1");
  EXPECT_THAT(messageOf({1, 2}, {.loss = {.kind = LossKind::kMae}}),
              HasSubstr("mae cannot be fitted: expected a loss of squared errors (sse, mse, rmse, nmse, r2)"));
}

}  // namespace
}  // namespace srjit

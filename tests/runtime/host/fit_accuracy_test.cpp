// How near to the minimum fits end: targets with a large offset, columns that are nearly combinations of each other.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <stop_token>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/numbers/random.h"
#include "ir/text.h"
#include "runtime/engine.h"
#include "tests/generators/graphs.h"
#include "tests/generators/workload.h"

namespace srjit {
namespace {

struct Points {
  std::vector<double> x, y;

  double variance() const {
    double mean = 0, squares = 0;
    for (const double value : y) mean += value / static_cast<double>(y.size());
    for (const double value : y) squares += (value - mean) * (value - mean) / static_cast<double>(y.size());
    return squares;
  }
};

/// Near to a normal distribution of deviation 1.
double noise(Random& random) {
  double sum = 0;
  for (int i = 0; i < 12; ++i) sum += random.between(0, 1);
  return sum - 6;
}

/// 300 points with this target, plus noise of this size.
Points pointsOf(double from, double to, const std::function<double(double)>& of, double size = 0) {
  Points points;
  Random random(11);
  for (int i = 0; i < 300; ++i) {
    points.x.push_back(from + (to - from) * i / 299);
    points.y.push_back(of(points.x.back()) + size * noise(random));
  }
  return points;
}

Engine engineOf(Precision precision, unsigned threads = 2) {
  return Engine::create({.device = "cpu", .precision = precision, .threads = threads}).value();
}

/// From 1 for each parameter.
Fits fitted(const Engine& engine, const Points& points, const std::string& text, const FitOptions& options = {},
            Tier tier = Tier::kInterpret) {
  DataView view;
  view.columns = {ColumnView(points.x)};
  view.target = ColumnView(points.y);
  const Program program = engine.compile(infixes({text}), {.tier = tier});
  const std::vector<double> start(program.parameterOffset(1), 1.0);
  return engine.fit(program, engine.upload(view).value(), start, options).value();
}

double trend(double year) { return 1 + 0.03 * (year - 2005) + 0.002 * (year - 2005) * (year - 2005); }

// SciPy's least_squares ends at 6e-20 and 1.5.
TEST(FitAccuracy, OffsetsDoNotEndFitsEarly) {
  const Points points = pointsOf(1, 5, [](double a) { return 1e6 + std::pow(a, 1.5); });
  for (const double tolerance : {1e-10, 0.0}) {
    const Fits fits = fitted(engineOf(Precision::kF64), points, "p1 + p2*x0^p0", {.loss_tolerance = tolerance});
    EXPECT_EQ(fits.statuses[0], FitStatus::kConverged);
    EXPECT_LT(fits.losses.values[0], 1e-19);
    EXPECT_NEAR(fits.parameters[0], 1.5, 1e-9);
    EXPECT_LT(fits.iterations[0], 15U);
  }
}

// Without the offset, the same fit ends where the loss is least.
TEST(FitAccuracy, NoiseBesideALargeOffsetIsFitted) {
  const auto of = [](double a) { return std::pow(a, 1.5); };
  const Fits expected = fitted(engineOf(Precision::kF64), pointsOf(1, 5, of, 0.01), "p1 + p2*x0^p0");
  const Points points = pointsOf(1, 5, [&](double a) { return 1e8 + of(a); }, 0.01);
  const Fits fits = fitted(engineOf(Precision::kF64), points, "p1 + p2*x0^p0");
  EXPECT_EQ(fits.statuses[0], FitStatus::kConverged);
  EXPECT_NEAR(fits.losses.values[0] / expected.losses.values[0], 1, 1e-6);
  EXPECT_NEAR(fits.parameters[0], expected.parameters[0], 1e-5);
}

// The offset is 100 beside 2e18: rounding leaves some hundreds of it.
TEST(FitAccuracy, ExponentialsOfALargeArgument) {
  const Points points = pointsOf(-0.1, -10, [](double x) { return 100 + 10 * std::exp(x / 2 + 40); });
  const Fits fits = fitted(engineOf(Precision::kF64), points, "p0 + p1*exp(p2*x0 + p3)");
  EXPECT_EQ(fits.statuses[0], FitStatus::kConverged);
  EXPECT_LT(std::sqrt(fits.losses.values[0]), 1e-14 * std::sqrt(points.variance()));
  EXPECT_NEAR(fits.parameters[0], 100, 1000);
  EXPECT_NEAR(fits.parameters[2], 0.5, 1e-13);
}

// In f32, the terms of a quadratic are rounded by 0.002, those of a cubic by 0.05: it ends as a quadratic.
TEST(FitAccuracy, PolynomialsOverYears) {
  const Points points = pointsOf(1990, 2020, trend, 0.09);
  const Fits exact = fitted(engineOf(Precision::kF64), points, polynomial(2));
  for (const Precision precision : kPrecisions) {
    const Engine engine = engineOf(precision);
    const Fits quadratic = fitted(engine, points, polynomial(2)), cubic = fitted(engine, points, polynomial(3));
    const double share = isDouble(precision) ? 1e-9 : 0.005;
    EXPECT_EQ(quadratic.statuses[0], FitStatus::kConverged);
    EXPECT_NEAR(quadratic.losses.values[0] / exact.losses.values[0], 1, share) << nameOf(precision);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(quadratic.standard_errors[i] / exact.standard_errors[i], 1, share) << nameOf(precision) << i;
    }
    EXPECT_EQ(cubic.statuses[0], FitStatus::kConverged);
    EXPECT_LT(cubic.losses.values[0], exact.losses.values[0] * (1 + share)) << nameOf(precision);
  }
  EXPECT_NEAR(exact.standard_errors[1] / exact.standard_errors[0], 1 / 1002.5, 1e-5);
}

struct Reached {
  int degree;
  double f32, f64;
};

// The least losses are 1.34e-5, 2.83e-8 and 2.73e-13.
TEST(FitAccuracy, PolynomialsOfAHighDegree) {
  const Points points = pointsOf(0, 1, [](double x) { return std::sin(12 * x); });
  for (const auto& [degree, f32, f64] : {Reached{9, 1.5e-5, 1.342e-5}, {12, 1e-5, 2.84e-8}, {15, 1e-5, 2.74e-13}}) {
    const Fits single = fitted(engineOf(Precision::kF32), points, polynomial(degree));
    const Fits wide = fitted(engineOf(Precision::kF64), points, polynomial(degree));
    EXPECT_LT(single.losses.values[0], f32) << degree;
    EXPECT_LT(wide.losses.values[0], f64) << degree;
    EXPECT_EQ(single.statuses[0], FitStatus::kConverged) << degree;
    EXPECT_EQ(wide.statuses[0], FitStatus::kConverged) << degree;
    EXPECT_LE(std::max(single.iterations[0], wide.iterations[0]), 20U) << degree;
  }
}

// y has no digits beside its mean that the expression could explain.
TEST(FitAccuracy, NoFitEndsAboveTheBestConstant) {
  for (const double offset : {1e6, 1e7, 1e8, 1e9}) {
    const Points points = pointsOf(1, 5, [&](double a) { return offset + std::pow(a, 1.5); }, 0.01);
    Points rounded = points;
    for (double& y : rounded.y) y = static_cast<float>(y);
    const double mean =
        std::accumulate(rounded.y.begin(), rounded.y.end(), 0.0) / static_cast<double>(rounded.y.size());
    const double rest = static_cast<double>(static_cast<float>(mean)) - mean;
    const double of_constant = rounded.variance() + rest * rest;
    for (const char* text :
         {"p1 + p2*x0^p0", "p0 + p1*x0^3", "p0 + p1*exp(x0)", "p0 + p1*exp(-p2*x0)", "p1*x0^p2 - p0"}) {
      const Fits fits = fitted(engineOf(Precision::kF32), rounded, text);
      EXPECT_LE(fits.losses.values[0], of_constant * (1 + 1e-6)) << text << " " << offset;
    }
  }
}

TEST(FitAccuracy, RefinedFitsHaveTheSameBitsInEveryTierAndForAnyThreads) {
  const Points points = pointsOf(1990, 2020, trend, 0.09);
  for (const Precision precision : kPrecisions) {
    for (const int degree : {2, 3, 5}) {
      const Fits expected = fitted(engineOf(precision, 1), points, polynomial(degree));
      for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
        const Fits fits = fitted(engineOf(precision, 3), points, polynomial(degree), {}, tier);
        expectSameBits(fits.parameters, expected.parameters, 1, "parameters");
        expectSameBits(fits.standard_errors, expected.standard_errors, 1, "standard errors");
        expectSameBits(fits.losses.values, expected.losses.values, 1, "losses");
        EXPECT_EQ(fits.iterations, expected.iterations);
      }
    }
  }
}

TEST(FitAccuracy, RefinementObeysTheLimitOfPassesAndTheStop) {
  const Points points = pointsOf(1990, 2020, trend, 0.09);
  for (const unsigned most : {1U, 2U, 3U, 4U}) {
    EXPECT_LE(fitted(engineOf(Precision::kF32), points, polynomial(3), {.iterations = most}).iterations[0], most);
  }
  std::stop_source source;
  source.request_stop();
  EXPECT_EQ(fitted(engineOf(Precision::kF32), points, polynomial(3), {.stop = source.get_token()}).statuses[0],
            FitStatus::kCancelled);
}

// Weights are those of normal equations: 0 leaves a row out. So does a row that is not finite, under kSkip.
TEST(FitAccuracy, RefinementCountsWeightsAndSkipsRows) {
  const Points points = pointsOf(1990, 2020, trend, 0.09);
  const Engine engine = engineOf(Precision::kF64);
  Points part = points, all = points;
  part.x.resize(200);
  part.y.resize(200);
  const Fits expected = fitted(engine, part, polynomial(2));
  std::vector<double> weights(300, 2.0);
  std::fill(weights.begin() + 200, weights.end(), 0);
  const Program program = engine.compile(infixes({polynomial(2)}));
  const auto fitOf = [&](bool is_weighted, NanPolicy nan) {
    DataView view;
    view.columns = {ColumnView(all.x)};
    view.target = ColumnView(all.y);
    if (is_weighted) view.weights = ColumnView(weights);
    return engine.fit(program, engine.upload(view).value(), std::vector{1.0, 1.0, 1.0}, {.loss = {.nan = nan}}).value();
  };
  const Fits weighted = fitOf(true, NanPolicy::kPropagate);
  std::fill(all.x.begin() + 200, all.x.end(), std::numeric_limits<double>::quiet_NaN());
  const Fits skipped = fitOf(false, NanPolicy::kSkip);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(weighted.parameters[i] / expected.parameters[i], 1, 1e-6) << i;
    EXPECT_NEAR(skipped.parameters[i] / expected.parameters[i], 1, 1e-6) << i;
    EXPECT_NEAR(skipped.standard_errors[i] / expected.standard_errors[i], 1, 1e-6) << i;
    EXPECT_NEAR(weighted.standard_errors[i] / expected.standard_errors[i], std::sqrt(197.0 / 297), 1e-6) << i;
  }
}

// Columns that rounding cannot tell from each other.
TEST(FitAccuracy, ColumnsThatAreMultiplesHaveNoErrorsOfTheirOwn) {
  const Points points = pointsOf(1, 5, [](double x) { return 3 * x + 1; }, 0.1);
  for (const Precision precision : kPrecisions) {
    const Fits fits = fitted(engineOf(precision), points, "p0*x0 + p1*(x0*1.1) + p2");
    EXPECT_EQ(fits.statuses[0], FitStatus::kConverged);
    EXPECT_NEAR(fits.parameters[0] + 1.1 * fits.parameters[1], 3, 0.02);
    EXPECT_EQ(std::isnan(fits.standard_errors[0]) + std::isnan(fits.standard_errors[1]), 1);
  }
}

// 4,800 fits of straight lines and planes; 2 to 26 % of them ended as failed.
TEST(FitAccuracy, LinearFitsAtTheirOptimumHaveConverged) {
  for (const Precision precision : kPrecisions) {
    const Engine engine = engineOf(precision);
    const Program program =
        engine.compile(infixes({"p0*x0 + p1*x1", "p0 + p1*x0", "p0 + p1*x0 + p2*x1", "p0*(x0 + x1) + p1*x0*x1"}));
    std::size_t failed = 0, count = 0;
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
      Random random(seed);
      const auto rows = static_cast<std::size_t>(5 + random.below(295));
      const double offset = std::pow(10.0, static_cast<double>(random.below(7)) - 1);
      std::vector<double> a, b, y;
      for (std::size_t i = 0; i < rows; ++i) {
        a.push_back(random.between(1, 5));
        b.push_back(random.between(1, 5));
        y.push_back(offset + a.back() * b.back() - 3 + noise(random));
      }
      DataView view;
      view.columns = {ColumnView(a), ColumnView(b)};
      view.target = ColumnView(y);
      const Dataset data = engine.upload(view).value();
      for (const double start : {1.0, 0.0}) {
        const Fits fits = engine.fit(program, data, std::vector<double>(9, start)).value();
        for (const FitStatus status : fits.statuses) {
          ++count;
          failed += status == FitStatus::kConverged ? 0 : 1;
        }
      }
    }
    EXPECT_EQ(failed, 0U) << "of " << count << " in " << nameOf(precision);
  }
}

}  // namespace
}  // namespace srjit

// Fits whose parameters have bounds.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "ir/numbers/random.h"
#include "ir/text.h"
#include "runtime/loss_text.h"
#include "tests/generators/workload.h"

namespace srjit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kTerms = 4;

/// 30 rows of columns that nearly depend on each other, with some weights of 0.
Workload linearWorkload(Random& random) {
  Workload w{
      .expressions = infixes({"p0*x0", "p0*x0 + p1*x1", "p2*x2 - p0*x0 + p1*x1", "p0*x0 + p1*x1 + p2*x2 + p3*x3"}),
      .columns = std::vector<std::vector<double>>(kTerms)};
  for (std::size_t r = 0; r < 30; ++r) {
    for (std::size_t c = 0; c < kTerms; ++c) {
      const double common = c == 0 ? 0 : 2 * w.columns[0].back();
      w.columns[c].push_back(common + random.between(-1.0, 1.0));
    }
    w.target.push_back(random.between(-2.0, 2.0) + 3 * w.columns[1].back() - w.columns[2].back());
    w.weights.push_back(r % 7 == 0 ? 0 : random.between(0.5, 2.0));
  }
  return w;
}

std::vector<ParameterBounds> drawnBounds(Random& random) {
  std::vector<ParameterBounds> bounds(kTerms);
  for (auto& [lower, upper] : bounds) {
    if (random.below(2) == 0) lower = random.between(-2.0, 1.0);
    if (random.below(2) == 0) upper = std::max(lower, -2.0) + random.between(0, 3) * random.between(0.0, 1.0);
  }
  return bounds;
}

/// Solves A x = b of the positions where `free`; none if A is singular.
std::optional<std::vector<double>> solved(std::vector<std::vector<double>> a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k) {
    if (!(a[k][k] > 1e-12)) return std::nullopt;
    for (std::size_t i = k + 1; i < n; ++i) {
      const double share = a[i][k] / a[k][k];
      for (std::size_t j = k; j < n; ++j) a[i][j] -= share * a[k][j];
      b[i] -= share * b[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

/// The least weighted mean of squares of y - sum of signs[c] p_c x_c, c < count, over all active sets.
double leastLoss(const Workload& w, std::span<const double> signs, std::span<const ParameterBounds> bounds) {
  const std::size_t count = signs.size();
  std::size_t sets = 1;
  for (std::size_t c = 0; c < count; ++c) sets *= 3;
  double least = kInfinity;
  for (std::size_t set = 0; set < sets; ++set) {
    std::vector<double> p(count);
    std::vector<std::size_t> free;
    bool is_possible = true;
    for (std::size_t c = 0, left = set; c < count; ++c, left /= 3) {
      if (left % 3 == 0) free.push_back(c);
      if (left % 3 == 1) p[c] = bounds[c].lower;
      if (left % 3 == 2) p[c] = bounds[c].upper;
      is_possible = is_possible && std::isfinite(p[c]);
    }
    if (!is_possible) continue;
    const auto residual = [&](std::size_t r) {
      double rest = w.target[r];
      for (std::size_t c = 0; c < count; ++c) rest -= signs[c] * p[c] * w.columns[c][r];
      return rest;
    };
    std::vector<std::vector<double>> a(free.size(), std::vector<double>(free.size()));
    std::vector<double> b(free.size());
    for (std::size_t r = 0; r < w.rows(); ++r) {
      for (std::size_t i = 0; i < free.size(); ++i) {
        const double own = signs[free[i]] * w.columns[free[i]][r];
        b[i] += w.weights[r] * own * residual(r);
        for (std::size_t j = 0; j < free.size(); ++j) {
          a[i][j] += w.weights[r] * own * signs[free[j]] * w.columns[free[j]][r];
        }
      }
    }
    const auto best = solved(a, b);
    if (!best) continue;
    for (std::size_t i = 0; i < free.size(); ++i) {
      p[free[i]] = (*best)[i];
      is_possible = is_possible && p[free[i]] >= bounds[free[i]].lower && p[free[i]] <= bounds[free[i]].upper;
    }
    if (!is_possible) continue;
    double squares = 0, weights = 0;
    for (std::size_t r = 0; r < w.rows(); ++r) {
      squares += w.weights[r] * residual(r) * residual(r);
      weights += w.weights[r];
    }
    least = std::min(least, squares / weights);
  }
  return least;
}

// Of a linear problem, the least loss is that of the best active set.
TEST(BoundedFits, OfLinearParametersFindTheBestActiveSet) {
  const std::vector<std::vector<double>> signs = {{1}, {1, 1}, {-1, 1, 1}, {1, 1, 1, 1}};
  std::size_t at_bounds = 0;
  for (const Precision precision : {Precision::kF64, Precision::kF32}) {
    const Engine engine = cpuEngine(precision);
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      Random random(seed);
      const Workload w = linearWorkload(random);
      const std::vector<ParameterBounds> bounds = drawnBounds(random);
      std::vector<double> starts;
      for (std::size_t p = 0; p < 10; ++p) starts.push_back(random.between(-3.0, 3.0));
      const Tier tier = seed % 20 == 0 ? Tier::kCompile : Tier::kInterpret;
      const auto [data, program] = prepared(engine, w, {.tier = tier});
      const Fits fits = engine.fit(program, data, starts, {.loss_tolerance = 0, .bounds = bounds}).value();
      for (std::size_t e = 0; e < w.expressions.size(); ++e) {
        const double least = leastLoss(w, signs[e], bounds);
        const double places = precision == Precision::kF64 ? 1e-9 : 1e-4;
        EXPECT_EQ(fits.statuses[e], FitStatus::kConverged) << seed << " " << e;
        EXPECT_LE(fits.losses.values[e], least * (1 + places)) << seed << " " << e;
        EXPECT_GE(fits.losses.values[e], least * (1 - places)) << seed << " " << e;
        EXPECT_LE(fits.iterations[e], 40U) << seed << " " << e;
        for (std::size_t p = 0; p < signs[e].size(); ++p) {
          const double value = fits.parameters[program.parameterOffset(e) + p];
          EXPECT_GE(value, bounds[p].lower);
          EXPECT_LE(value, bounds[p].upper);
          const bool is_at_bound = value == bounds[p].lower || value == bounds[p].upper;
          EXPECT_EQ(std::isnan(fits.standard_errors[program.parameterOffset(e) + p]), is_at_bound) << seed << " " << e;
          at_bounds += is_at_bound ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(at_bounds, 300U);
}

// Within the bounds no parameter can be changed a little so that the loss falls.
TEST(BoundedFits, EndAtAConstrainedMinimum) {
  const Engine engine = cpuEngine(Precision::kF64);
  std::size_t converged = 0, fits_made = 0;
  for (const char* const name : {"mse", "huber:0.3", "scaled-mse"}) {
    const LossOptions loss = parseLoss(name).value();
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      Random random(seed);
      Workload w{.expressions = infixes({"p0*exp(p1*x0) + p2", "p0/(1 + exp(p1 - p2*x0))", "exp(p0 + p1*sin(p2*x0))"}),
                 .columns = {{}}};
      for (std::size_t r = 0; r < 60; ++r) {
        const double x = 3.0 * static_cast<double>(r) / 60;
        w.columns[0].push_back(x);
        w.target.push_back(0.5 + 3 * std::exp(-0.8 * x) + random.between(0.0, 0.4));
      }
      std::vector<ParameterBounds> bounds(3);
      for (auto& [lower, upper] : bounds) {
        lower = random.between(-2.0, 1.0);
        upper = lower + random.between(0.0, 3.0);
      }
      const auto [data, program] = prepared(engine, w);
      const Fits fits = engine
                            .fit(program, data, std::vector<double>(9, 0.3),
                                 {.loss = loss, .loss_tolerance = 1e-13, .bounds = bounds})
                            .value();
      for (std::size_t e = 0; e < 3; ++e) {
        ++fits_made;
        if (fits.statuses[e] != FitStatus::kConverged) continue;
        ++converged;
        for (std::size_t p = 0; p < 9; ++p) {
          const auto [lower, upper] = bounds[p % 3];
          EXPECT_GE(fits.parameters[p], lower);
          EXPECT_LE(fits.parameters[p], upper);
          if (p / 3 != e) continue;
          for (const double step : {-1e-4, 1e-4}) {
            std::vector<double> other = fits.parameters;
            other[p] = std::clamp(other[p] + step * std::max(1.0, std::fabs(other[p])), lower, upper);
            const double near = engine.loss(program, data, other, loss).value().values[e];
            EXPECT_GE(near, fits.losses.values[e] - 1e-9 * std::fabs(fits.losses.values[e]))
                << name << " " << seed << " " << e << " p" << p % 3 << " " << step;
          }
        }
      }
    }
  }
  EXPECT_GT(converged, fits_made * 9 / 10);
}

TEST(BoundedFits, FixedParametersLeaveTheOthersTheirStandardErrors) {
  Random random(3);
  Workload w = linearWorkload(random);
  w.expressions = infixes({"p0*x0 + p1*x1 + p2*x2", "p0*x0 + p1*x1 + 0.25*x2"});
  const Engine engine = cpuEngine(Precision::kF64);
  const auto [data, program] = prepared(engine, w);
  const std::vector<double> starts(5, 1);
  const Fits fits = engine.fit(program, data, starts, {.bounds = {{}, {}, {0.25, 0.25}}}).value();
  EXPECT_EQ(fits.parameters[2], 0.25);
  EXPECT_TRUE(std::isnan(fits.standard_errors[2]));
  for (const std::size_t p : {0, 1}) {
    EXPECT_NEAR(fits.parameters[p], fits.parameters[3 + p], 1e-9);
    EXPECT_NEAR(fits.standard_errors[p], fits.standard_errors[3 + p], 1e-9);
  }
  const Fits free = engine.fit(program, data, starts).value();
  const Fits infinite = engine.fit(program, data, starts, {.bounds = {{}, {-kInfinity, kInfinity}}}).value();
  expectSameBits(free.parameters, infinite.parameters, 1, "infinite bounds");
}

TEST(BoundedFits, ExpressionsMayHaveBoundsOfTheirOwn) {
  Random random(4);
  const Workload w = linearWorkload(random);
  const Engine engine = cpuEngine(Precision::kF64);
  const auto [data, program] = prepared(engine, w);
  const std::vector<double> starts(10, 1);
  std::vector<ParameterBounds> all;
  std::vector<double> expected;
  for (const Expression& expression : w.expressions) {
    std::vector<ParameterBounds> own = drawnBounds(random);
    own.resize(expression.parameterCount());
    all.insert(all.end(), own.begin(), own.end());
    const Program one = engine.compile(std::vector{expression});
    const Fits fits = engine.fit(one, data, std::vector<double>(own.size(), 1), {.bounds = own}).value();
    expected.insert(expected.end(), fits.parameters.begin(), fits.parameters.end());
  }
  expectSameBits(engine.fit(program, data, starts, {.bounds = all, .has_bounds_of_each = true}).value().parameters,
                 expected, 1, "bounds of each");
  all.pop_back();
  EXPECT_THAT(engine.fit(program, data, starts, {.bounds = all, .has_bounds_of_each = true}).error().message,
              testing::HasSubstr("9 bounds for 10 parameters"));
}

// Normal equations are too inexact here: the refinement must keep to the bounds, too. So must parameters in units.
TEST(BoundedFits, ARefinedFitKeepsToTheBounds) {
  for (const double unit : {1.0, 0x1p600}) {
    Workload w{.expressions = infixes({"p0 + p1*x0 + p2*x0*x0 + p3*x0*x0*x0"}), .columns = {{}}};
    for (std::size_t r = 0; r < 31; ++r) {
      const double year = 1990 + static_cast<double>(r), t = year - 2005;
      w.columns[0].push_back(year);
      w.target.push_back(unit * (3 + 0.1 * t + 0.02 * t * t - 1e-4 * t * t * t + 0.09 * std::sin(1e3 * t)));
    }
    const Engine engine = cpuEngine(Precision::kF64);
    const auto [data, program] = prepared(engine, w);
    for (const ParameterBounds cubic : {ParameterBounds{0, unit}, ParameterBounds{-5e-5 * unit, 0}}) {
      const Fits fits = engine
                            .fit(program, data, std::vector{0., 0., 0., cubic.lower + 1e-5 * unit},
                                 {.loss = {.kind = LossKind::kNmse}, .bounds = {{}, {}, {}, cubic}})
                            .value();
      EXPECT_EQ(fits.parameters[3], cubic.lower);
      EXPECT_TRUE(std::isnan(fits.standard_errors[3]));
      for (double& y : w.target) y /= unit;
      Workload rest = w;
      for (std::size_t r = 0; r < 31; ++r) rest.target[r] -= cubic.lower / unit * std::pow(w.columns[0][r], 3);
      rest.expressions = infixes({"p0 + p1*x0 + p2*x0*x0"});
      for (double& y : w.target) y *= unit;
      const auto [other_data, other] = prepared(engine, rest);
      const Fits expected = engine.fit(other, other_data, std::vector<double>(3, 0)).value();
      double mean = 0, variance = 0;
      for (double y : w.target) mean += y / unit / 31;
      for (double y : w.target) variance += (y / unit - mean) * (y / unit - mean) / 31;
      EXPECT_NEAR(fits.losses.values[0] * variance, expected.losses.values[0], 1e-5 * expected.losses.values[0]);
    }
  }
}

TEST(BoundedFits, EmptyBoundsAreRefused) {
  Random random(1);
  const Workload w = linearWorkload(random);
  const Engine engine = cpuEngine(Precision::kF64);
  const auto [data, program] = prepared(engine, w);
  const std::vector<double> starts(10, 1);
  for (const ParameterBounds bad :
       {ParameterBounds{1, 0}, ParameterBounds{std::nan(""), 1}, ParameterBounds{0, std::nan("")},
        ParameterBounds{kInfinity, kInfinity}, ParameterBounds{-kInfinity, -kInfinity}}) {
    const auto fits = engine.fit(program, data, starts, {.bounds = {{}, bad}});
    ASSERT_FALSE(fits.ok());
    EXPECT_THAT(fits.error().message, testing::HasSubstr("of p1: no number"));
  }
}

}  // namespace
}  // namespace srjit

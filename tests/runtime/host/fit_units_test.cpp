// Fits of targets and weights beyond the ordinary, and the losses that they report.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ir/text.h"
#include "runtime/engine.h"
#include "tests/generators/workload.h"

namespace srjit {
namespace {

Engine unitEngine(Precision precision) { return cpuEngine(precision, Math::kPrecise); }

/// 300 points, with the target scale * of(a, b).
struct Table {
  std::vector<double> a, b, y, weights;

  Table(double scale, const std::function<double(double, double)>& of, double weight = 1) {
    for (int i = 0; i < 300; ++i) {
      a.push_back(1 + 4 * std::fmod(0.618 * i, 1));
      b.push_back(1 + 4 * std::fmod(0.414 * i, 1));
      y.push_back(scale * of(a.back(), b.back()));
      weights.push_back(weight);
    }
  }
  DataView view(bool is_weighted = false) const {
    DataView data;
    data.columns = {ColumnView(a), ColumnView(b)};
    data.target = ColumnView(y);
    if (is_weighted) data.weights = ColumnView(weights);
    return data;
  }
};

struct Reported {
  Fits fits;
  Losses losses;  ///< of the fitted parameters, by Engine::loss()
};

Reported fitted(const Engine& engine, const DataView& view, std::initializer_list<std::string_view> texts,
                const LossOptions& loss, double start = 1) {
  const Program program = engine.compile(infixes(texts));
  const Dataset data = engine.upload(view).value();
  const std::vector<double> starts(program.parameterOffset(program.size()), start);
  Fits fits = engine.fit(program, data, starts, {.loss = loss}).value();
  Losses losses = engine.loss(program, data, fits.parameters, loss).value();
  return {std::move(fits), std::move(losses)};
}

double product(double a, double b) { return a * b; }
double exponential(double a, double) { return 2 * std::exp(0.5 * a); }

struct Magnitude {
  Precision precision;
  double scale;
};

TEST(FitUnits, TargetsOfAnyMagnitudeAreFitted) {
  for (const auto& [precision, scale] : {Magnitude{Precision::kF32, 1e-25},
                                         {Precision::kF32, 1e30},
                                         {Precision::kF32, 1e19},
                                         {Precision::kF32, 1},
                                         {Precision::kF64, 1e160},
                                         {Precision::kF64, 1e-170},
                                         {Precision::kF64, 1}}) {
    const Engine engine = unitEngine(precision);
    const double near = isDouble(precision) ? 1e-9 : 1e-4;
    for (const LossKind kind : {LossKind::kNmse, LossKind::kRmse, LossKind::kR2}) {
      const auto [products, of_products] =
          fitted(engine, Table(scale, product).view(), {"p0*x0*x1", "p0 + p1*x0*x1"}, {.kind = kind});
      EXPECT_NEAR(products.parameters[0] / scale, 1, near) << scale;
      EXPECT_NEAR(products.parameters[1] / scale, 0, near) << scale;
      EXPECT_NEAR(products.parameters[2] / scale, 1, near) << scale;
      expectSameBits(products.losses.values, of_products.values, 1, "losses");
      const auto [curve, of_curve] =
          fitted(engine, Table(scale, exponential).view(), {"p0*exp(p1*x0)"}, {.kind = kind});
      EXPECT_EQ(curve.statuses[0], FitStatus::kConverged) << scale;
      EXPECT_NEAR(curve.parameters[0] / scale, 2, 2 * near) << scale;
      EXPECT_NEAR(curve.parameters[1], 0.5, near) << scale;
      expectSameBits(curve.losses.values, of_curve.values, 1, "losses");
    }
  }
}

// In units that are powers of two, errors and steps are the same.
TEST(FitUnits, ScaleChangesNoDigit) {
  const auto of = [](double a, double b) { return a * std::sqrt(b) + 0.1 * std::sin(40 * a); };
  const std::initializer_list<std::string_view> texts = {"p0 + p1*x0*x1^p2"};
  const Engine engine = unitEngine(Precision::kF64);
  const Fits expected = fitted(engine, Table(0x1p-600, of).view(), texts, {.kind = LossKind::kNmse}, 0.5).fits;
  const Fits fits = fitted(engine, Table(0x1p-560, of).view(), texts, {.kind = LossKind::kNmse}, 0.5).fits;
  const Fits ordinary = fitted(engine, Table(1, of).view(), texts, {.kind = LossKind::kNmse}, 0.5).fits;
  EXPECT_EQ(fits.statuses[0], FitStatus::kConverged);
  for (std::size_t i = 0; i < 3; ++i) {
    const double unit = i == 2 ? 1 : 0x1p-560, other = i == 2 ? 1 : 0x1p-600;
    EXPECT_NEAR(fits.parameters[i] / unit / ordinary.parameters[i], 1, 1e-4) << i;
    EXPECT_NEAR(fits.standard_errors[i] / unit / ordinary.standard_errors[i], 1, 1e-4) << i;
    EXPECT_NEAR(fits.parameters[i] / unit / (expected.parameters[i] / other), 1, 1e-4) << i;
  }
}

TEST(FitUnits, WeightsOfAnyMagnitudeCount) {
  const auto of = [](double a, double b) { return a * b + std::sin(40 * a); };
  for (const double weight : {1e35, 1e-35}) {
    const Engine engine = unitEngine(Precision::kF32);
    const Table table(1, of, weight);
    const std::initializer_list<std::string_view> texts = {"p0 + p1*x0*x1", "p0*x0^p1*x1"};
    const auto [expected, unused] = fitted(engine, table.view(), texts, {});
    const auto [fits, losses] = fitted(engine, table.view(true), texts, {});
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(fits.parameters[i], expected.parameters[i], 1e-4) << weight << i;
      EXPECT_NEAR(fits.standard_errors[i], expected.standard_errors[i], 1e-3 * expected.standard_errors[i]) << i;
    }
    EXPECT_EQ(fits.statuses[0], FitStatus::kConverged);
    expectSameBits(fits.losses.values, losses.values, 1, "losses");
  }
}

TEST(FitUnits, OtherLossesAreFittedInUnits) {
  for (const auto& [precision, scale] : {Magnitude{Precision::kF32, 1e-25}, {Precision::kF64, 1e160}}) {
    for (const LossKind kind : {LossKind::kMae, LossKind::kQuantile}) {
      const auto [fits, losses] =
          fitted(unitEngine(precision), Table(scale, product).view(), {"p0*x0*x1", "p0*x0*x1 + p1"}, {.kind = kind}, 0);
      EXPECT_NEAR(fits.parameters[0] / scale, 1, 1e-3) << scale;
      EXPECT_NEAR(fits.parameters[1] / scale, 1, 1e-2) << scale;
      expectSameBits(fits.losses.values, losses.values, 1, "losses");
    }
  }
}

TEST(FitUnits, LossesHaveTheBitsOfLoss) {
  const auto of = [](double a, double b) { return 1000 * std::pow(a, 1.5) + std::sin(9 * b); };
  for (const Precision precision : kPrecisions) {
    const Engine engine = unitEngine(precision);
    std::size_t nan = 0;  // each policy with each loss, at one of the scales
    for (const double scale : {1.0, 1e-25, 1e25}) {
      for (const LossKind kind : {LossKind::kScaledR2, LossKind::kScaledNmse, LossKind::kScaledRmse,
                                  LossKind::kScaledMse, LossKind::kScaledSse, LossKind::kSse}) {
        const auto [fits, losses] = fitted(engine, Table(scale, of).view(),
                                           {"x0^p0", "x0", "exp(p0*x0)", "p0*x0 + p1*x1", "7", "sqrt(x0 - p0)"},
                                           {.kind = kind, .nan = kNanPolicies[nan++ % 3]});
        expectSameLosses(fits.losses, losses, "losses");
        if (kind != LossKind::kSse) {
          EXPECT_NEAR(fits.parameters[0], 1.5, 1e-2);
        }
        EXPECT_EQ(fits.statuses[1], FitStatus::kNoParameters);
      }
      ++nan;
    }
  }
}

}  // namespace
}  // namespace srjit

// Losses of targets and weights of any magnitude: those of ordinary data, times a power of the unit.
#include <cmath>
#include <string>

#include <gmock/gmock.h>

#include "ir/text.h"
#include "runtime/evaluation/loss_value.h"
#include "tests/generators/workload.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

using testing::HasSubstr;

class LossRange : public testing::TestWithParam<Precision> {
 protected:
  bool isWide() const { return GetParam() == Precision::kF64; }
  /// Binary exponents of units, of which the largest targets are a few.
  std::vector<int> exponents() const {
    return isWide() ? std::vector{-1018, -996, -565, -330, 508, 531, 1018} : std::vector{-110, -103, -83, -33, 63, 120};
  }
  std::vector<int> weightExponents() const {
    return isWide() ? std::vector{-1000, -150, 150, 900} : std::vector{-116, -30, 60, 110};
  }

  /// Predictions c x0 + x1 of a few numbers, in units of 2^exponent.
  Workload inUnits(int exponent, int weight_exponent, bool weighted) const {
    Random random(11);
    Workload w;
    w.expressions.assign(2, infix("p0*x0 + p1*x1"));
    w.columns.resize(2);
    for (int r = 0; r < 300; ++r) {
      for (std::vector<double>& column : w.columns) column.push_back(roundTo(GetParam(), random.between(-2.0, 2.0)));
      w.target.push_back(std::ldexp(roundTo(GetParam(), random.between(-1.0, 3.0)), exponent));
      if (weighted) w.weights.push_back(std::ldexp(roundTo(GetParam(), random.between(0.5, 2.0)), weight_exponent));
    }
    for (const double parameter : {1.5, 0.25, -0.75, 1.0}) w.parameters.push_back(std::ldexp(parameter, exponent));
    return w;
  }

  static double power(double value, int exponent, int times) {
    for (int i = 0; i < times; ++i) value = std::ldexp(value, exponent);
    return value;
  }
};

INSTANTIATE_TEST_SUITE_P(Precisions, LossRange, testing::Values(Precision::kF32, Precision::kF64),
                         [](const auto& test) { return std::string(nameOf(test.param)); });

LossOptions inUnit(const LossInfo& info, NanPolicy nan, int exponent) {
  LossOptions options{.kind = info.kind, .nan = nan};
  if (infoOf(info.term).tuning == LossTuning::kThreshold) options.tuning = std::ldexp(0.5, exponent);
  return options;
}

TEST_P(LossRange, LossesAreThoseOfOrdinaryTargetsInAnotherUnit) {
  const Engine engine = cpuEngine(GetParam());
  for (const bool weighted : {false, true}) {
    const NanPolicy nan = weighted ? NanPolicy::kSkip : NanPolicy::kPropagate;
    const Workload ordinary = inUnits(0, 0, weighted);
    for (const int exponent : exponents()) {
      const Workload w = inUnits(exponent, 0, weighted);
      const auto [data, program] = prepared(engine, w);
      for (const LossInfo& info : allLosses()) {
        if (!info.unit) continue;
        const std::string what = fmt::format("{} of units of 2^{}", info.name, exponent);
        const LossOptions options = inUnit(info, nan, exponent);
        const Result<Losses> losses = engine.loss(program, data, w.parameters, options);
        if (isWide() && *info.unit == 2 && (exponent < -457 || exponent > 500)) {
          ASSERT_FALSE(losses) << what;
          EXPECT_THAT(losses.error().message, HasSubstr("beyond the range of f64; expected another unit")) << what;
          continue;
        }
        ASSERT_TRUE(losses) << what << losses.error().message;
        const Losses expected = lossesOf(engine, ordinary, Tier::kInterpret, inUnit(info, nan, 0));
        for (std::size_t e = 0; e < 2; ++e) {
          const double value = power(losses->values[e], -exponent, *info.unit);
          EXPECT_NEAR(value, expected.values[e], (info.isScaled() ? 1e-5 : 0) * std::fabs(expected.values[e])) << what;
          EXPECT_EQ(losses->valid_rows[e], 300U);
        }
        const Gradients gradients = engine.gradient(program, data, w.parameters, {.loss = options}).value();
        const Gradients base = gradientsOf(engine, ordinary, Tier::kInterpret, {.loss = inUnit(info, nan, 0)});
        expectSameBits(gradients.losses.values, losses->values, 1, "losses of gradients");
        for (std::size_t p = 0; p < 4; ++p) {
          const double value = *info.unit == 0 ? std::ldexp(gradients.derivatives[p], exponent)
                                               : power(gradients.derivatives[p], -exponent, *info.unit - 1);
          // The derivative of a loss without a unit, by a parameter with one, may be beyond f64.
          if (*info.unit == 0 && !std::isfinite(gradients.derivatives[p])) continue;
          const double tolerance = info.isScaled() ? 1e-4 : *info.unit == 0 ? 1e-12 : 0;
          EXPECT_NEAR(value, base.derivatives[p], tolerance * (1 + std::fabs(base.derivatives[p])))
              << what << " p" << p;
        }
      }
    }
  }
}

TEST_P(LossRange, WeightsHaveNoUnitInMeans) {
  const Engine engine = cpuEngine(GetParam());
  const Workload ordinary = withShares(inUnits(0, 0, true));
  for (const int exponent : weightExponents()) {
    const Workload w = withShares(inUnits(0, exponent, true));
    for (const LossInfo& info : allLosses()) {
      for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
        const Losses losses = lossesOf(engine, w, Tier::kInterpret, {info.kind, nan});
        const Losses expected = lossesOf(engine, ordinary, Tier::kInterpret, {info.kind, nan});
        const bool is_sum =
            info.kind == LossKind::kSse || info.kind == LossKind::kSum || info.kind == LossKind::kScaledSse;
        for (std::size_t e = 0; e < 2; ++e) {
          const double value = is_sum ? std::ldexp(losses.values[e], -exponent) : losses.values[e];
          EXPECT_EQ(std::isnan(value), std::isnan(expected.values[e])) << info.name;
          if (std::isnan(value)) continue;  // poisson of predictions below 0
          // Sums of weights are rounded elsewhere, if rows are left out.
          EXPECT_NEAR(value, expected.values[e], 1e-6 * std::fabs(expected.values[e])) << info.name << ' ' << exponent;
          EXPECT_EQ(losses.valid_rows[e], expected.valid_rows[e]) << info.name;
        }
      }
    }
  }
}

TEST_P(LossRange, TiersAndDevicesGiveTheSameBits) {
  const Engine cpu = cpuEngine(GetParam());
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.precision = GetParam(), .math = Math::kStrict});
  const Workload w = inUnits(exponents().front(), weightExponents().front(), true);
  for (const LossKind kind : {LossKind::kNmse, LossKind::kMae, LossKind::kScaledNmse}) {
    const LossOptions options{kind, NanPolicy::kSkip};
    const Losses expected = lossesOf(cpu, w, Tier::kInterpret, options);
    expectSameLosses(lossesOf(cpu, w, Tier::kCompile, options), expected, "compiled");
    expectSameLosses(lossesOf(gpu, w, Tier::kInterpret, options), expected, "model of a GPU");
    const auto [data, program] = prepared(cpu, w);
    expectSameLosses(cpu.submitLoss(program, data, w.parameters, options).value().result().value(), expected,
                     "submitted");
  }
}

// An error whose square the precision does not have is infinite: a fit that no search wants.
TEST_P(LossRange, OfPredictionsThatTheTargetsAreNothingBeside) {
  const Engine engine = cpuEngine(GetParam());
  Workload w = inUnits(0, 0, false);
  w.expressions = infixes({"1e30*x0", "1e-30*x0"});
  w.parameters.clear();
  const auto losses = [&](LossKind kind) { return lossesOf(engine, w, Tier::kInterpret, {.kind = kind}).values; };
  EXPECT_EQ(std::isfinite(losses(LossKind::kMse)[0]), isWide());
  EXPECT_NEAR(losses(LossKind::kMae)[0], 1e30, 1e29);
  EXPECT_NEAR(losses(LossKind::kNmse)[1], 1.7, 0.3);
  EXPECT_NEAR(losses(LossKind::kScaledNmse)[0], losses(LossKind::kScaledNmse)[1], 1e-5);
  EXPECT_NEAR(losses(LossKind::kCorrelation)[0], losses(LossKind::kCorrelation)[1], 1e-5);
}

// The law has a share of the target's variance, whatever the unit.
TEST_P(LossRange, TellsALawInAnyUnit) {
  const Engine engine = cpuEngine(GetParam());
  Workload w{.expressions = infixes({"0", "x0", "p0*x0/x1"}), .columns = {{}, {}}};
  Random random(3);
  for (const double unit : {1e-25, 1e19, 1e37}) {
    w.target.clear();
    for (std::vector<double>& column : w.columns) column.clear();
    for (int r = 0; r < 300; ++r) {
      for (std::vector<double>& column : w.columns) column.push_back(random.between(1.0, 5.0));
      w.target.push_back(unit * w.columns[0].back() / w.columns[1].back());
    }
    w.parameters = {unit};
    const std::vector<double> r2 = lossesOf(engine, w, Tier::kInterpret, {.kind = LossKind::kR2}).values;
    EXPECT_LT(r2[0], 0) << unit;
    EXPECT_LT(r2[1], 0.1) << unit;
    EXPECT_TRUE(std::isfinite(r2[1])) << unit << ": of predictions 1e25 times the target, too";
    EXPECT_NEAR(r2[2], 1, 1e-12) << unit;
    const double mse = lossesOf(engine, w, Tier::kInterpret, {.kind = LossKind::kMse}).values[2];
    EXPECT_LT(mse, 1e-13 * unit * unit) << unit;
  }
}

TEST_P(LossRange, RefusesAThresholdThatIsNothingBesideTheTargets) {
  const Engine engine = cpuEngine(GetParam());
  const Workload w = inUnits(isWide() ? 499 : 120, 0, false);
  const auto [data, program] = prepared(engine, w);
  const auto loss = [&](double c) {
    return engine.loss(program, data, w.parameters, {.kind = LossKind::kHuber, .tuning = c});
  };
  EXPECT_TRUE(loss(1));
  const Result<Losses> tiny = loss(isWide() ? 1e-200 : 1e-10);
  ASSERT_FALSE(tiny);
  EXPECT_THAT(tiny.error().message, HasSubstr("expected a number nearer to the targets"));
}

}  // namespace
}  // namespace srjit

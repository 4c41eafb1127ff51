#include "runtime/evaluation/loss_value.h"
#include "tests/generators/data.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace srjit {
namespace {

TEST(LossValue, MatchesItsDefinition) {
  const LossSums sums{.terms = 12, .weights = 3, .rows = 4, .valid = 4};
  const auto value = [&](LossKind kind) { return lossValue(sums, 8, {.kind = kind}); };
  EXPECT_EQ(value(LossKind::kSse), 12);
  EXPECT_EQ(value(LossKind::kMse), 4);
  EXPECT_EQ(value(LossKind::kMae), 4);
  EXPECT_EQ(value(LossKind::kRmse), 2);
  EXPECT_EQ(value(LossKind::kNmse), 0.5);
  EXPECT_EQ(value(LossKind::kR2), 0.5);
}

TEST(LossValue, FollowsThePolicyForInvalidRows) {
  const LossSums some{.terms = 12, .weights = 3, .rows = 4, .valid = 3}, none{.rows = 4};
  EXPECT_EQ(lossValue(some, 8, {.kind = LossKind::kMse, .nan = NanPolicy::kSkip}), 4);
  EXPECT_TRUE(std::isnan(lossValue(none, 8, {.kind = LossKind::kMse, .nan = NanPolicy::kSkip})));
  EXPECT_EQ(lossValue(some, 8, {.kind = LossKind::kMse, .nan = NanPolicy::kReject}), kInfinity);
  EXPECT_EQ(lossValue(some, 8, {.kind = LossKind::kR2, .nan = NanPolicy::kReject}), -kInfinity);
}

// Rows f = 1, 2, 4 and y = 3, 4, 9, about the target's mean 16/3.
LossSums scaledSums() {
  const double f[] = {1, 2, 4}, y[] = {3, 4, 9}, mean = 16.0 / 3;
  LossSums sums{.weights = 3, .rows = 3, .valid = 3};
  for (std::size_t r = 0; r < 3; ++r) {
    const double g = f[r] - mean, z = y[r] - mean;
    sums.terms += g;
    sums.more_terms[0] += g * g;
    sums.more_terms[1] += g * z;
    sums.targets += z;
    sums.squared_targets += z * z;
  }
  return sums;
}

// Of a straight line: the slope is 29/14, and the squared errors are 62/3 less (29/3)^2 / (14/3).
TEST(LossValue, OfScaledLossesIsThatOfTheBestLine) {
  const double sse = 62.0 / 3 - 841.0 / 42, variance = 62.0 / 9;
  const auto value = [&](LossKind kind) { return lossValue(scaledSums(), variance, {.kind = kind}); };
  EXPECT_NEAR(value(LossKind::kScaledSse), sse, 1e-13);
  EXPECT_NEAR(value(LossKind::kScaledMse), sse / 3, 1e-13);
  EXPECT_NEAR(value(LossKind::kScaledRmse), std::sqrt(sse / 3), 1e-13);
  EXPECT_NEAR(value(LossKind::kScaledNmse), sse / 3 / variance, 1e-13);
  EXPECT_NEAR(value(LossKind::kScaledR2), 1 - sse / 3 / variance, 1e-13);
  EXPECT_NEAR(value(LossKind::kCorrelation), 29.0 / std::sqrt(14 * 62), 1e-13);
  EXPECT_EQ(lossOfSum({.terms = 12, .weights = 3, .rows = 3, .valid = 3}, 8, {.kind = LossKind::kScaledMse}), 4);
}

TEST(LossValue, OfConstantsIsThatOfTheMean) {
  LossSums sums{.terms = 6, .weights = 3, .rows = 3, .valid = 3, .more_terms = {12, 0}, .squared_targets = 9};
  EXPECT_EQ(lossValue(sums, 3, {.kind = LossKind::kScaledMse}), 3) << "squares that rounding made smaller";
  sums.more_terms[0] = 13;
  sums.is_constant = true;
  EXPECT_EQ(lossValue(sums, 3, {.kind = LossKind::kScaledMse}), 3);
  EXPECT_EQ(lossValue(sums, 3, {.kind = LossKind::kCorrelation}), 0);
  sums.is_constant = false;
  sums.more_terms[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(lossValue(sums, 3, {.kind = LossKind::kScaledMse})));
}

// Rounding must not make a correlation of more than 1, nor squared errors below 0.
TEST(LossValue, OfScaledLossesIsInItsRange) {
  const LossSums sums{.weights = 1, .rows = 1, .valid = 1, .more_terms = {1, -1.0000001}, .squared_targets = 1.0000001};
  EXPECT_EQ(lossValue(sums, 1, {.kind = LossKind::kScaledSse}), 0);
  EXPECT_EQ(lossValue(sums, 1, {.kind = LossKind::kCorrelation}), -1);
}

TEST(LossValue, SlopesAreDerivatives) {
  for (const LossInfo& info : allLosses()) {
    LossSums sums = scaledSums();
    if (!info.isScaled()) sums.terms = 12;
    const LossOptions options{.kind = info.kind};
    const auto slopes = lossSlopes(sums, 5, options);
    const auto check = [&](double& sum, double slope) {
      const double h = 1e-6, at = sum;
      sum = at + h;
      const double above = lossValue(sums, 5, options);
      sum = at - h;
      const double below = lossValue(sums, 5, options);
      sum = at;
      EXPECT_NEAR(slope, (above - below) / (2 * h), 1e-7) << info.name;
    };
    check(sums.terms, slopes[0]);
    if (!info.isScaled()) continue;
    check(sums.more_terms[0], slopes[1]);
    check(sums.more_terms[1], slopes[2]);
  }
}

TEST(LossValue, BatchHasTheBitsOfSingleValues) {
  const std::vector<double> terms = {0, 1.5, 1e300, kInfinity, std::numeric_limits<double>::quiet_NaN(), 3e-310, 7};
  for (const LossInfo& info : allLosses()) {
    const LossKind kind = info.kind;
    if (isOfGraphs({.kind = kind}) || info.isScaled()) continue;
    for (const double weights : {3.0, 0.1, 0.0}) {
      for (const double variance : {0.7, 0.0}) {
        std::vector<double> values(terms.size());
        lossValues(terms, weights, variance, kind, values);
        for (std::size_t i = 0; i < terms.size(); ++i) {
          const LossSums sums{.terms = terms[i], .weights = weights, .rows = 4, .valid = 4};
          const double expected = lossValue(sums, variance, {.kind = kind});
          if (std::isnan(expected)) {
            EXPECT_TRUE(std::isnan(values[i]));
          } else {
            EXPECT_EQ(std::bit_cast<std::uint64_t>(values[i]), std::bit_cast<std::uint64_t>(expected));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace srjit

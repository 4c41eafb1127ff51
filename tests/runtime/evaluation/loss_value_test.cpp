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

TEST(LossValue, BatchHasTheBitsOfSingleValues) {
  const std::vector<double> terms = {0, 1.5, 1e300, kInfinity, std::numeric_limits<double>::quiet_NaN(), 3e-310, 7};
  for (const LossInfo& info : allLosses()) {
    const LossKind kind = info.kind;
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

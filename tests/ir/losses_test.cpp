// The rows of losses.def against values by hand.
#include "ir/losses.h"

#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include <gtest/gtest.h>

namespace srjit {
namespace {

TEST(Losses, TermsEqualHandWrittenValues) {
  for (const double prediction : {3.5, -0.5}) {
    EXPECT_EQ(lossTerm<double>(LossTerm::kSquared, prediction, 1.5), 4);
    EXPECT_EQ(lossTerm<double>(LossTerm::kAbsolute, prediction, 1.5), 2);
  }
  EXPECT_EQ(lossTerm<float>(LossTerm::kSquared, 0.1F, 0.3F), (0.1F - 0.3F) * (0.1F - 0.3F)) << "in single precision";
}

// So a loss is not finite where a prediction is not.
TEST(Losses, TermsOfNonFinitePredictionsAreNotFinite) {
  ASSERT_FALSE(allLossTerms().empty());
  for (const auto& [term, name] : allLossTerms()) {
    for (const double prediction : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                                    -std::numeric_limits<double>::infinity()}) {
      EXPECT_FALSE(std::isfinite(lossTerm<double>(term, prediction, 1))) << name << " of " << prediction;
    }
  }
}

TEST(Losses, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const LossInfo& info : allLosses()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(&infoOf(info.kind), &info);
    EXPECT_TRUE(std::isinf(info.worst)) << info.name;
  }
  EXPECT_EQ(names.size(), allLosses().size());
  for (const LossTermInfo& info : allLossTerms()) EXPECT_EQ(&infoOf(info.term), &info);
}

}  // namespace
}  // namespace srjit

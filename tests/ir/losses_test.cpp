// The rows of losses.def against values by hand.
#include "ir/losses.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

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

double valueOf(LossTerm term, double f, double y, const LossConstants& constants = {}) {
  return rowTerm(term, f, y, constants).value;
}

TEST(Losses, TermsOfGraphsEqualHandWrittenValues) {
  const LossConstants one{.tuning = 1}, wide{.tuning = 3};
  EXPECT_EQ(valueOf(LossTerm::kHuber, 2.5, 2, one), 0.125);
  EXPECT_EQ(valueOf(LossTerm::kHuber, 5, 2, one), 2.5);
  EXPECT_EQ(valueOf(LossTerm::kHuber, -1, 2, one), 2.5);
  EXPECT_EQ(valueOf(LossTerm::kHuber, -0.5, 2, wide), 3.125);
  const LossConstants tenth{.tuning = 0.125};
  EXPECT_EQ(valueOf(LossTerm::kQuantile, 4, 2, tenth), 1.75);
  EXPECT_EQ(valueOf(LossTerm::kQuantile, 0, 2, tenth), 0.25);
  for (const double f : {-800.0, -2.0, 0.0, 0.5, 800.0}) {
    const double of_one = f < -700 ? -f : std::log1p(std::exp(-f)), of_zero = f > 700 ? f : std::log1p(std::exp(f));
    EXPECT_NEAR(valueOf(LossTerm::kLogistic, f, 1), of_one, 1e-15 * (1 + of_one));
    EXPECT_NEAR(valueOf(LossTerm::kLogistic, f, 0), of_zero, 1e-15 * (1 + of_zero));
  }
  EXPECT_EQ(valueOf(LossTerm::kPoisson, 3, 3), 0);
  EXPECT_EQ(valueOf(LossTerm::kPoisson, 3, 0), 6);
  EXPECT_DOUBLE_EQ(valueOf(LossTerm::kPoisson, 2, 4), 2 * (4 * std::log(2.0) - 2));
  EXPECT_EQ(rowTerm<float>(LossTerm::kHuber, 0.1F, 0.3F, one).value, 0.5F * (0.1F - 0.3F) * (0.1F - 0.3F));
}

std::vector<double> termsOf(LossTerm term, double f, double y) {
  std::vector<double> terms;
  eachLossTerm(term, f, y, [&](double value) { terms.push_back(value); });
  EXPECT_EQ(terms.size(), sumsOf(term));
  return terms;
}

TEST(Losses, MomentsAreOfThePredictionAndTheTargetLessItsCentre) {
  EXPECT_EQ(termsOf(LossTerm::kMoments, 3, 2.5), (std::vector{3.0, 9.0, 7.5}));
  std::vector<double> of_target;
  eachTargetTerm(2.5, [&](double value) { of_target.push_back(value); });
  EXPECT_EQ(of_target, (std::vector{2.5, 6.25}));
  EXPECT_EQ(of_target.size(), kTargetSums);
  EXPECT_EQ(termsOf(LossTerm::kSquared, 3, 2.5), (std::vector{0.25}));
  for (const LossInfo& info : allLosses()) EXPECT_EQ(info.isScaled(), info.term == LossTerm::kMoments) << info.name;
}

// Of log-loss, and of huber within its threshold, it is the second derivative; it is never a negative number.
TEST(Losses, ReweightingIsThatOfTheTable) {
  const auto reweightingOf = [](LossTerm term, double f, double y, const LossConstants& constants) {
    return rowTerm(term, f, y, constants).reweighting.value();
  };
  for (const auto& [term, f, y] : {std::tuple(LossTerm::kHuber, 0.4, 0.0), std::tuple(LossTerm::kLogistic, 0.7, 1.0),
                                   std::tuple(LossTerm::kLogistic, -3.0, 0.0)}) {
    const LossConstants constants{.tuning = 1};
    const double h = 1e-4;
    const double second =
        (valueOf(term, f + h, y, constants) - 2 * valueOf(term, f, y, constants) + valueOf(term, f - h, y, constants)) /
        (h * h);
    EXPECT_NEAR(reweightingOf(term, f, y, constants), second, 1e-6) << infoOf(term).name;
  }
  EXPECT_EQ(reweightingOf(LossTerm::kHuber, 5, 1, {.tuning = 2}), 0.5)
      << "of the parabola that touches it: the term is straight there";
  EXPECT_EQ(reweightingOf(LossTerm::kQuantile, 5, 1, {.tuning = 0.25, .least_difference = 1e-3}), 0.75 / 4);
  EXPECT_EQ(reweightingOf(LossTerm::kQuantile, 1, 1, {.tuning = 0.25, .least_difference = 0.5}), 0.5);
  EXPECT_EQ(reweightingOf(LossTerm::kPoisson, 4, 1, {}), 0.5) << "expected where y has the mean f";
  for (const LossTermInfo& info : allLossTerms()) {
    if (isOfMoments(info.term)) continue;
    EXPECT_EQ(rowTerm<double>(info.term, 1, 1, {.tuning = 0.5}).reweighting.has_value(), !isInKernels(info.term));
  }
}

// So a loss is not finite where a prediction is not.
TEST(Losses, TermsOfNonFinitePredictionsAreNotFinite) {
  ASSERT_FALSE(kernelLossTerms().empty());
  for (const LossTermInfo& info : allLossTerms()) {
    for (const double prediction : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                                    -std::numeric_limits<double>::infinity()}) {
      for (const double target : {0.0, 0.25, 1.0}) {
        const double term = isOfMoments(info.term) ? termsOf(info.term, prediction, target)[0]
                                                   : valueOf(info.term, prediction, target, {.tuning = 0.5});
        EXPECT_FALSE(std::isfinite(term)) << info.name << " of " << prediction << " for " << target;
      }
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

TEST(Losses, PageOfTheDocumentationIsCurrent) {
  std::ifstream file(SRJIT_SOURCE_DIR "/docs/losses.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const LossInfo& info : allLosses()) {
    const std::string begin = "| `" + std::string(info.name) + "` | `k";
    std::string doc;
    for (const char c : info.doc) doc += c == '|' ? "\\|" : std::string(1, c);
    const std::size_t at = page.find(begin);
    const bool has_row = at != std::string::npos && page.substr(at, page.find('\n', at) - at).ends_with(doc + " |");
    EXPECT_TRUE(has_row) << "docs/losses.md: the table does not have the row of ir/losses.def. Write it there: "
                         << begin << "... | " << doc << " |";
  }
}

}  // namespace
}  // namespace srjit

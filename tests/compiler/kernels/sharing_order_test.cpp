#include "compiler/lowering/code_weights.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "passes/pass.h"
#include "tests/generators/klein_nishina.h"

namespace srjit {
namespace {

using testing::ElementsAre;

std::vector<Expression> expressionsOf(std::initializer_list<const char*> texts) {
  std::vector<Expression> expressions;
  for (const char* text : texts) expressions.push_back(parse(text, Language::kInfix).value());
  return expressions;
}

std::vector<std::uint32_t> ordered(std::span<const Expression> expressions) {
  std::vector<std::uint32_t> all(expressions.size());
  std::iota(all.begin(), all.end(), 0U);
  return orderedBySharing(Population(expressions), all, Precision::kF32, Math::kFast);
}

std::size_t placeOf(std::span<const std::uint32_t> order, std::uint32_t expression) {
  return static_cast<std::size_t>(std::ranges::find(order, expression) - order.begin());
}

TEST(SharingOrder, GroupsExpressionsThatShareSubtrees) {
  const auto expressions = expressionsOf({"exp(x0 * x1) + x2", "log(x3 / x4) - x5", "sin(exp(x0 * x1))",
                                          "log(x3 / x4) * x6", "x7 - exp(x1 * x0)", "sqrt(log(x3 / x4))"});
  const auto order = ordered(expressions);
  std::vector<std::size_t> even, odd;
  for (const std::uint32_t e : {0U, 2U, 4U}) even.push_back(placeOf(order, e));
  for (const std::uint32_t e : {1U, 3U, 5U}) odd.push_back(placeOf(order, e));
  EXPECT_EQ(*std::ranges::max_element(even) - *std::ranges::min_element(even), 2U);
  EXPECT_EQ(*std::ranges::max_element(odd) - *std::ranges::min_element(odd), 2U);
}

// Sorted by hashes of operators' names, so a new row of ops.def must not change the order of expressions without it.
TEST(SharingOrder, DependsOnOperatorNamesNotOnTheirNumbers) {
  EXPECT_THAT(ordered(expressionsOf({"erf(x0) + 1", "sin(x1) * 2", "max(x2, x3) - 3", "exp(x4) / 4", "log(x5) + 5",
                                     "2 * erf(x0)", "3 - sin(x1)", "max(x3, x2) / 5", "exp(x4) - 7", "8 - log(x5)"})),
              ElementsAre(1, 6, 4, 9, 3, 8, 2, 7, 0, 5));
}

TEST(SharingOrder, IsStableForUnrelatedExpressions) {
  EXPECT_THAT(ordered(expressionsOf({"x0 + x1", "x0 * x1", "x1", "exp(x0)", "2"})), ElementsAre(0, 1, 2, 3, 4));
}

TEST(SharingOrder, ParametersOfDifferentExpressionsAreNotShared) {
  EXPECT_THAT(ordered(expressionsOf({"exp(p0 * x0) + 1", "x1 - 2", "exp(p0 * x0) + 2"})), ElementsAre(0, 1, 2));
}

TEST(SharingOrder, OrdersOnlyTheChosenExpressions) {
  const auto expressions = expressionsOf({"exp(x0 * x1)", "x2 / x3", "sin(x4)", "exp(x0 * x1) - 1"});
  const std::vector<std::uint32_t> chosen = {0, 2, 3};
  auto order = orderedBySharing(Population(expressions), chosen, Precision::kF32, Math::kFast);
  EXPECT_EQ(std::max(placeOf(order, 0), placeOf(order, 3)) - std::min(placeOf(order, 0), placeOf(order, 3)), 1U);
  std::ranges::sort(order);
  EXPECT_EQ(order, chosen);
}

TEST(SharingOrder, SavesNodesOfMutatedCopies) {
  const Generations population(400);
  const auto& expressions = population.current();
  const auto nodesOf = [&](std::span<const std::uint32_t> order) {
    std::size_t nodes = 0;
    for (std::size_t first = 0; first < order.size(); first += 16) {
      std::vector<Expression> batch;
      for (std::size_t i = first; i < first + 16; ++i) batch.push_back(expressions[order[i]]);
      nodes += Pipeline::standard(Math::kFast)
                   .run(Dag::fromExpressions(batch, Precision::kF32), {.math = Math::kFast})
                   .size();
    }
    return nodes;
  };
  std::vector<std::uint32_t> given(expressions.size());
  std::iota(given.begin(), given.end(), 0U);
  const auto order = ordered(expressions);
  EXPECT_TRUE(std::ranges::is_permutation(order, given));
  EXPECT_LT(static_cast<double>(nodesOf(order)), 0.95 * static_cast<double>(nodesOf(given)));
}

}  // namespace
}  // namespace srjit

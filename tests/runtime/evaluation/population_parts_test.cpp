// Division of a population, and the order of the steps of its parts.
#include "runtime/evaluation/ranges.h"

#include <string>

#include <gtest/gtest.h>

namespace srjit {
namespace {

/// Expressions of so many tokens each; a token says where it is.
struct Arrays {
  std::vector<std::int32_t> codes;
  std::vector<std::int64_t> offsets{0};

  explicit Arrays(const std::vector<int>& sizes) {
    for (const int size : sizes) {
      for (int t = 0; t < size; ++t) codes.push_back(variableCode(static_cast<std::uint32_t>(codes.size())));
      offsets.push_back(static_cast<std::int64_t>(codes.size()));
    }
  }
  PopulationView view() const { return {codes, {}, offsets}; }
};

/// The numbers of tokens of the parts, after a check that these are the whole, in order.
std::vector<std::int64_t> tokensOfParts(const Arrays& arrays, std::size_t count) {
  std::vector<std::int64_t> tokens, offsets{0};
  for (const PopulationView& part : divide(arrays.view(), count)) {
    EXPECT_GT(part.size() + (arrays.offsets.size() == 1 ? 1 : 0), 0U);
    EXPECT_EQ(part.offsets.front(), offsets.back());
    EXPECT_EQ(part.codes.data(), arrays.codes.data());
    tokens.push_back(part.offsets.back() - part.offsets.front());
    offsets.insert(offsets.end(), part.offsets.begin() + 1, part.offsets.end());
  }
  EXPECT_EQ(offsets, arrays.offsets);
  return tokens;
}

TEST(Divide, PartsHaveAboutAsManyTokens) {
  const std::vector<int> sizes(100, 7);
  EXPECT_EQ(tokensOfParts(Arrays(sizes), 1), (std::vector<std::int64_t>{700}));
  EXPECT_EQ(tokensOfParts(Arrays(sizes), 4), (std::vector<std::int64_t>{175, 175, 175, 175}));
  EXPECT_EQ(tokensOfParts(Arrays(sizes), 3), (std::vector<std::int64_t>{238, 231, 231}));
  EXPECT_EQ(tokensOfParts(Arrays({1, 1, 1, 97, 1, 1}), 2), (std::vector<std::int64_t>{100, 2}));
  EXPECT_EQ(tokensOfParts(Arrays({500, 1, 1}), 8), (std::vector<std::int64_t>{500, 2}));
}

TEST(Divide, FewExpressionsAreFewParts) {
  EXPECT_EQ(tokensOfParts(Arrays({3, 3}), 8), (std::vector<std::int64_t>{3, 3}));
  EXPECT_EQ(tokensOfParts(Arrays({1}), 8), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(tokensOfParts(Arrays({0, 0, 0}), 8), (std::vector<std::int64_t>{0})) << "not valid, but not refused here";
  EXPECT_EQ(divide(PopulationView{}, 8).size(), 1U);
  EXPECT_EQ(divide(PopulationView{}, 8)[0].size(), 0U);
}

}  // namespace
}  // namespace srjit

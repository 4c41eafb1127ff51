// Which groups of rows are drawn.
#include "ir/numbers/loss_sums.h"
#include "runtime/evaluation/dataset_state.h"

#include <cmath>
#include <map>
#include <set>

#include <gmock/gmock.h>

namespace srjit {
namespace {

std::vector<std::size_t> groupsOf(const std::vector<RowRun>& runs) {
  std::vector<std::size_t> groups;
  for (const RowRun& run : runs) {
    EXPECT_EQ(run.first % kGroupRows, 0U);
    for (std::size_t row = 0; row < run.count; row += kGroupRows) groups.push_back((run.first + row) / kGroupRows);
  }
  return groups;
}

std::vector<std::size_t> drawn(std::size_t all, std::size_t groups, std::uint64_t seed) {
  return groupsOf(sampleGroups(all * kGroupRows, groups, seed));
}

// These lists never change: a search with a seed is the same in every version.
TEST(SampleGroups, AreThoseOfTheSeed) {
  EXPECT_THAT(drawn(100, 10, 1), testing::ElementsAre(28, 41, 42, 51, 68, 73, 79, 85, 90, 97));
  EXPECT_THAT(drawn(7, 3, 0), testing::ElementsAre(0, 2, 4));
  EXPECT_THAT(drawn(100'000, 4, ~std::uint64_t{0}), testing::ElementsAre(21947, 42623, 89391, 91257));
}

TEST(SampleGroups, AreDifferentAndAscending) {
  for (const std::size_t all : {1U, 2U, 9U, 64U, 200U}) {
    for (std::size_t groups = 1; groups <= all; groups += 1 + all / 20) {
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        const std::vector<std::size_t> chosen = drawn(all, groups, seed);
        ASSERT_EQ(chosen.size(), groups);
        for (std::size_t i = 1; i < groups; ++i) ASSERT_LT(chosen[i - 1], chosen[i]);
        ASSERT_LT(chosen.back(), all);
      }
    }
  }
}

TEST(SampleGroups, DifferFromSeedToSeed) {
  std::set<std::vector<std::size_t>> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) seen.insert(drawn(1000, 20, seed));
  EXPECT_EQ(seen.size(), 100U);
}

// The seeds are fixed, so this has one outcome. The bound is 5 standard deviations of a binomial distribution.
TEST(SampleGroups, HaveEqualProbabilities) {
  constexpr std::size_t kAllGroups = 23, kSeeds = 20'000;
  for (const std::size_t groups : {1U, 5U, 22U}) {
    std::vector<double> counts(kAllGroups);
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      for (const std::size_t group : drawn(kAllGroups, groups, seed)) ++counts[group];
    }
    const double p = static_cast<double>(groups) / kAllGroups;
    for (std::size_t g = 0; g < kAllGroups; ++g) {
      EXPECT_NEAR(counts[g], p * kSeeds, 5 * std::sqrt(kSeeds * p * (1 - p))) << "group " << g << " of " << groups;
    }
  }
}

// Also of sets: of 4 groups there are 6 pairs.
TEST(SampleGroups, HaveEqualProbabilitiesAsSets) {
  constexpr double kSeeds = 12'000;
  std::map<std::vector<std::size_t>, double> counts;
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(kSeeds); ++seed) ++counts[drawn(4, 2, seed)];
  ASSERT_EQ(counts.size(), 6U);
  for (const auto& [pair, count] : counts) EXPECT_NEAR(count, kSeeds / 6, 5 * std::sqrt(kSeeds * 5 / 36));
}

TEST(SampleGroups, AdjacentOnesAreOneRun) {
  EXPECT_THAT(sampleGroups(1000, 8, 3), testing::ElementsAre(RowRun{0, 1000}));
  EXPECT_THAT(sampleGroups(5, 1, 3), testing::ElementsAre(RowRun{0, 5}));
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<RowRun> runs = sampleGroups(1000, 4, seed);
    std::size_t rows = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      rows += runs[i].count;
      if (i > 0) {
        EXPECT_GT(runs[i].first, runs[i - 1].first + runs[i - 1].count);
      }
    }
    const bool has_last = runs.back().first + runs.back().count == 1000;
    EXPECT_EQ(rows, has_last ? 3 * kGroupRows + 1000 % kGroupRows : 4 * kGroupRows);
  }
}

}  // namespace
}  // namespace srjit

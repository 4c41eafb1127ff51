// What a search promises about time: it ends inside of a generation, and that changes nothing of what it has found.
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/tools/search/small_runs.h"
#include "tools/search/resume/checkpoint.h"

namespace srjit::search {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Clock = Timekeeper::Clock;

// Of a busy machine that runs sanitizers. Each of these searches would take minutes for a generation.
constexpr double kSoon = 20;

double secondsSince(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

/// A search whose first generation takes minutes.
SearchOptions longGenerations() {
  SearchOptions options = smallOptions();
  options.generations = 0;
  options.islands = 64;
  options.island = {.population = 400, .offspring = 4000};
  options.rows = 50'000;
  return options;
}

void expectLinearFront(const SearchResult& result) {
  EXPECT_EQ(result.state.generations, 0U);
  ASSERT_GT(result.state.front.size(), 1U);
  EXPECT_LT(result.state.front.best()->loss, 0.9 * result.state.front.formulas().front().loss);
}

TEST(SearchTime, EndsWithinTheFirstGenerationWithLinearFormulas) {
  const RowSet rows = rowsOf(3, 50'000, [](const auto& row) { return hardLaw(row) + 2 * row[2]; });
  SearchOptions options = longGenerations();
  options.seconds = 0.5;
  const Clock::time_point begun = Clock::now();
  const SearchResult result = search(rows.view(), options).value();
  EXPECT_LT(secondsSince(begun), kSoon);
  EXPECT_EQ(result.end, SearchEnd::kTime);
  EXPECT_THAT(result.notices, Contains(HasSubstr("ended within its first generation")));
  expectLinearFront(result);
}

TEST(SearchTime, EndsSoonAfterItIsStopped) {
  const RowSet rows = rowsOf(3, 50'000, [](const auto& row) { return hardLaw(row) + 2 * row[2]; });
  SearchOptions options = longGenerations();
  const Clock::time_point begun = Clock::now();
  std::optional<Clock::time_point> stopped;
  options.stop = [&] {
    if (secondsSince(begun) < 1) return false;
    if (!stopped) stopped = Clock::now();
    return true;
  };
  const SearchResult result = search(rows.view(), options).value();
  EXPECT_LT(secondsSince(stopped.value()), kSoon);
  EXPECT_EQ(result.end, SearchEnd::kStopped);
  expectLinearFront(result);
}

// Breeding, not evaluation, takes the time.
TEST(SearchTime, EndsWhileIslandsBreed) {
  const RowSet rows = rowsOf(2, 20, hardLaw);
  SearchOptions options = longGenerations();
  options.island.offspring = 400'000;
  options.rows = 20;
  options.seconds = 0.3;
  const Clock::time_point begun = Clock::now();
  EXPECT_EQ(search(rows.view(), options)->end, SearchEnd::kTime);
  EXPECT_LT(secondsSince(begun), kSoon);
}

TEST(SearchTime, LinearFormulasAreThereForOtherLossesToo) {
  const RowSet rows = rowsOf(3, 50'000, [](const auto& row) { return hardLaw(row) + 2 * row[2]; });
  SearchOptions options = longGenerations();
  options.seconds = 0.5;
  options.loss = {.kind = LossKind::kMae};
  expectLinearFront(search(rows.view(), options).value());
}

TEST(SearchTime, TimeThatPassedBeforeCounts) {
  const RowSet rows = rowsOf(2, 200, hardLaw);
  SearchOptions options = smallOptions();
  options.generations = 0;
  options.begun = Clock::now() - std::chrono::seconds(100);
  options.seconds = 100;
  const Clock::time_point begun = Clock::now();
  const SearchResult result = search(rows.view(), options).value();
  EXPECT_LT(secondsSince(begun), kSoon);
  EXPECT_EQ(result.end, SearchEnd::kTime);
  EXPECT_GT(result.state.seconds, 100);
  EXPECT_FALSE(result.state.front.empty());
}

/// The state without its time.
std::string textOf(SearchState state) {
  state.seconds = 0;
  return checkpointText(state);
}

// Each search is stopped at another place of its fourth generation, or of the one after it.
TEST(SearchTime, AGenerationThatIsCutOffIsDropped) {
  const RowSet rows = rowsOf(2, 2000, hardLaw);
  SearchOptions options = smallOptions();
  options.rows = 2000;
  std::vector<std::string> complete;
  options.generations = 9;
  options.checkpoint = [&](const SearchState& state, bool) { complete.push_back(textOf(state)); };
  const std::string whole = recordOf(search(rows.view(), options).value());
  ASSERT_EQ(complete.size(), 9U);
  for (const int milliseconds : {1, 30, 60, 100, 150}) {
    std::optional<Clock::time_point> third;
    options.generations = 0;
    options.progress = [&](const SearchState& state) {
      if (state.generations == 3) third = Clock::now();
    };
    options.stop = [&] { return third && Clock::now() >= *third + std::chrono::milliseconds(milliseconds); };
    std::optional<SearchState> last;
    options.checkpoint = [&](const SearchState& state, bool is_last) {
      if (is_last) last = state;
    };
    ASSERT_EQ(search(rows.view(), options)->end, SearchEnd::kStopped);
    ASSERT_TRUE(last && last->generations >= 3);
    if (last->generations > 9) continue;
    EXPECT_EQ(textOf(*last), complete[last->generations - 1]) << milliseconds;
    if (last->generations == 9) continue;
    options.generations = 9;
    options.progress = {};
    options.stop = {};
    EXPECT_EQ(recordOf(search(rows.view(), options, *last).value()), whole) << milliseconds;
  }
}

}  // namespace
}  // namespace srjit::search

#include "tools/search/evolution.h"
#include "tools/search/trees/identity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "ir/reference.h"
#include "ir/text.h"
#include "tests/tools/search/small_runs.h"
#include "tools/search/resume/checkpoint.h"

namespace srjit::search {
namespace {

using testing::HasSubstr;

double kepler(const std::vector<double>& row) { return row[0] * std::sqrt(row[0]); }
double gravity(const std::vector<double>& row) { return 6.5 * row[0] * row[1] / (row[2] * row[2]); }

TEST(Search, FindsLawsExactly) {
  struct Case {
    std::size_t columns;
    double (*law)(const std::vector<double>&);
  };
  for (const Case& one : {Case{1, kepler}, Case{3, gravity}}) {
    const RowSet rows = rowsOf(one.columns, 500, one.law);
    const SearchResult result = search(rows.view(), smallOptions()).value();
    EXPECT_EQ(result.end, SearchEnd::kEnough);
    const Formula& best = *result.state.front.chosen();
    EXPECT_LT(best.loss, 1e-20);
    // On a row that it has not seen.
    const std::vector<double> fresh = {4.5, 7.25, 5.5};
    EXPECT_NEAR(evaluateReference(best.expression, fresh, {}) / one.law(fresh), 1, 1e-9)
        << print(best.expression, Language::kInfix);
  }
}

TEST(Search, GivesTheSameOnEveryNumberOfThreads) {
  const RowSet rows = rowsOf(2, 300, [](const auto& row) { return std::sin(row[0] * row[1]) + row[0] / (1 + row[1]); });
  SearchOptions options = smallOptions();
  // Long enough for trees that migrate, and for islands that begin anew.
  options.generations = 40;
  options.island = {.population = 40, .offspring = 60, .patience = 5};
  options.engine.threads = 1;
  const std::string alone = recordOf(search(rows.view(), options).value());
  options.engine.threads = 3;
  EXPECT_EQ(recordOf(search(rows.view(), options).value()), alone);
  options.seed = 2;
  EXPECT_NE(recordOf(search(rows.view(), options).value()), alone);
}

TEST(Search, GoesOnFromACheckpointAsIfItHadNotEnded) {
  const RowSet rows = rowsOf(2, 300, [](const auto& row) { return std::sin(row[0] * row[1]) + row[0] / (1 + row[1]); });
  SearchOptions options = smallOptions();
  options.generations = 20;
  const std::string whole = recordOf(search(rows.view(), options).value());
  std::string text;
  options.generations = 7;
  options.checkpoint = [&](const SearchState& state, bool is_last) {
    if (is_last) text = checkpointText(state);
    for (const Island& island : state.islands) {
      for (std::size_t i = 0; i < island.population.size(); ++i) {
        const Identity identity = identityOf(island.population.trees[i]);
        const Traits& traits = island.population.traits[i];
        ASSERT_TRUE(traits.shape == identity.shape && traits.whole == identity.whole) << "of a tree that was fitted";
      }
    }
  };
  ASSERT_EQ(search(rows.view(), options)->state.generations, 7u);
  options.checkpoint = {};
  options.generations = 20;
  const SearchState state = readCheckpoint(text).value();
  EXPECT_EQ(checkpointText(state), text);
  EXPECT_EQ(recordOf(search(rows.view(), options, state).value()), whole);
}

TEST(Search, RefusesCheckpointsOfOtherSearchesAndDamagedOnes) {
  const RowSet rows = rowsOf(1, 50, kepler);
  SearchOptions options = smallOptions();
  options.generations = 1;
  options.enough = 0;
  SearchState state = search(rows.view(), options)->state;
  options.seed = 5;
  EXPECT_THAT(search(rows.view(), options, state).error().message, HasSubstr("other data or options"));
  const auto damaged = [&](const auto& change) {
    SearchState other = state;
    change(other);
    options.seed = smallOptions().seed;
    const Result<SearchResult> result = search(rows.view(), options, other);
    return result ? std::string("no error") : result.error().message;
  };
  options.generations = 2;
  ASSERT_EQ(damaged([](SearchState&) {}), "no error");
  const auto isDamaged = HasSubstr("damaged");
  EXPECT_THAT(damaged([](SearchState& other) { other.islands[1].frame = 99; }), isDamaged);
  EXPECT_THAT(damaged([](SearchState& other) { other.islands[1].number = 0; }), isDamaged);
  EXPECT_THAT(damaged([](SearchState& other) { other.islands.clear(); }), isDamaged);
  EXPECT_THAT(damaged([](SearchState& other) { other.islands[0].improved = 1000; }), isDamaged);
  EXPECT_THAT(damaged([](SearchState& other) { other.archives.pop_back(); }), isDamaged);
  EXPECT_THAT(damaged([](SearchState& other) { std::ranges::reverse(other.archives[0]); }), isDamaged);
  EXPECT_THAT(damaged([](SearchState& other) { std::ranges::reverse(other.islands[0].population.traits); }), isDamaged);
  EXPECT_THAT(damaged([](SearchState& other) {
                Individuals& population = other.islands[0].population;
                population.clear();
                population.add(TreeView{std::vector{variableCode(7)}, std::vector<double>{0}}, {.complexity = 1});
              }),
              isDamaged);
  EXPECT_THAT(damaged([](SearchState& other) { other.islands[0].population.traits[0].complexity = 29; }), isDamaged);
  EXPECT_THAT(damaged([](SearchState& other) { other.islands[0].population.traits.pop_back(); }), isDamaged);
}

TEST(Search, SaysWhatIsWrongWithTheTextOfACheckpoint) {
  const RowSet rows = rowsOf(1, 50, kepler);
  SearchOptions options = smallOptions();
  options.generations = 1;
  const SearchState state = search(rows.view(), options)->state;
  const std::string text = checkpointText(state);
  EXPECT_THAT(readCheckpoint(text.substr(0, text.size() / 2)).error().message, HasSubstr("no checkpoint of a search"));
  EXPECT_EQ(readCheckpoint("{}").error().message, "this is no checkpoint of a search: 'format' is missing");
  const auto messageWith = [&](const std::string& part, const std::string& other) {
    const std::size_t place = text.find(part);
    EXPECT_NE(place, std::string::npos) << part;
    const Result<SearchState> read =
        readCheckpoint(text.substr(0, place) + other + text.substr(std::min(place + part.size(), text.size())));
    return read ? "no error" : read.error().message;
  };
  const std::string start = "this is no checkpoint of a search: ", count = fmt::format("\"rows\":{}", state.rows);
  EXPECT_EQ(messageWith(count, "\"rows\":-1"), start + "'rows' is '-1', expected a count");
  EXPECT_EQ(messageWith(count, "\"rows\":\"all\""), start + "'rows' is '\"all\"', expected a count");
  EXPECT_EQ(messageWith("\"islands\":[", "\"islands\":7,\"old\":["), start + "'islands' is '7', expected a list");
  EXPECT_EQ(messageWith("\"polished\":", "\"polish\":"), start + "'polished' is missing");
  const std::string format = text.substr(text.find("sr-jit search "), std::string("sr-jit search 3").size());
  EXPECT_EQ(messageWith(format, "sr-jit search 0"),
            start + "its format is 'sr-jit search 0', expected '" + format + "'");
  EXPECT_EQ(messageWith(count, "\"rows\":1e999"),
            start + "a number is out of the range of a double, 4.9e-324 to 1.8e308");
  EXPECT_EQ(messageWith(count, "\"rows\":[50"), start + "malformed JSON: expected ']' before ':'");
  const Error cut = readCheckpoint("{\n \"format\"").error();
  EXPECT_EQ(cut.message, start + "malformed JSON: expected ':' before the end of the text");
  EXPECT_EQ(cut.where->line, 2u);
  EXPECT_EQ(cut.where->column, 10u);
  const std::size_t tree = text.find("\"tree\":\"") + 8;
  EXPECT_THAT(readCheckpoint(text.substr(0, tree) + "+ " + text.substr(tree)).error().message,
              HasSubstr("no checkpoint of a search"));
}

TEST(Search, KeepsTheFrontWhereItIsStopped) {
  const RowSet rows = rowsOf(2, 200, [](const auto& row) { return std::cos(row[0]) / row[1] + std::exp(row[1] / 7); });
  SearchOptions options = smallOptions();
  int generations = 0;
  options.progress = [&](const SearchState& progress) {
    ++generations;
    EXPECT_EQ(progress.generations, static_cast<std::uint64_t>(generations));
    EXPECT_GT(progress.candidates, 0u);
    EXPECT_FALSE(progress.front.empty());
  };
  options.stop = [&] { return generations == 3; };
  const SearchResult result = search(rows.view(), options).value();
  EXPECT_EQ(result.end, SearchEnd::kStopped);
  EXPECT_EQ(generations, 3);
  // A busy machine has no time for the formulas of all trees, and says so.
  EXPECT_GT(result.state.front.size(), result.notices.empty() ? 1u : 0u);
}

TEST(Search, JudgesByRowsThatWereHeldOut) {
  const RowSet rows = rowsOf(2, 200, [](const auto& row) { return 3 * row[0] + row[1]; }, 0.3);
  SearchOptions options = smallOptions();
  options.generations = 10;
  options.held_out = 0.25;
  const SearchResult result = search(rows.view(), options).value();
  for (const Formula& formula : result.state.front.formulas()) EXPECT_TRUE(std::isfinite(formula.held_out));
  options.held_out = 0;
  const Front whole = search(rows.view(), options)->state.front;
  for (const Formula& formula : whole.formulas()) EXPECT_TRUE(std::isnan(formula.held_out));
}

TEST(Search, RoundsConstantsToWhatTheNoiseLeavesOfThem) {
  const RowSet rows = rowsOf(1, 2000, [](const auto& row) { return 2.5 * row[0] * row[0]; }, 0.05);
  SearchOptions options = smallOptions();
  options.generations = 10;
  options.grammar.operators = {{Op::kMul}, {Op::kAdd}};
  const SearchResult result = search(rows.view(), options).value();
  EXPECT_EQ(print(result.state.front.chosen()->expression, Language::kInfix), "2.5 * square(x0)");
}

TEST(Search, MinimisesRobustAndCustomLosses) {
  RowSet rows = rowsOf(1, 300, [](const auto& row) { return 2 * row[0]; });
  for (std::size_t r = 0; r < rows.target.size(); r += 10) rows.target[r] += 50;
  SearchOptions options = smallOptions();
  options.generations = 15;
  options.grammar.operators = {{Op::kMul}, {Op::kAdd}};
  options.loss = {.kind = LossKind::kHuber, .tuning = 0.1};
  const Formula robust = *search(rows.view(), options)->state.front.best(3);
  const double at = 2;
  EXPECT_NEAR(evaluateReference(robust.expression, std::span(&at, 1), {}), 4, 0.1);
  options.loss = {.custom = parse("abs(f - y)", Language::kInfix, {"f", "y", "w"}).value()};
  const Formula least = *search(rows.view(), options)->state.front.best(3);
  EXPECT_NEAR(evaluateReference(least.expression, std::span(&at, 1), {}), 4, 0.1);
}

TEST(Search, LargeLossesDoNotEndIslands) {
  const RowSet rows = rowsOf(1, 100, [](const auto& row) { return 1e4 * std::sin(5 * row[0]); });
  SearchOptions options = smallOptions();
  options.generations = 12;
  options.island.patience = 10;
  options.loss = {.kind = LossKind::kMae};
  const SearchResult result = search(rows.view(), options).value();
  // Losses of thousands fall in the first generations, so no island begins anew in the tenth.
  for (const Island& island : result.state.islands) EXPECT_EQ(island.born, 0u);
}

TEST(Search, ALossBelowZeroIsNoEnd) {
  const RowSet rows = rowsOf(1, 200, [](const auto& row) { return 2 * row[0]; });
  SearchOptions options = smallOptions();
  options.generations = 5;
  options.grammar.operators = {{Op::kMul}, {Op::kAdd}};
  options.loss = {.custom = parse("(f - y)^2 - 10", Language::kInfix, {"f", "y", "w"}).value()};
  const SearchResult result = search(rows.view(), options).value();
  EXPECT_EQ(result.end, SearchEnd::kGenerations);
  EXPECT_GT(result.state.front.size(), 1u);
  EXPECT_NEAR(result.state.front.best()->loss, -10, 1e-9);
}

TEST(Search, AFormulaWithoutAValueOnHeldOutRowsIsNotChosen) {
  Front front;
  const auto formula = [](const char* text, double loss, double held_out) {
    const Expression expression = parse(text, Language::kInfix).value();
    return Formula{.expression = expression, .complexity = expression.size(), .loss = loss, .held_out = held_out};
  };
  front.add(formula("x0", 0.5, 0.4));
  front.add(formula("log(x0)", 0.1, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(front.chosen()->loss, 0.5);
  SearchState state;
  state.front = front;
  const Front read = readCheckpoint(checkpointText(state))->front;
  EXPECT_EQ(read.chosen()->loss, 0.5);
  EXPECT_TRUE(std::isinf(read.formulas()[1].held_out));
}

TEST(Search, ACheckpointKeepsWhatTellsALawFromOneThatIsNearlyEqual) {
  SearchState state;
  state.front = Front(1e-18);
  for (const auto& [text, loss] : {std::pair("x0 * x1", 1e-19), std::pair("x0 * x1 + x0", 1e-31)}) {
    const Expression expression = parse(text, Language::kInfix).value();
    state.front.add({.expression = expression, .complexity = expression.size(), .loss = loss, .rounding = 1e-30});
  }
  ASSERT_EQ(state.front.size(), 2u) << "both losses are below the floor, and only one is rounding";
  const std::string text = checkpointText(state);
  Front read = readCheckpoint(text)->front;
  ASSERT_EQ(read.size(), 2u);
  const Expression longer = parse("x0 * x1 + x0 + x1 - x1", Language::kInfix).value();
  read.add({.expression = longer, .complexity = longer.size(), .loss = 1e-32, .rounding = 1e-30});
  EXPECT_EQ(read.size(), 2u) << "as exact, and longer";
}

TEST(Search, UsesWeights) {
  RowSet rows = rowsOf(1, 200, [](const auto& row) { return row[0]; });
  rows.weights.assign(rows.size(), 1);
  for (std::size_t r = 0; r < rows.size(); r += 2) {
    rows.target[r] = 100 - static_cast<double>(r);
    rows.weights[r] = 0;
  }
  SearchOptions options = smallOptions();
  options.generations = 5;
  EXPECT_EQ(print(search(rows.view(), options)->state.front.chosen()->expression, Language::kInfix), "x0");
}

TEST(Search, AConstantTargetIsFoundAtOnce) {
  const RowSet rows = rowsOf(1, 50, [](const auto&) { return 2.5; });
  const SearchResult result = search(rows.view(), smallOptions()).value();
  EXPECT_EQ(result.end, SearchEnd::kEnough);
  EXPECT_EQ(result.state.candidates, 0u);
  ASSERT_EQ(result.state.front.size(), 1u);
  EXPECT_EQ(print(result.state.front.formulas()[0].expression, Language::kInfix), "2.5");
}

TEST(Search, ATargetThatIsConstantWhereItCountsIsFound) {
  RowSet rows = rowsOf(1, 50, [](const auto&) { return 2.5; });
  rows.target[0] = 7;
  rows.weights.assign(rows.size(), 1);
  rows.weights[0] = 0;
  const SearchResult result = search(rows.view(), smallOptions()).value();
  ASSERT_EQ(result.state.front.size(), 1u);
  EXPECT_EQ(print(result.state.front.formulas()[0].expression, Language::kInfix), "2.5");
}

TEST(Search, PowersAreShownAsPowers) {
  const RowSet rows = rowsOf(2, 200, [](const auto& row) { return std::pow(row[0], 1.37) * row[1]; });
  SearchOptions options = smallOptions();
  options.grammar.operators = {{Op::kMul, 1}, {Op::kPow, 1}};
  const SearchResult result = search(rows.view(), options).value();
  EXPECT_EQ(print(result.state.front.chosen()->expression, Language::kInfix), "x1 * x0^1.37");
}

TEST(Search, AResumedSearchAtItsLimitBreedsNothing) {
  const RowSet rows = rowsOf(2, 200, [](const auto& row) { return std::cos(row[0]) / row[1] + std::exp(row[1] / 7); });
  SearchOptions options = smallOptions();
  options.generations = 2;
  const SearchResult first = search(rows.view(), options).value();
  const SearchResult second = search(rows.view(), options, first.state).value();
  EXPECT_EQ(second.state.candidates, first.state.candidates);
  EXPECT_EQ(second.end, SearchEnd::kGenerations);
}

TEST(Search, RefusesWhatMakesNoSense) {
  const RowSet rows = rowsOf(1, 20, kepler);
  const auto message = [&](const auto& change) {
    SearchOptions options = smallOptions();
    change(options);
    const Result<SearchResult> result = search(rows.view(), options);
    return result ? std::string("no error") : result.error().message;
  };
  EXPECT_THAT(message([](SearchOptions& options) { options.islands = 1; }), HasSubstr("at least 2 islands"));
  EXPECT_THAT(message([](SearchOptions& options) { options.held_out = 0.95; }), HasSubstr("held out"));
  EXPECT_THAT(message([](SearchOptions& options) { options.loss.kind = LossKind::kR2; }),
              HasSubstr("cannot minimise r2"));
  EXPECT_THAT(message([](SearchOptions& options) { options.loss.kind = LossKind::kScaledMse; }),
              HasSubstr("cannot minimise scaled-mse"));
  EXPECT_THAT(message([](SearchOptions& options) { options.links = {"cube"}; }), HasSubstr("unknown link"));
  EXPECT_THAT(message([](SearchOptions& options) { options.engine.device = "tpu"; }), HasSubstr("tpu"));
  EXPECT_THAT(message([](SearchOptions& options) {
                options.loss.kind = LossKind::kMae;
                options.links = {"log"};
              }),
              HasSubstr("links are for losses of squared errors"));
  EXPECT_THAT(message([](SearchOptions& options) { options.links = {"identity", "identity"}; }),
              HasSubstr("occurs twice"));
  EXPECT_THAT(message([](SearchOptions& options) { options.fit_share = std::nan(""); }), HasSubstr("from 0 to 1"));
  EXPECT_THAT(message([](SearchOptions& options) { options.island.patience = 0; }), HasSubstr("patience"));
  EXPECT_THAT(message([](SearchOptions& options) { options.seconds = -1; }), HasSubstr("not negative"));
  EXPECT_THAT(message([](SearchOptions& options) {
                options.progress = [](const SearchState&) { throw std::runtime_error("no more"); };
              }),
              HasSubstr("no more"));
  RowSet uneven = rows;
  uneven.columns[0].pop_back();
  EXPECT_THAT(search(uneven.view(), smallOptions()).error().message, HasSubstr("differ in length"));
  RowSet weightless = rows;
  weightless.weights.assign(rows.size(), 0);
  EXPECT_THAT(search(weightless.view(), smallOptions()).error().message, HasSubstr("weight above 0"));
  weightless.weights[3] = -1;
  weightless.weights[4] = 1;
  EXPECT_THAT(search(weightless.view(), smallOptions()).error().message, HasSubstr("weight -1"));
  DataView without = rows.view();
  without.target.reset();
  EXPECT_THAT(search(without, smallOptions()).error().message, HasSubstr("needs a target"));
}

}  // namespace
}  // namespace srjit::search

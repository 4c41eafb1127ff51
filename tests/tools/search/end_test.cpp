// Which data a search refuses, and when it ends because a formula is exact, or because none has a loss.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "ir/reference.h"
#include "tests/tools/search/small_runs.h"
#include "tools/search/link.h"

namespace srjit::search {
namespace {

using testing::AllOf;
using testing::HasSubstr;

double product(const std::vector<double>& row) { return row[0] * row[1]; }

LossOptions customLoss(const char* text) { return {.custom = parse(text, Language::kInfix, {"f", "y", "w"}).value()}; }

TEST(SearchEnds, AtAnExactFormulaWhateverTheLoss) {
  const RowSet rows = rowsOf(2, 300, product);
  const LossOptions losses[] = {{.kind = LossKind::kMae},
                                {.kind = LossKind::kHuber},
                                {.kind = LossKind::kHuber, .tuning = 1e-3},
                                {.kind = LossKind::kQuantile, .tuning = 0.9},
                                {.kind = LossKind::kPoisson},
                                customLoss("abs(f - y)^1.5"),
                                customLoss("log(f/y)^2"),
                                {.kind = LossKind::kMse},
                                {.kind = LossKind::kRmse}};
  for (const LossOptions& loss : losses) {
    SearchOptions options = smallOptions();
    options.generations = 100;
    options.grammar.operators = {{Op::kMul}, {Op::kAdd}};
    options.loss = loss;
    const SearchResult result = search(rows.view(), options).value();
    const std::size_t number = static_cast<std::size_t>(&loss - losses);
    EXPECT_EQ(result.end, SearchEnd::kEnough) << number;
    const std::vector<double> fresh = {4.5, 7.25};
    EXPECT_NEAR(evaluateReference(result.state.front.chosen()->expression, fresh, {}), 32.625, 1e-5) << number;
  }
}

TEST(SearchEnds, AtErrorsThatAreEnough) {
  const RowSet rows = rowsOf(2, 300, product, 1e-4);
  SearchOptions options = smallOptions();
  options.generations = 20;
  options.grammar.operators = {{Op::kMul}, {Op::kAdd}};
  for (const LossKind kind : {LossKind::kMae, LossKind::kNmse}) {
    options.loss.kind = kind;
    // Errors of 6e-5 on average are 1e-9 of the variance.
    options.enough = 1e-12;
    EXPECT_EQ(search(rows.view(), options)->end, SearchEnd::kGenerations);
    options.enough = 1e-7;
    EXPECT_EQ(search(rows.view(), options)->end, SearchEnd::kEnough);
  }
}

TEST(SearchEnds, NotBelowZeroAndNotWhereTheLeastLossIsUnknown) {
  const RowSet rows = rowsOf(2, 300, product);
  SearchOptions options = smallOptions();
  options.generations = 12;
  options.grammar.operators = {{Op::kMul}, {Op::kAdd}};
  for (const char* const loss : {"(f - y)^2 - 10", "(f - y)^2 + 1"}) {
    options.loss = customLoss(loss);
    EXPECT_EQ(search(rows.view(), options)->end, SearchEnd::kGenerations) << loss;
  }
}

TEST(SearchEnds, WithAnErrorIfNoFormulaHasAFiniteLoss) {
  const RowSet rows = rowsOf(2, 300, [](const auto& row) { return std::sin(1e4 * row[0]); });
  SearchOptions options = smallOptions();
  options.generations = 2;
  options.loss = customLoss("log(f/y)^2");
  EXPECT_THAT(search(rows.view(), options).error().message, HasSubstr("no formula has a finite loss on these data"));
}

TEST(SearchData, RowsThatAreNotFiniteAreRefusedAndCounted) {
  RowSet rows = rowsOf(2, 1000, product);
  rows.names = {"mass", "speed"};
  rows.columns[0][17] = std::nan("");
  const auto message = [&] { return search(rows.view(), smallOptions()).error().message; };
  EXPECT_THAT(message(),
              HasSubstr("1 of 1000 rows has a value that is NaN or infinite, the first NaN in row 18, column "
                        "'mass'"));
  rows.columns[1][3] = -std::numeric_limits<double>::infinity();
  rows.columns[1][17] = std::nan("");
  EXPECT_THAT(message(), AllOf(HasSubstr("2 of 1000 rows have"), HasSubstr("-inf in row 4, column 'speed'")));
  rows.target[1] = std::nan("");
  EXPECT_THAT(message(), AllOf(HasSubstr("3 of 1000 rows"), HasSubstr("NaN in row 2, the target")));
}

TEST(SearchData, RowsThatAreNotFiniteCanBeSkipped) {
  RowSet rows = rowsOf(2, 1000, product);
  rows.columns[0][17] = std::nan("");
  SearchOptions options = smallOptions();
  options.loss.nan = NanPolicy::kSkip;
  EXPECT_EQ(search(rows.view(), options)->end, SearchEnd::kEnough);
}

TEST(SearchLinks, TheLogarithmIsForAllPositiveNumbers) {
  const Grammar grammar = Grammar::create({}, 1).value();
  const auto has_log = [&](double least, double most) {
    const std::vector<double> target = {least, most};
    const auto links = linksFor({}, grammar, target, true).value();
    return std::ranges::find(links, std::string_view("log"), &Link::name) != links.end();
  };
  EXPECT_TRUE(has_log(1e3, 1e18));
  EXPECT_TRUE(has_log(1e-30, 1e300));
  EXPECT_FALSE(has_log(0, 1));
  EXPECT_FALSE(has_log(-1, 1));
}

// The sine of small values is nearly the values, so that any law could be found as an arc sine.
TEST(SearchLinks, SinesAreForTargetsThatMove) {
  const Grammar grammar = Grammar::create({.operators = parseOperators("add,mul,asin,acos").value()}, 1).value();
  const auto has = [&](std::string_view name, double least, double most) {
    const auto links = linksFor({}, grammar, std::vector<double>{least, most}, true).value();
    return std::ranges::find(links, name, &Link::name) != links.end();
  };
  EXPECT_TRUE(has("sin", -0.2, 0.3));
  EXPECT_FALSE(has("sin", -0.2, 0.25));
  EXPECT_TRUE(has("cos", 1, 1.5));
  EXPECT_FALSE(has("cos", 1, 1.25));
  const std::vector<std::string> named = {"sin"};
  EXPECT_THAT(linksFor(named, grammar, std::vector<double>{0, 0.25}, true).error().message,
              testing::HasSubstr("moves by less than 0.5"));
}

TEST(SearchEnds, AfterALookForAShorterFormula) {
  const RowSet rows = rowsOf(2, 300, product);
  SearchOptions options = smallOptions();
  options.grammar.operators = {{Op::kMul}, {Op::kAdd}};
  const SearchResult result = search(rows.view(), options).value();
  const SearchState& state = result.state;
  EXPECT_EQ(result.end, SearchEnd::kEnough);
  EXPECT_GT(state.exact_at, 0u);
  EXPECT_EQ(state.generations, state.exact_at + std::min(state.exact_at, kMostLook));
  // One that goes on from there has looked.
  const SearchResult again = search(rows.view(), options, state).value();
  EXPECT_EQ(again.end, SearchEnd::kEnough);
  EXPECT_EQ(again.state.generations, state.generations);
}

double signedSquare(const std::vector<double>& row) { return row[0] * row[0]; }
double cubic(const std::vector<double>& row) { return std::pow(row[0] + 1.5, 3) - 2 * row[0]; }
double inverseCube(const std::vector<double>& row) { return std::pow(row[0], -3) * row[1]; }

// x0^2 has no derivative by its exponent where x0 is negative, so a fit of all constants cannot begin.
TEST(SearchPowers, WholeExponentsOfBothSignsAreFound) {
  struct Case {
    std::vector<OperatorUse> operators;
    double (*law)(const std::vector<double>&);
  };
  for (const Case& one :
       {Case{{{Op::kAdd}, {Op::kPow}}, signedSquare}, Case{{{Op::kAdd}, {Op::kMul}, {Op::kPow}}, cubic},
        Case{{{Op::kMul}, {Op::kPow}}, inverseCube}}) {
    const RowSet rows = rowsOf(2, 300, one.law, 0, -4, 4);
    SearchOptions options = smallOptions();
    options.generations = 100;
    options.grammar.operators = one.operators;
    const SearchResult result = search(rows.view(), options).value();
    EXPECT_EQ(result.end, SearchEnd::kEnough);
    const std::vector<double> fresh = {-3.25, 2.5};
    const Formula& best = *result.state.front.chosen();
    EXPECT_NEAR(evaluateReference(best.expression, fresh, {}), one.law(fresh), 1e-7)
        << print(best.expression, Language::kInfix);
  }
}

}  // namespace
}  // namespace srjit::search

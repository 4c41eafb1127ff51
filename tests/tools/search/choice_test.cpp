// The choice among the formulas of a front: by evidence, and by soundness near the rows.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "ir/numbers/random.h"
#include "ir/reference.h"
#include "ir/text.h"
#include "tests/generators/population.h"
#include "tests/tools/search/small_runs.h"
#include "tools/search/formulas/evidence.h"
#include "tools/search/formulas/neighbourhood.h"
#include "tools/search/formulas/polish.h"

namespace srjit::search {
namespace {

using testing::HasSubstr;

constexpr EvidenceTerms kTerms{.rows = 50, .floor = 1e-22, .variables = 3};

/// A formula whose constants have this many standard errors.
Formula weighedFormula(const char* text, double loss, double errors = 30, const EvidenceTerms& terms = kTerms,
                       const LossOptions& kind = {.kind = LossKind::kNmse}) {
  const Expression expression = infix(text);
  std::vector<WeighedConstant> constants;
  for (const Token& token : expression.tokens()) {
    if (token.kind == Token::Kind::kConstant) {
      constants.push_back({.value = token.value, .error = std::fabs(token.value) / errors});
    }
  }
  Formula formula{.expression = expression, .complexity = expression.size(), .loss = loss};
  weigh(formula, *likelihoodOf(kind), constants, terms);
  return formula;
}

TEST(Evidence, AConstantMustPayForItself) {
  // Of 50 rows: what reduces the squares by a third is worth a term; what reduces them by a fiftieth is not.
  const Formula simple = weighedFormula("1.5 * x0", 0.3);
  EXPECT_GT(weighedFormula("1.5 * x0 + 2.5 * x1", 0.1).evidence, simple.evidence);
  EXPECT_LT(weighedFormula("1.5 * x0 + 2.5 * x1", 0.294).evidence, simple.evidence);
  EXPECT_LT(weighedFormula("1.5 * x0 + 2.5 * x1", 0.294).evidence, weighedFormula("1.5 * x0 + 2 * x1", 0.294).evidence);
  // With more rows, less is enough.
  const EvidenceTerms many{.rows = 5000, .floor = 1e-22, .variables = 3};
  EXPECT_GT(weighedFormula("1.5 * x0 + 2.5 * x1", 0.294, 30, many).evidence,
            weighedFormula("1.5 * x0", 0.3, 30, many).evidence);
}

TEST(Evidence, RareTokensCostMore) {
  const auto evidence = [](const char* text, const EvidenceTerms& terms = kTerms) {
    return weighedFormula(text, 0.1, 30, terms).evidence;
  };
  EXPECT_GT(evidence("x0 * x1"), evidence("x0 + x1"));
  EXPECT_GT(evidence("x0 + x1"), evidence("sin(x0) * x1")) << "a function costs more than an operation";
  EXPECT_GT(evidence("2 * x0"), evidence("2 * x0", {.rows = 50, .floor = 1e-22, .variables = 30})) << "a wider choice";
}

TEST(Evidence, ConstantsCountByTheirPrecision) {
  const auto evidence = [](const char* text, double errors) { return weighedFormula(text, 0.1, errors).evidence; };
  EXPECT_NEAR(evidence("1.2345678 * x0", 100) - evidence("1.2345678 * x0", 10), -std::log(10), 1e-9);
  EXPECT_EQ(evidence("1.2345678 * x0", 0.1), evidence("1.2345678 * x0", 1)) << "a constant that is not known has a bit";
  EXPECT_EQ(evidence("2 * x0", 1e9), evidence("2 * x0", 1e6)) << "one digit is at most one digit";
  EXPECT_LT(evidence("1.2345678901234567 * x0", std::nan("")), evidence("1.5 * x0", std::nan("")));
}

TEST(Evidence, OfFormulasAtRoundingTheShortestIsTheLargest) {
  const Formula law = weighedFormula("0.5 * x0", 3e-32, 1e15),
                longer = weighedFormula("0.5 * x0 + x1 * 1e-20", 0, 1e15);
  const Formula digits = weighedFormula("0.50000000000000011 * x0", 0, 1e15);
  EXPECT_GT(law.evidence, longer.evidence);
  EXPECT_GT(law.evidence, digits.evidence);
  EXPECT_GT(law.evidence, weighedFormula("x0", 1e-9).evidence);
}

TEST(Evidence, AsManyConstantsAsRowsSayNothing) {
  const EvidenceTerms few{.rows = 2, .floor = 1e-22, .variables = 3};
  EXPECT_EQ(weighedFormula("1.5 * x0 + 2.5", 0, 10, few).evidence, -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isfinite(weighedFormula("1.5 * x0", 0.1, 10, few).evidence));
}

TEST(Evidence, LossesOfOneLikelihoodGiveTheSameDifferences) {
  const auto gain = [](LossKind kind, double small, double large) {
    return weighedFormula("1.5 * x0", small, 30, kTerms, {.kind = kind}).evidence -
           weighedFormula("1.5 * x0", large, 30, kTerms, {.kind = kind}).evidence;
  };
  EXPECT_NEAR(gain(LossKind::kNmse, 0.1, 0.2), 25 * std::log(2), 1e-9);
  EXPECT_NEAR(gain(LossKind::kSse, 10, 20), 25 * std::log(2), 1e-9);
  EXPECT_NEAR(gain(LossKind::kRmse, 1, std::sqrt(2)), 25 * std::log(2), 1e-9);
  EXPECT_NEAR(gain(LossKind::kMae, 1, 2), 50 * std::log(2), 1e-9);
  EXPECT_NEAR(gain(LossKind::kLogLoss, 0.5, 0.6), 5, 1e-9);
  EXPECT_FALSE(likelihoodOf({.custom = infix("abs(x0 - x1)")}));
}

/// A front of fitted formulas of different lengths.
Front noisyFront() {
  Front front;
  const char* const texts[] = {"1.5", "1.5 * x0", "1.5 * x0 + 0.1 * x1", "1.5 * x0 + sin(x1 * 17.25) * 0.25"};
  const double losses[] = {1, 0.4, 0.39, 0.37};
  for (std::size_t i = 0; i < std::size(texts); ++i) EXPECT_TRUE(front.add(weighedFormula(texts[i], losses[i])));
  return front;
}

TEST(Choice, IsOneOfFourRules) {
  Front front = noisyFront();
  const auto lossBy = [&](const char* text) {
    front.choose(parseChoice(text).value());
    return front.chosen()->loss;
  };
  EXPECT_EQ(front.chosen()->loss, 0.4) << "evidence by default";
  EXPECT_EQ(lossBy("evidence"), 0.4);
  EXPECT_EQ(lossBy("balance"), 0.37);
  EXPECT_EQ(lossBy("loss"), 0.37);
  EXPECT_EQ(lossBy("1"), 1);
  EXPECT_EQ(lossBy("6"), 0.4);
  EXPECT_EQ(lossBy("1000"), 0.37);
  EXPECT_EQ(front.emptied().chosen(), nullptr);
  Front long_only = front.emptied();
  long_only.choose({Choice::Rule::kComplexity, 2});
  long_only.add(weighedFormula("1.5 * x0", 0.4));
  EXPECT_EQ(long_only.chosen()->loss, 0.4) << "the simplest if none is as simple";
  for (const char* text : {"", "best", "0", "-1", "1.5", "7 ", "99999999999999999999"}) {
    EXPECT_THAT(parseChoice(text).error().message, HasSubstr("evidence, balance, loss or a complexity")) << text;
  }
}

TEST(Choice, HeldOutRowsDecideInPlaceOfEvidence) {
  const Front sample = noisyFront();
  Front front;
  for (Formula formula : sample.formulas()) {
    formula.held_out = formula.loss < 0.39 ? 0.9 : formula.loss + 0.05;
    front.add(std::move(formula));
  }
  EXPECT_EQ(front.chosen()->loss, 0.4);
  front.choose({Choice::Rule::kBalance});
  EXPECT_EQ(front.chosen()->loss, 0.4);
}

/// Rows of 4 x0 - 2 with noise that is nearly normal, of variance 1; x1 and x2 have no part in it.
RowSet noisyLine(std::size_t count, std::uint64_t seed) {
  RowSet rows;
  rows.columns.resize(3);
  Random random(seed);
  for (std::size_t r = 0; r < count; ++r) {
    for (auto& column : rows.columns) column.push_back(random.between(0.0, 3.0));
    double noise = 0;
    for (int i = 0; i < 12; ++i) noise += random.between(-0.5, 0.5);
    rows.target.push_back(4 * rows.columns[0][r] - 2 + noise);
  }
  return rows;
}

// By 5 % of the loss, small tables had sines of large frequencies.
TEST(ChoiceSlow, OfSmallNoisyTablesIsTheLaw) {
  const Expression law = infix("4 * x0 - 2");
  int laws = 0;
  for (const std::size_t count : {std::size_t{32}, std::size_t{47}}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const RowSet rows = noisyLine(count, seed);
      SearchOptions options = smallOptions();
      options.seed = seed;
      SearchResult result = search(rows.view(), options).value();
      const Formula chosen = *result.state.front.chosen();
      laws += chosen.complexity == law.size() ? 1 : 0;
      for (const double x : {0.0, 1.0, 2.0, 3.0}) {
        for (const double other : {0.0, 2.0}) {
          const double row[] = {x, other, 3 - other};
          EXPECT_NEAR(evaluateReference(chosen.expression, row, {}), evaluateReference(law, row, {}), 1.6)
              << count << " rows: " << print(chosen.expression, Language::kInfix);
        }
      }
      result.state.front.choose({Choice::Rule::kBalance});
      EXPECT_GT(result.state.front.chosen()->complexity, chosen.complexity);
    }
  }
  EXPECT_GE(laws, 5) << "of 6; noise may look like a curve";
}

TEST(Choice, AWeightOrARobustLossHasAnEvidence) {
  const RowSet rows = rowsOf(1, 60, [](const auto& row) { return 2 * row[0] + 1; }, 0.5);
  SearchOptions options = smallOptions();
  options.generations = 8;
  for (const LossKind kind : {LossKind::kMse, LossKind::kMae, LossKind::kHuber}) {
    options.loss = {.kind = kind};
    const SearchResult result = search(rows.view(), options).value();
    for (const Formula& formula : result.state.front.formulas()) {
      EXPECT_TRUE(std::isfinite(formula.evidence) && std::isfinite(formula.bic));
      EXPECT_LT(formula.r2, 1);
    }
    EXPECT_LE(result.state.front.chosen()->complexity, 5u);
  }
  options.loss = {.custom = parse("abs(f - y)", Language::kInfix, {"f", "y", "w"}).value()};
  const SearchResult custom = search(rows.view(), options).value();
  EXPECT_TRUE(std::isnan(custom.state.front.chosen()->evidence));
  EXPECT_GT(custom.state.front.chosen()->r2, 0.5);
}

// The rows that were held out judge formulas whose constants are then fitted to all rows.
TEST(Choice, ConstantsAreFittedToAllRowsAtLast) {
  const RowSet rows = rowsOf(1, 200, [](const auto& row) { return 2 * row[0]; }, 0.5);
  SearchOptions options = smallOptions();
  options.generations = 5;
  options.held_out = 0.5;
  options.grammar.operators = parseOperators("add,mul").value();
  const SearchResult result = search(rows.view(), options).value();
  const Formula& mean = result.state.front.formulas().front();
  ASSERT_EQ(mean.complexity, 1u);
  double loss = 0, squares = 0;
  const double value = mean.expression.tokens()[0].value;
  for (const double y : rows.target) {
    loss += (y - value) * (y - value);
    squares += (y - rows.targetMean()) * (y - rows.targetMean());
  }
  EXPECT_NEAR(mean.loss, loss / squares, 1e-12) << "over all rows";
  EXPECT_LT(mean.loss, 1.01);
  EXPECT_GT(std::fabs(mean.held_out - mean.loss), 1e-6);
  bool is_told = false;
  for (const std::string& notice : result.notices) {
    is_told = is_told || notice.find("all 200 rows") != std::string::npos;
  }
  EXPECT_TRUE(is_told);
}

/// Rows of b from 1 to 3 and a from 1 to 3; with `apart`, c is below b by 1 at least, else it is from 1 to 3 too.
RowSet rowsOfDifference(std::size_t count, bool apart) {
  RowSet rows;
  rows.columns.resize(3);
  Random random(5);
  for (std::size_t r = 0; r < count; ++r) {
    const double a = random.between(1.0, 3.0), b = random.between(1.0, 3.0);
    const double c = apart ? b - random.between(1.0, 2.5) : random.between(1.0, 3.0);
    rows.columns[0].push_back(a);
    rows.columns[1].push_back(b);
    rows.columns[2].push_back(c);
    rows.target.push_back(a + b);
  }
  return rows;
}

TEST(Neighbourhood, FindsPolesAndUndefinedValues) {
  const RowSet rows = rowsOfDifference(200, false);
  const Neighbourhood near(rows.view());
  for (const char* sound : {"x0", "x0 + x1 * x2", "1 / x0", "1 / (x0 + x1)", "1 / x0^2", "log(x1)", "sqrt(x0)",
                            "x0 / (x1^2 - 3 * x1 + 4)", "x0 / (1 + (x1 - x2)^2)", "sin(x1 - x2) / (x1 - x2)",
                            "x0 / (x1 - 4)", "exp(x0) / 3", "2.5", "log((x0 - 2)^2 + 0.01)"}) {
    EXPECT_TRUE(near.isSound(infix(sound))) << sound;
  }
  for (const char* unsound : {"1 / (x0 - 2)", "x0 + 0.01 / (x1 - 2.3456)", "x0 / (x1 - x2)", "log(x0 - 1.5)",
                              "sqrt(x0 - x1)", "x0 + 1e-3 / (x1 - x2)^2", "asin(x0 / 2)", "tan(x0)",
                              "exp(exp(exp(x0)))", "(x0 - 2) ^ 1.5", "1 / sin(x1 * 2)"}) {
    EXPECT_FALSE(near.isSound(infix(unsound))) << unsound;
  }
}

TEST(Neighbourhood, ThereIsNoneWhereNoRowsAre) {
  const RowSet rows = rowsOfDifference(400, true);
  const Neighbourhood near(rows.view());
  EXPECT_TRUE(near.isSound(infix("x0 / (x1 - x2)")));
  EXPECT_TRUE(near.isSound(infix("sqrt(x1 - x2)")));
  EXPECT_FALSE(near.isSound(infix("x0 / (x1 - x2 - 1.7)")));
}

TEST(Neighbourhood, AColumnKeepsItsSign) {
  RowSet rows;
  rows.columns.resize(2);
  for (int r = 0; r < 50; ++r) {
    rows.columns[0].push_back(0.01 + r);
    rows.columns[1].push_back(-r);
    rows.target.push_back(1 / (0.01 + r));
  }
  const Neighbourhood near(rows.view());
  EXPECT_TRUE(near.isSound(infix("1 / x0")));
  EXPECT_TRUE(near.isSound(infix("sqrt(neg(x1)) + log(x0)")));
  EXPECT_FALSE(near.isSound(infix("100 / x1")));
}

TEST(Neighbourhood, NoFormulaOfASmallTableHasAPole) {
  const RowSet rows = noisyLine(35, 2);
  const DataView view = rows.view();
  const Neighbourhood near(view);
  SearchOptions options = smallOptions();
  options.grammar.operators = parseOperators("add,sub,mul,div").value();
  const SearchResult result = search(view, options).value();
  EXPECT_GT(result.state.front.size(), 3u);
  for (const Formula& formula : result.state.front.formulas()) {
    EXPECT_TRUE(near.isSound(formula.expression)) << print(formula.expression, Language::kInfix);
  }
}

// The pole of a law that its rows lie on both sides of is no fault of the formula.
TEST(Neighbourhood, ALawMayHaveAPole) {
  RowSet rows = rowsOfDifference(300, false);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows.target[r] = rows.columns[0][r] / (rows.columns[1][r] - rows.columns[2][r]);
  }
  SearchOptions options = smallOptions();
  options.grammar.operators = parseOperators("sub,div,mul").value();
  const SearchResult exact = search(rows.view(), options).value();
  EXPECT_LT(exact.state.front.chosen()->loss, 1e-20);
  Random random(3);
  for (double& y : rows.target) y *= 1 + 0.01 * random.between(-1.0, 1.0);
  options.generations = 10;
  const SearchResult noisy = search(rows.view(), options).value();
  EXPECT_LT(noisy.state.front.chosen()->loss, 1e-3);
}

}  // namespace
}  // namespace srjit::search

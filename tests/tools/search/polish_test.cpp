// Formulas as they are printed: their constants, and their losses.
#include "tools/search/formulas/polish.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "ir/numbers/random.h"
#include "ir/reference.h"
#include "ir/text.h"
#include "passes/simplify_expression.h"
#include "tools/search/evolution.h"
#include "tools/search/screen.h"

namespace srjit::search {
namespace {

Expression infix(std::string_view text) { return parse(text, Language::kInfix).value(); }

/// `count` rows of the formula over two columns that are uniform from 1 to 3.
RowSet rowsOfLaw(const Expression& formula, std::size_t count = 100) {
  RowSet rows;
  rows.columns.resize(2);
  Random random(5);
  for (std::size_t r = 0; r < count; ++r) {
    const double row[] = {random.between(1.0, 3.0), random.between(1.0, 3.0)};
    for (std::size_t c = 0; c < 2; ++c) rows.columns[c].push_back(row[c]);
    rows.target.push_back(evaluateReference(formula, row, {}));
  }
  return rows;
}

/// The share of the target's variance that a formula leaves, computed as it is written.
double lossOf(const Expression& formula, const RowSet& rows) {
  const double mean = rows.targetMean();
  double sum = 0, squares = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    squares += (rows.target[r] - mean) * (rows.target[r] - mean);
    std::vector<double> row;
    for (const std::vector<double>& column : rows.columns) row.push_back(column[r]);
    const double error = evaluateReference(formula, row, {}) - rows.target[r];
    sum += error * error;
  }
  return sum / squares;
}

/// Makes formulas of `rows` and judges them.
class Judge {
 public:
  explicit Judge(const RowSet& rows) : view_(rows.view()) {
    EngineOptions options;
    options.device = "cpu";
    options.tier = Tier::kInterpret;
    options.precision = Precision::kF64;
    options.math = Math::kStrict;
    options.threads = 1;
    engine_ = Engine::create(options).value();
    const PolishedData data{.searched = view_, .fitted = rows};
    const PolishRules rules{.grammar = grammar_, .loss = {.kind = LossKind::kNmse}};
    polisher_.emplace(Polisher::create(*engine_, data, {}, rules));
  }
  /// The front of one formula, whose constants are first fitted.
  Formula rounded(const Expression& formula) const {
    Front front(1e-22);
    front.add({.expression = formula, .complexity = formula.size(), .loss = 1});
    return *polisher_->round(front).best();
  }
  bool isTypical(const char* formula) const { return polisher_->isTypical({.expression = infix(formula)}, 1e-18); }

 private:
  Grammar grammar_ =
      Grammar::create({.operators = parseOperators("add,sub,mul,div,sqrt,exp,log,sin,pow").value()}, 2).value();
  DataView view_;
  std::optional<Engine> engine_;
  std::optional<Polisher> polisher_;
};

std::size_t lengthOfConstants(const Expression& formula) {
  std::size_t length = 0;
  for (const Token& token : formula.tokens()) {
    if (token.kind == Token::Kind::kConstant) length += fmt::format("{}", std::fabs(token.value)).size();
  }
  return length;
}

TEST(Polish, ExactAtTheLargestTargetsOnlyIsNotTypical) {
  RowSet rows;
  rows.columns.resize(2);
  for (int r = 1; r <= 50; ++r) rows.columns[0].push_back(r);
  rows.columns[0].push_back(1e40);
  rows.columns[1] = rows.target = rows.columns[0];
  const Judge judge(rows);
  EXPECT_LT(lossOf(infix("x0 + 1"), rows), 1e-60);
  EXPECT_FALSE(judge.isTypical("x0 + 1"));
  EXPECT_TRUE(judge.isTypical("x0"));
  EXPECT_TRUE(judge.isTypical("x0 * 1.0000001")) << "within 1e-6";
  EXPECT_FALSE(judge.isTypical("x0 * 1.00001"));
}

// 15 constants of laws in 10 formulas each.
TEST(Polish, GivesExactLawsTheirConstants) {
  const double constants[] = {9.81,   6.674,  0.5,       1.380649, 8.314462618, 1 / 3.0, std::numbers::pi / 2,
                              273.15, 96485., 0.0820574, 1.4142,   3.7e-5,      4.184e3, 299792458,
                              2 / 7.0};
  const char* const shapes[] = {"C * (x0 * x1)",       "C * (x0 / x1)",   "C * sqrt(x0) * x1",    "C / (x0 * x1)",
                                "C * x0^2 + x1 * 0.5", "x0 * (C + x1)",   "C * log(x0 + 2 * x1)", "C * x0 - 7.25 * x1",
                                "sqrt(C * x0 + x1)",   "C * sin(x0) * x1"};
  int count = 0;
  for (const char* shape : shapes) {
    for (const double constant : constants) {
      std::string text = shape;
      text.replace(text.find('C'), 1, fmt::format("{}", constant));
      const Expression law = infix(text);
      const RowSet rows = rowsOfLaw(law);
      std::vector<Token> tokens(law.tokens().begin(), law.tokens().end());
      for (Token& token : tokens) {
        if (token.kind == Token::Kind::kConstant) token.value *= 1 + 1e-4;
      }
      const Formula found = Judge(rows).rounded(Expression::create(tokens).value());
      EXPECT_LE(lengthOfConstants(found.expression), lengthOfConstants(simplify(law)))
          << text << " became " << print(found.expression, Language::kInfix) << " of loss " << found.loss;
      const double own = lossOf(law, rows);
      EXPECT_LE(found.loss, std::max(1.01 * own, 1e-29))
          << text << " became " << print(found.expression, Language::kInfix);
      ++count;
    }
  }
  EXPECT_EQ(count, 150);
}

TEST(Polish, DropsWhatDoesNothing) {
  const Expression law = infix("1e25 * (x0 / x1)");
  const RowSet rows = rowsOfLaw(law);
  const Judge judge(rows);
  for (const char* text : {"x1 + x0 * (1e25 / x1)", "1e25 * (sin(x0) * 1e-20 + x0 / x1)", "exp(57.5646 + log(x0 / x1))",
                           "sqrt(1e50 * (x0 / x1)^2)", "1e25 * (x0 / x1) - 3 * log(x1)"}) {
    const Formula found = judge.rounded(infix(text));
    EXPECT_EQ(found.complexity, 5u) << text << " became " << print(found.expression, Language::kInfix);
    EXPECT_LT(found.loss, 1e-30) << text << " became " << print(found.expression, Language::kInfix);
  }
}

/// The shortest of loss 0, or of rounding, that a law's rows make of another writing of it.
std::string roundedText(const char* law, const char* text) {
  const RowSet rows = rowsOfLaw(infix(law));
  return print(Judge(rows).rounded(infix(text)).expression, Language::kInfix);
}

TEST(Polish, FormulasAreAsPeopleWriteThem) {
  const struct {
    const char *law, *text, *expected;
  } cases[] = {
      {"12.104 * x0 * x1", "13.6 * (x1 * (x0 * 0.89))", "12.104 * x0 * x1"},
      {"1.05 * sin(x0) + x1", "1.05 * (sin(x0) + 0.95 * x1)", "x1 + 1.05 * sin(x0)"},
      {"2.5 * (sin(x0) + x1)", "2.5 * sin(x0) + 2.4 * x1", "2.5 * (x1 + sin(x0))"},
      {"x1 + 1.36 * sin(x0)", "x1 - -1.36 * sin(x0)", "x1 + 1.36 * sin(x0)"},
      {"2 * x0 / x1", "exp(0.7 - log(x1 / x0))", "2 * x0 / x1"},
      {"1.23 - 0.0257 * log(x0)", "1.2300000000000002 + -0.025699999999999966 * log(x0)", "1.23 - 0.0257 * log(x0)"},
      {"x0", "square(x0) / x0", "x0"},
      {"x0 / (x1 * (x0 + x1))", "x0 / x1 / (x0 + x1)", "x0 / (x1 * (x0 + x1))"},
  };
  for (const auto& c : cases) EXPECT_EQ(roundedText(c.law, c.text), c.expected) << c.text;
}

SearchOptions shortOptions(std::uint64_t generations) {
  SearchOptions options;
  options.engine.device = "cpu";
  options.seconds = 300;
  options.generations = generations;
  options.islands = 4;
  options.island = {.population = 60, .offspring = 120};
  options.rows = 128;
  return options;
}

/// Every formula of the front as its text, read again.
std::vector<std::pair<Formula, Expression>> printedIn(const SearchResult& result) {
  std::vector<std::pair<Formula, Expression>> printed;
  for (const Formula& formula : result.state.front.formulas()) {
    printed.emplace_back(formula, infix(print(formula.expression, Language::kInfix)));
  }
  return printed;
}

// 9e12 + x * (x - 6e6) is the same in real arithmetic, but leaves 5e-9 of the variance where it is evaluated.
TEST(Polish, TheLossIsThatOfTheFormulaAsItIsWritten) {
  RowSet rows;
  rows.columns.resize(1);
  Random random(3);
  for (int r = 0; r < 400; ++r) {
    const double x = 3e6 + random.between(0.0, 5.0), u = x - 3e6;
    rows.columns[0].push_back(x);
    rows.target.push_back(u * u);
  }
  SearchOptions options = shortOptions(40);
  options.engine.precision = Precision::kF64;
  options.grammar.operators = {{Op::kAdd}, {Op::kSub}, {Op::kMul}};
  const SearchResult result = search(rows.view(), options).value();
  for (const auto& [formula, read] : printedIn(result)) {
    EXPECT_NEAR(lossOf(read, rows), formula.loss, 1e-9 * formula.loss + 1e-30) << print(read, Language::kInfix);
  }
  EXPECT_EQ(print(result.state.front.best()->expression, Language::kInfix), "square(x0 - 3e+06)");
  EXPECT_EQ(result.state.front.best()->loss, 0);
}

/// A random grammar over some operators, with complexities and limits.
GrammarOptions randomGrammar(Random& random) {
  constexpr Op kChoice[] = {Op::kAdd, Op::kSub,  Op::kMul, Op::kDiv, Op::kPow, Op::kSqrt, Op::kExp,   Op::kLog,
                            Op::kSin, Op::kTanh, Op::kMax, Op::kAbs, Op::kInv, Op::kAsin, Op::kSquare};
  GrammarOptions options;
  for (const Op op : kChoice) {
    if (random.chance(0.4)) options.operators.push_back({op, 1 + static_cast<unsigned>(random.below(3))});
  }
  if (options.operators.empty()) options.operators = {{Op::kAdd}};
  for (std::uint64_t limits = random.below(4); limits > 0; --limits) {
    options.nesting.push_back({kChoice[random.below(std::size(kChoice))], kChoice[random.below(std::size(kChoice))],
                               static_cast<unsigned>(random.below(2))});
  }
  options.variable_complexity = 1 + static_cast<unsigned>(random.below(2));
  options.constant_complexity = 1 + static_cast<unsigned>(random.below(2));
  options.max_complexity = 9 + random.below(20);
  options.allow_self_nesting = random.chance(0.3);
  return options;
}

TEST(Polish, EveryFormulaIsAdmittedByTheGrammar) {
  const char* const laws[] = {"exp(tanh(x0) * x1 / 2)", "sqrt(x0 + sqrt(x1))", "x0^2 - 3 * x1 + x0 * x1",
                              "exp(exp(-x0)) * x1",     "1 / (x0 - x1 / 4)",   "asin(x0 / 4) + x1"};
  Random random(17);
  std::size_t formulas = 0;
  for (int i = 0; i < 40; ++i) {
    const RowSet rows = rowsOfLaw(infix(laws[i % std::size(laws)]), 80);
    SearchOptions options = shortOptions(8);
    options.island = {.population = 40, .offspring = 60};
    options.seed = static_cast<std::uint64_t>(i);
    options.grammar = randomGrammar(random);
    const Result<Grammar> grammar = Grammar::create(options.grammar, 2);
    const SearchResult result = search(rows.view(), options).value();
    for (const auto& [formula, read] : printedIn(result)) {
      EXPECT_TRUE(grammar->admits(read.tokens())) << "search " << i << ": " << print(read, Language::kInfix);
      EXPECT_EQ(grammar->complexityOf(read.tokens()), formula.complexity) << print(read, Language::kInfix);
      EXPECT_LE(formula.complexity, options.grammar.max_complexity);
      ++formulas;
    }
  }
  EXPECT_GT(formulas, 100u);
}

// What trials found: no tanh within exp, no sum within a product, no root within a root.
TEST(Polish, LimitsOfNestingHoldForWhatIsPrinted) {
  const auto frontOf = [](const SearchResult& result) {
    std::string text;
    for (const Formula& formula : result.state.front.formulas()) {
      text += print(formula.expression, Language::kInfix) + "\n";
    }
    return text;
  };
  SearchOptions options = shortOptions(20);
  options.grammar = {.operators = parseOperators("add,sub,mul,div,exp,tanh").value(),
                     .nesting = {{Op::kExp, Op::kTanh, 0}}};
  const Grammar bounded = Grammar::create(options.grammar, 2).value();
  const SearchResult found = search(rowsOfLaw(infix("exp(tanh(x0 / 2) * x1 / 2)")).view(), options).value();
  for (const auto& [formula, read] : printedIn(found)) EXPECT_TRUE(bounded.admits(read.tokens())) << frontOf(found);
  options.grammar = {.operators = parseOperators("add,sub,mul").value(), .nesting = {{Op::kMul, Op::kAdd, 0}}};
  const SearchResult sums = search(rowsOfLaw(infix("x0^2 - 3 * x1 + x0 * x1")).view(), options).value();
  EXPECT_LT(sums.state.front.best()->loss, 1e-25) << frontOf(sums);
  options.grammar = {.max_complexity = 5};
  const SearchResult small = search(rowsOfLaw(infix("2.5 * x0 * x1 + sin(x0)")).view(), options).value();
  for (const Formula& formula : small.state.front.formulas()) EXPECT_LE(formula.complexity, 5u) << frontOf(small);
  EXPECT_GE(small.state.front.best()->complexity, 4u) << frontOf(small);
}

}  // namespace
}  // namespace srjit::search

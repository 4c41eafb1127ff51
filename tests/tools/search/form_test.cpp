// What a user knows of a formula: definitions, forms, start formulas; and several formulas of a complexity.
#include "tools/search/trees/form.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/reference.h"
#include "ir/text.h"
#include "tests/tools/search/small_runs.h"
#include "tools/search/island.h"
#include "tools/search/resume/checkpoint.h"
#include "tools/search/trees/identity.h"
#include "tools/search/trees/variation.h"

namespace srjit::search {
namespace {

using testing::HasSubstr;

/// Columns a, b, c, and kind, which is 1, 2 or 4.
RowSet namedRows(std::size_t rows = 200) {
  RowSet set = rowsOf(4, rows, [](const std::vector<double>&) { return 0.0; });
  for (std::size_t r = 0; r < rows; ++r) {
    set.columns[3][r] = r % 3 == 2 ? 4 : 1 + static_cast<double>(r % 3);
    const double factor = set.columns[3][r] == 1 ? 1.5 : set.columns[3][r] == 2 ? -0.7 : 3;
    set.target[r] = set.columns[0][r] / set.columns[1][r] + factor * std::sin(set.columns[2][r]);
  }
  set.names = ColumnNames({"a", "b", "c", "kind"}, {{"y", "target"}});
  return set;
}

Form formOf(std::string_view text, const RowSet& rows) { return Form::parse(text, rows.view()).value(); }

std::string refusalOf(const SearchOptions& options, const RowSet& rows) {
  const Result<SearchResult> found = search(rows.view(), options);
  return found ? "nothing" : found.error().message;
}

TEST(Form, TreesKeepItWhateverBreedingDoes) {
  const RowSet rows = namedRows();
  for (const char* text : {"f(a, b) + p0*g(c)", "f(a)", "exp(f(c)) / (2 + g(b, a, kind))", "p0[kind]*f(a, b, c)^2"}) {
    GrammarOptions options;
    options.form = std::make_shared<const Form>(formOf(text, rows));
    const Grammar grammar = Grammar::create(options, 4).value();
    Island island{.number = 3};
    std::size_t made = 0;
    for (int generation = 0; generation < 8; ++generation) {
      Brood brood;
      breed(island, grammar, {.population = 60, .offspring = 200}, 5, brood);
      for (std::size_t i = 0; i < brood.children.size(); ++i, ++made) {
        const Expression tree = expressionOf(brood.children.trees[i]);
        ASSERT_TRUE(options.form->admits(brood.children.trees[i])) << text << ": " << print(tree, Language::kInfix);
        brood.children.traits[i].loss = static_cast<double>(i % 17);
      }
      survive(island, brood.children, {.population = 60, .offspring = 200});
    }
    EXPECT_GT(made, 400U) << text;
  }
}

TEST(Form, PartsAreWhatItsFunctionsStandFor) {
  const RowSet rows = namedRows();
  const Form form = formOf("f(a, b) + p0*g(c)", rows);
  const auto partsOf = [&](const char* text) {
    const Expression whole = parse(text, Language::kInfix, rows.names).value();
    Trees tree;
    tree.add(whole.tokens());
    std::vector<Form::Part> parts;
    std::string joined;
    if (!form.matches(tree[0].codes, parts)) return std::string("none");
    for (const auto& [begin, end] : parts) {
      const std::span<const Token> own = whole.tokens().subspan(begin, end - begin);
      joined += print(Expression::create({own.begin(), own.end()}).value(), Language::kInfix, rows.names) + "; ";
    }
    return joined + (form.admits(tree[0]) ? "admitted" : "other columns");
  };
  EXPECT_EQ(partsOf("a/b + 2*sin(c)"), "a / b; sin(c); admitted");
  EXPECT_EQ(partsOf("a + b*a + 7*c"), "a + b * a; c; admitted");
  EXPECT_EQ(partsOf("c + 2*c"), "c; c; other columns");
  EXPECT_EQ(partsOf("a - 2*c"), "none");
  EXPECT_EQ(partsOf("a + c*2"), "none");
  EXPECT_EQ(partsOf("a"), "none");
}

TEST(Form, ASearchKeepsItAndFindsTheConstantOfEachKind) {
  const RowSet rows = namedRows();
  SearchOptions options = smallOptions();
  options.form = "f(a, b) + p0[kind]*g(c)";
  options.generations = 80;
  const SearchResult found = search(rows.view(), options).value();
  const Form form = formOf(*options.form, rows);
  ASSERT_FALSE(found.state.front.empty());
  for (const Formula& formula : found.state.front.formulas()) {
    Trees tree;
    tree.add(formula.expression.tokens());
    EXPECT_TRUE(form.admits(tree[0])) << print(formula.expression, Language::kInfix, rows.names);
  }
  EXPECT_LT(found.state.front.best()->loss, 1e-20)
      << print(found.state.front.best()->expression, Language::kInfix, rows.names);
}

TEST(Form, BadTextsAreRefusedWithTheirPlace) {
  const RowSet rows = namedRows();
  const std::map<std::string, std::string> errors = {
      {"f(a, q)", "--template:1:6: 'q' is no column"},
      {"f(a) + f(b)", "--template:1:8: f is a column, or a function that occurred before"},
      {"a(b)", "--template:1:1: a is a column, or a function that occurred before"},
      {"a + p0*b", "--template:1:1: the form has no function"},
      {"f(a) + p0[b]", "--template:1:11: b has more than 50 values"},
      {"f(a) + p0[y]", "--template:1:11: 'y' is no column"},
      {"f(a +", "--template:1:"},
      {"f(a) + * 2", "--template:1:8: expected an operand"},
      {"f()", "--template:1:3: '' is no column"},
      {"p0*f(a) + p0*g(b)", "--template:1:11: p0 occurs twice"},
      {"p0[kind]*f(a) + p0[kind]*g(b)", "--template:1:17: p0 occurs twice"},
      {"f(a)*sin(sin(g(b)))", "it breaks the units, or a limit of nesting"},
  };
  for (const auto& [text, error] : errors) {
    SearchOptions options = smallOptions();
    options.form = text;
    EXPECT_THAT(refusalOf(options, rows), HasSubstr(error)) << text;
  }
  SearchOptions linked = smallOptions();
  linked.form = "f(a)";
  linked.links = {"log"};
  EXPECT_THAT(refusalOf(linked, rows), HasSubstr("with a form of the formula there are no links"));
}

TEST(Form, NamesOfColumnsMayStandInBackquotes) {
  RowSet rows = namedRows();
  rows.names = ColumnNames({"dose (mg)", "a,b", "c`d", "kind"});
  const Form form = formOf("f(`dose (mg)`, `a,b`) * `dose (mg)` + p0[kind]*g( x2 )", rows);
  ASSERT_EQ(form.functions(), 2U);
  Trees tree;
  tree.add(parse("(x0 + x1) * x0 + if(x3 - 1.5, if(x3 - 3, 1, 1), 1) * x2", Language::kInfix).value().tokens());
  EXPECT_FALSE(form.admits(tree[0])) << "the outer condition is that of the largest values";
  Trees made;
  form.write(made, [&](std::size_t k) { made.put(variableCode(k == 0 ? 1 : 2)); });
  EXPECT_EQ(print(expressionOf(made.open()), Language::kInfix), "x1 * x0 + if(x3 - 3, 1, if(x3 - 1.5, 1, 1)) * x2");
  EXPECT_TRUE(form.admits(made.open()));
}

/// What a formula adds for one more of a column, over rows in which that is the same.
double slopeOf(const Expression& formula, std::size_t column, double kind) {
  std::vector<double> row = {1.25, 1.5, 1.75, kind};
  const double before = evaluateReference(formula, row, {});
  row[column] += 1;
  return evaluateReference(formula, row, {}) - before;
}

TEST(Bounds, HoldInEveryFormulaOfTheFront) {
  RowSet rows = rowsOf(4, 200, [](const std::vector<double>&) { return 0.0; });
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double kind = rows.columns[3][r] = static_cast<double>(r % 2);
    rows.target[r] = 3 * rows.columns[1][r] + (kind == 0 ? -2 : 4) * rows.columns[2][r] + std::exp(rows.columns[0][r]);
  }
  SearchOptions options = smallOptions();
  options.generations = 12;
  options.form = "f(x0) + p0*x1 + p1[x3]*x2";
  const SearchResult free = search(rows.view(), options).value();
  EXPECT_NEAR(slopeOf(free.state.front.chosen()->expression, 1, 0), 3, 1e-9);
  EXPECT_NEAR(slopeOf(free.state.front.chosen()->expression, 2, 0), -2, 1e-9);
  options.bounds = {"p0:2:2.345", "p1:0:"};
  for (const double held_out : {0.0, 0.25}) {
    options.held_out = held_out;
    const SearchResult found = search(rows.view(), options).value();
    for (const Formula& formula : found.state.front.formulas()) {
      if (formula.expression.variableCount() < 4) continue;  // the constant
      const double slope = slopeOf(formula.expression, 1, 0);
      EXPECT_TRUE(slope >= 2 - 1e-12 && slope <= 2.345 + 1e-12) << print(formula.expression, Language::kInfix);
      for (const double kind : {0.0, 1.0}) {
        EXPECT_GE(slopeOf(formula.expression, 2, kind), -1e-12) << print(formula.expression, Language::kInfix);
      }
    }
    const Expression& best = found.state.front.best()->expression;
    EXPECT_NEAR(slopeOf(best, 1, 0), 2.345, 1e-12) << print(best, Language::kInfix);
    EXPECT_NEAR(slopeOf(best, 2, 0), 0, 1e-12) << print(best, Language::kInfix);
    EXPECT_GT(slopeOf(best, 2, 1), 3) << print(best, Language::kInfix);
  }
  options.bounds = {"p2:0:"};
  EXPECT_THAT(refusalOf(options, rows), HasSubstr("--bounds: 'p2:0:': no expression has this parameter"));
  options.form = "f(x0) + p1*x1";
  options.bounds = {"p0:0:"};
  EXPECT_THAT(refusalOf(options, rows), HasSubstr("--bounds: 'p0:0:': no expression has this parameter"));
  options.bounds = {"p1:inf:"};
  EXPECT_THAT(refusalOf(options, rows), HasSubstr("--bounds: 'p1:inf:': no number is between the bounds"));
  options.form.reset();
  EXPECT_THAT(refusalOf(options, rows), HasSubstr("there is no template"));
}

TEST(Definition, StandsInNewTreesAsAWhole) {
  GrammarOptions options;
  options.operators = parseOperators("add,mul").value();
  options.definitions = {parseDefinition("mm(x, y) = x/(x + y)").value(), parseDefinition("s(v)=tanh(2*v)").value()};
  EXPECT_EQ(options.definitions[0].arity, 2U);
  const Grammar grammar = Grammar::create(options, 3).value();
  Random random(1);
  Trees trees;
  std::set<Op> seen;
  for (int i = 0; i < 500; ++i) {
    putRandomTree(trees, grammar, 1 + random.below(12), random);
    trees.close();
    EXPECT_TRUE(grammar.admit(trees[trees.size() - 1]));
  }
  std::size_t quotients = 0;
  for (std::size_t t = 0; t < trees.size(); ++t) {
    const Expression tree = expressionOf(trees[t]);
    const std::string text = print(tree, Language::kPostfix);
    for (const Token& token : tree.tokens()) {
      if (token.kind == Token::Kind::kOp) seen.insert(token.op);
    }
    quotients += text.ends_with("+ /") ? 1U : 0U;
  }
  EXPECT_EQ(seen, (std::set<Op>{Op::kAdd, Op::kMul, Op::kDiv, Op::kTanh}));
  EXPECT_GT(quotients, 20U);
}

TEST(DefinitionSlow, ASearchUsesItSooner) {
  const RowSet rows =
      rowsOf(3, 300, [](const std::vector<double>& x) { return x[2] * std::tanh(x[0] / (x[0] + x[1] * x[1])) + x[1]; });
  SearchOptions options = smallOptions();
  options.generations = 30;
  options.seed = 2;
  options.islands = 8;
  options.island = {.population = 200, .offspring = 400};
  options.grammar.operators = parseOperators("add,mul,square,div,tanh").value();
  EXPECT_GT(search(rows.view(), options).value().state.front.best()->loss, 1e-9);
  options.definitions = {"hill(x, y) = tanh(x / (x + y*y))"};
  EXPECT_LT(search(rows.view(), options).value().state.front.best()->loss, 1e-20);
}

TEST(Definition, BadTextsAreRefusedWithTheirPlace) {
  const std::map<std::string, std::string> errors = {
      {"x/(x + y)", "a definition is NAME(WORD, ...) = EXPRESSION"},
      {"mm(x, y) + 1 = x", "a definition is NAME(WORD, ...) = EXPRESSION"},
      {"sin(x) = x", "sin is an operator already"},
      {"mm(x, x) = x", "the argument x occurs twice"},
      {"mm(x, 2) = x", "an argument is a word"},
      {"mm() = 1", "an argument is a word"},
      {"mm(x, y) = x", "the argument y is not used"},
      {"mm(x) = x + p0", "no parameters"},
      {"mm(x) = x + z", "unknown name 'z'"},
      {"", "a definition is NAME(WORD, ...) = EXPRESSION"},
  };
  for (const auto& [text, error] : errors) {
    const Result<Definition> definition = parseDefinition(text);
    ASSERT_FALSE(definition) << text;
    EXPECT_THAT(definition.error().message, HasSubstr(error)) << text;
    EXPECT_TRUE(definition.error().where) << text;
  }
}

TEST(Guess, IsASeedOfTheSearch) {
  const RowSet rows = rowsOf(3, 300, [](const std::vector<double>& x) { return 2 * hardLaw(x) + 0.5; });
  SearchOptions options = smallOptions();
  options.generations = 10;
  EXPECT_GT(search(rows.view(), options).value().state.front.best()->loss, 1e-9);
  options.guesses = {"x1", "p0*(sin(x0*x1) + cos(x1*x1 + x0)/(1 + x0*x0*x1))"};
  EXPECT_LT(search(rows.view(), options).value().state.front.best()->loss, 1e-20);
}

TEST(Guess, OneThatTheSearchDoesNotMakeIsRefused) {
  const RowSet rows = namedRows();
  const auto refusal = [&](const char* guess, const auto& change) {
    SearchOptions options = smallOptions();
    options.guesses = {guess};
    change(options);
    return refusalOf(options, rows);
  };
  const auto nothing = [](SearchOptions&) {};
  EXPECT_THAT(refusal("a +", nothing), HasSubstr("--guess:1:4"));
  EXPECT_THAT(refusal("tanh(a)", nothing), HasSubstr("tanh is no operator of the search: add it"));
  EXPECT_THAT(refusal("x9", nothing), HasSubstr("x9 is no column"));
  EXPECT_THAT(refusal("y", nothing), HasSubstr("target"));
  EXPECT_THAT(refusal("sin(sin(a))", nothing), HasSubstr("or a limit of columns or nesting"));
  EXPECT_THAT(refusal("a*b + a*c + b*c", [](SearchOptions& options) { options.grammar.max_complexity = 5; }),
              HasSubstr("its complexity is 11"));
  EXPECT_THAT(refusal("a + b", [](SearchOptions& options) { options.form = "f(a)*g(b)"; }),
              HasSubstr("it breaks the units, the template"));
  EXPECT_THAT(refusal("a + b", [](SearchOptions& options) { options.links = {"exp"}; }),
              HasSubstr("guesses need identity among --links"));
}

TEST(Top, SeveralLawsOfAComplexityAreOnTheFrontOnce) {
  const RowSet rows = rowsOf(3, 300, hardLaw, 0.1);
  SearchOptions options = smallOptions();
  options.generations = 15;
  const SearchResult best = search(rows.view(), options).value();
  options.top = 3;
  const SearchResult found = search(rows.view(), options).value();
  EXPECT_GT(found.state.front.size(), best.state.front.size());
  std::map<std::size_t, std::set<std::uint64_t>> shapes;
  std::size_t most = 0;
  for (const Formula& formula : found.state.front.formulas()) {
    Trees tree;
    tree.add(formula.expression.tokens());
    EXPECT_TRUE(shapes[formula.complexity].insert(identityOf(tree[0]).shape).second)
        << print(formula.expression, Language::kInfix);
    most = std::max(most, shapes[formula.complexity].size());
    const auto isBetter = [&](const Formula& other) {
      return other.complexity <= formula.complexity && other.loss < formula.loss * 0.998;
    };
    EXPECT_LT(std::ranges::count_if(found.state.front.formulas(), isBetter), 3);
  }
  EXPECT_GT(most, 1U);
  EXPECT_LE(found.state.front.best()->loss, best.state.front.best()->loss * 1.02);
}

TEST(Top, AFrontKeepsTheBestInAnyOrder) {
  const auto formula = [](const char* text, double loss) {
    const Expression expression = parse(text, Language::kInfix).value();
    return Formula{.expression = expression, .complexity = 3, .loss = loss};
  };
  std::vector<Formula> formulas = {formula("x0+x1", 0.9), formula("x0*x1", 1), formula("x0/x1", 1.0005),
                                   formula("x0-x1", 1.0008), formula("x0^x1", 1.2)};
  for (const std::size_t top : {1U, 2U, 3U}) {
    std::set<std::string> fronts;
    std::ranges::sort(formulas, {}, &Formula::loss);
    do {
      Front front(-1, top);
      for (const Formula& one : formulas) front.add(one);
      std::string text;
      for (const Formula& one : front.formulas()) text += print(one.expression, Language::kInfix) + "; ";
      EXPECT_LE(front.size(), top);
      EXPECT_EQ(front.best()->loss, 0.9);
      fronts.insert(text);
    } while (std::ranges::next_permutation(formulas, {}, &Formula::loss).found);
    EXPECT_LE(fronts.size(), top == 1 ? 1U : 4U) << "losses within a thousandth beat each other";
  }
}

TEST(Top, ASearchThatGoesOnKeepsIt) {
  const RowSet rows = rowsOf(3, 300, hardLaw, 0.1);
  SearchOptions options = smallOptions();
  options.top = 3;
  options.form = "f(x0, x1) + p0*g(x2)";
  options.generations = 8;
  const std::string whole = recordOf(search(rows.view(), options).value());
  options.generations = 4;
  std::string state;
  options.checkpoint = [&](const SearchState& last, bool is_last) {
    if (is_last) state = checkpointText(last);
  };
  search(rows.view(), options).value();
  options.generations = 8;
  EXPECT_EQ(recordOf(search(rows.view(), options, readCheckpoint(state).value()).value()), whole);
}

TEST(Knowledge, IsPartOfTheFingerprint) {
  const RowSet rows = namedRows();
  std::set<std::uint64_t> fingerprints = {fingerprintOf(rows.view(), smallOptions())};
  const auto addWith = [&](const auto& change) {
    SearchOptions options = smallOptions();
    change(options);
    EXPECT_TRUE(fingerprints.insert(fingerprintOf(rows.view(), options)).second);
  };
  addWith([](SearchOptions& options) { options.guesses = {"a"}; });
  addWith([](SearchOptions& options) { options.definitions = {"a"}; });
  addWith([](SearchOptions& options) { options.form = "a"; });
  addWith([](SearchOptions& options) { options.bounds = {"p0:0:"}; });
  addWith([](SearchOptions& options) { options.top = 2; });
  addWith([](SearchOptions& options) { options.units = "a:m"; });
  addWith([](SearchOptions& options) { options.monotone = "a:up"; });
  addWith([](SearchOptions& options) { options.grammar.codata = true; });
  addWith([](SearchOptions& options) { options.grammar.max_columns = 2; });
  RowSet renamed = rows;
  renamed.names = ColumnNames({"b", "a", "c", "kind"});
  SearchOptions options = smallOptions();
  EXPECT_EQ(fingerprintOf(renamed.view(), options), fingerprintOf(rows.view(), options));
  options.guesses = {"a"};
  EXPECT_TRUE(fingerprints.insert(fingerprintOf(renamed.view(), options)).second);
}

}  // namespace
}  // namespace srjit::search

#include "tools/search/grammar.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "ir/text.h"

namespace srjit::search {
namespace {

using testing::HasSubstr;

Expression expressionOf(const char* text) { return parse(text, Language::kInfix).value(); }

Grammar grammarOf(GrammarOptions options = {}, std::size_t variables = 3) {
  return Grammar::create(std::move(options), variables).value();
}

TEST(SearchGrammar, ReadsOperatorsByNameAndTextWithTheirComplexity) {
  const std::vector<OperatorUse> operators = parseOperators("add,* sqrt:2, ^:7").value();
  ASSERT_EQ(operators.size(), 4u);
  EXPECT_EQ(operators[0].op, Op::kAdd);
  EXPECT_EQ(operators[0].complexity, 1u);
  EXPECT_EQ(operators[1].op, Op::kMul);
  EXPECT_EQ(operators[2].op, Op::kSqrt);
  EXPECT_EQ(operators[2].complexity, 2u);
  EXPECT_EQ(operators[3].op, Op::kPow);
  EXPECT_EQ(operators[3].complexity, 7u);
}

TEST(SearchGrammar, TellsWhereAListIsWrong) {
  struct Case {
    const char* text;
    const char* message;
    std::size_t column;
  };
  const Case cases[] = {{"add,sine", "unknown operator 'sine'", 5},
                        {"add, mul:0", "'0' is no number from 1 to 1000", 10},
                        {"add,mul:two", "'two' is no number from 1 to 1000", 9},
                        {"add,+", "operator add occurs twice", 5}};
  for (const Case& bad : cases) {
    const Result<std::vector<OperatorUse>> operators = parseOperators(bad.text);
    ASSERT_FALSE(operators) << bad.text;
    EXPECT_THAT(operators.error().message, HasSubstr(bad.message));
    EXPECT_EQ(operators.error().where->column, bad.column) << bad.text;
  }
  EXPECT_THAT(parseOperators(" , ").error().message, HasSubstr("no operator is named"));
  const Result<std::vector<NestingLimit>> limits = parseNesting("sin:cos:0,exp:log:few");
  ASSERT_FALSE(limits);
  EXPECT_EQ(limits.error().where->column, 19u);
  EXPECT_THAT(parseNesting("sin:cos").error().message, HasSubstr("OUTER:INNER:MOST"));
  EXPECT_THAT(parseNesting("sin:cosine:1").error().message, HasSubstr("unknown operator 'cosine'"));
}

TEST(SearchGrammar, RefusesWhatGivesNoTree) {
  EXPECT_FALSE(Grammar::create({}, 0));
  EXPECT_FALSE(Grammar::create({.operators = {{Op::kAdd}, {Op::kAdd}}}, 1));
  EXPECT_FALSE(Grammar::create({.operators = {{Op::kAdd, 0}}}, 1));
  EXPECT_FALSE(Grammar::create({.variable_complexity = 0}, 1));
  EXPECT_FALSE(Grammar::create({.operators = {{Op::kAdd}}, .max_complexity = 2}, 1));
  EXPECT_TRUE(Grammar::create({.operators = {{Op::kAdd}}, .max_complexity = 3}, 1));
}

TEST(SearchGrammar, AddsComplexities) {
  const Grammar grammar =
      grammarOf({.operators = {{Op::kAdd, 2}, {Op::kSin, 5}}, .variable_complexity = 3, .constant_complexity = 4});
  EXPECT_EQ(grammar.complexityOf(expressionOf("sin(x0 + 2)").tokens()), 5u + 3 + 2 + 4);
  EXPECT_EQ(grammar.complexityOf(expressionOf("x0 * x1").tokens()), 3u + 3 + 1) << "an operator that it does not use";
}

TEST(SearchGrammar, StandInsCountAsWhatTheyStandFor) {
  const Grammar products = grammarOf({.operators = {{Op::kAdd}, {Op::kMul, 3}}});
  const auto admits = [](const Grammar& grammar, const char* text) {
    return grammar.admits(expressionOf(text).tokens());
  };
  EXPECT_TRUE(admits(products, "square(x0) + cube(x1)"));
  EXPECT_TRUE(admits(products, "neg(x0)"));
  EXPECT_FALSE(admits(products, "inv(x0)")) << "there is no quotient";
  EXPECT_FALSE(admits(products, "x0 - x1"));
  EXPECT_EQ(products.complexityOf(expressionOf("square(x0)").tokens()), 4u);
  EXPECT_TRUE(admits(grammarOf({.operators = {{Op::kDiv}}}), "inv(x0)"));
  EXPECT_FALSE(admits(grammarOf({.operators = {{Op::kPow}}}), "square(x0)")) << "it is x0^2 there";
  EXPECT_FALSE(admits(grammarOf({.operators = {{Op::kAdd}}}), "neg(x0)"));
  const Grammar limited = grammarOf({.operators = {{Op::kAdd}, {Op::kMul}}, .nesting = {{Op::kMul, Op::kAdd, 0}}});
  EXPECT_FALSE(admits(limited, "square(x0 + x1)")) << "a product of sums";
  EXPECT_TRUE(admits(limited, "square(x0) + x1"));
  const Grammar named =
      grammarOf({.operators = {{Op::kAdd}, {Op::kMul}, {Op::kSquare}}, .nesting = {{Op::kMul, Op::kAdd, 0}}});
  EXPECT_TRUE(admits(named, "square(x0 + x1)")) << "square is an operator of its own";
  const Grammar squares = grammarOf({.operators = {{Op::kAdd}, {Op::kMul}}, .nesting = {{Op::kSquare, Op::kAdd, 0}}});
  EXPECT_FALSE(admits(squares, "square(x0 + x1)")) << "the limit names the stand-in";
  EXPECT_TRUE(admits(squares, "(x0 + x1) * x0"));
}

TEST(SearchGrammar, AdmitsTreesWithinAWrapper) {
  const Grammar grammar = grammarOf({.max_complexity = 6});
  const Token root[] = {Token::operation(Op::kSqrt)};
  const Grammar inner = grammar.within(root);
  EXPECT_EQ(inner.room(), 5u);
  EXPECT_TRUE(inner.admits(expressionOf("x0 * x1 + x2").tokens()));
  EXPECT_TRUE(grammar.admits(expressionOf("sqrt(x0 * x1 + x2)").tokens()));
  EXPECT_FALSE(inner.admits(expressionOf("sqrt(x0) + x2").tokens())) << "sqrt within sqrt";
  EXPECT_FALSE(inner.admits(expressionOf("x0 * x1 + exp(x2)").tokens())) << "complexity 7";
}

TEST(SearchGrammar, IsScaledWhereProductsAndSumsFitAnywhere) {
  EXPECT_TRUE(grammarOf().canScale());
  EXPECT_TRUE(grammarOf({.max_complexity = 12}).canScale());
  EXPECT_FALSE(grammarOf({.max_complexity = 11}).canScale()) << "a + b f takes more than a third";
  EXPECT_FALSE(grammarOf({.operators = {{Op::kAdd}, {Op::kSin}}}).canScale());
  EXPECT_TRUE(grammarOf({.operators = {{Op::kMul}}, .max_complexity = 6}).canScale()) << "b f takes less";
  EXPECT_FALSE(grammarOf({.nesting = {{Op::kMul, Op::kAdd, 0}}}).canScale());
  EXPECT_FALSE(grammarOf({.nesting = {{Op::kExp, Op::kAdd, 0}}}).canScale());
  EXPECT_TRUE(grammarOf({.nesting = {{Op::kExp, Op::kSin, 0}}}).canScale());
}

TEST(SearchGrammar, CountsOnPathsOnly) {
  const Grammar grammar = grammarOf({.nesting = {{Op::kExp, Op::kAdd, 2}, {Op::kSqrt, Op::kExp, 0}}});
  const Token root[] = {Token::operation(Op::kSqrt)};
  const Grammar inner = grammar.within(root);
  const auto admits = [&](const Grammar& of, const char* text) { return of.admits(expressionOf(text).tokens()); };
  EXPECT_TRUE(admits(grammar, "exp((x0 + x1) * (x0 + 2)) + exp(x0) + sqrt(x1)")) << "side by side";
  EXPECT_TRUE(admits(grammar, "exp(x0 + x1 + x2) + x0"));
  EXPECT_FALSE(admits(grammar, "exp(x0 + x1 + x2 + 1)"));
  EXPECT_FALSE(admits(grammar, "sqrt(x0 * exp(x1))"));
  EXPECT_TRUE(admits(grammar, "exp(sqrt(x0)) * sqrt(x1)"));
  EXPECT_FALSE(admits(inner, "exp(x0)")) << "below the wrapper's root";
  EXPECT_TRUE(admits(inner, "x0 + log(x1)"));
}

TEST(SearchGrammar, LimitsComplexityAndNesting) {
  const Grammar grammar = grammarOf({.nesting = {{Op::kSin, Op::kAdd, 1}}, .max_complexity = 8});
  const auto admits = [&](const char* text) { return grammar.admits(expressionOf(text).tokens()); };
  EXPECT_TRUE(admits("sin(x0 + x1) + (x0 + x1)"));
  EXPECT_FALSE(admits("sin(x0 + x1) + (x0 + x1) + x2")) << "complexity 10";
  EXPECT_TRUE(admits("sin((x0 + 1) * (x1 + 2))")) << "one on each path";
  EXPECT_FALSE(admits("sin((x0 + 1) + x1)"));
  EXPECT_FALSE(admits("sin(x0 * sin(x1))")) << "within itself";
  EXPECT_TRUE(grammarOf({.allow_self_nesting = true}).admits(expressionOf("sin(x0 * sin(x1))").tokens()));
}

}  // namespace
}  // namespace srjit::search

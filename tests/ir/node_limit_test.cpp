// The limit of nodes, in texts of all forms and in token arrays.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "ir/ops.h"
#include "ir/population.h"
#include "ir/text.h"

namespace srjit {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// x0 + x0 + ... of this odd number of tokens.
std::string sumText(Language language, std::size_t tokens) {
  std::vector<Token> sum = {Token::variable(0)};
  while (sum.size() < tokens) {
    sum.push_back(Token::variable(0));
    sum.push_back(Token::operation(Op::kAdd));
  }
  return print(Expression::create(std::move(sum)).value(), language);
}

TEST(NodeLimit, IsTheSameInAllForms) {
  for (const Language language : kLanguages) {
    const std::string text = sumText(language, 21);
    EXPECT_TRUE(parse(text, language, {}, 21)) << text;
    EXPECT_TRUE(parse(text, language, {}, 0)) << text;
    for (const std::size_t most : {1U, 7U, 20U}) {
      const Result<Expression> refused = parse(text, language, {}, most);
      ASSERT_FALSE(refused) << text << " " << most;
      EXPECT_EQ(refused.error().code, Errc::kLimit);
      EXPECT_THAT(refused.error().message,
                  AllOf(HasSubstr("at least " + std::to_string(most + 1) + " nodes"),
                        HasSubstr("at most " + std::to_string(most)), HasSubstr("max_nodes (--max-nodes)")));
      ASSERT_TRUE(refused.error().where);
      EXPECT_LE(refused.error().where->column, text.size() + 1);
    }
  }
}

TEST(NodeLimit, StopsBeforeTheRestIsRead) {
  // What follows is no expression, which nobody finds out.
  const struct {
    Language language;
    std::string text;
  } cases[] = {
      {Language::kInfix, "x0+x0+x0+x0+x0)))"},
      {Language::kPostfix, "x0 x0 x0 x0 x0 nonsense"},
      {Language::kPrefix, "+ + + + + + nonsense"},
      {Language::kJson, R"({"op":"sin","args":[{"op":"sin","args":[{"op":"sin","args":[{"op":"sin","args":[nonsense)"}};
  for (const auto& [language, text] : cases) {
    EXPECT_EQ(parse(text, language, {}, 3).error().code, Errc::kLimit) << text;
    EXPECT_EQ(parse(text, language).error().code, Errc::kSyntax) << text;
  }
}

TEST(NodeLimit, HasThePlaceWhereTheParserStopped) {
  EXPECT_EQ(parse("x0 x1 + x2 +", Language::kPostfix, {}, 3).error().where->column, 9U);
  EXPECT_EQ(parse("x0 + x1 + x2", Language::kInfix, {}, 3).error().where->column, 11U);
}

TEST(NodeLimit, LeavesTokensOfOtherTexts) {
  std::vector<Token> tokens;
  ASSERT_TRUE(parseTokens("x0 x1 +", Language::kPostfix, {}, tokens, 3));
  ASSERT_TRUE(parseTokens("x0 x1 -", Language::kPostfix, {}, tokens, 3)) << "each text has its own limit";
  EXPECT_FALSE(parseTokens("x0 x1 - sin", Language::kPostfix, {}, tokens, 3));
  EXPECT_EQ(tokens.size(), 6U);
}

TEST(NodeLimit, OfTokenArrays) {
  const std::int32_t codes[] = {variableCode(0), variableCode(0), codeOf(Op::kAdd), variableCode(1)};
  const std::int64_t offsets[] = {0, 3, 4};
  const PopulationView view{codes, {}, offsets};
  Population::Block block;
  const Status refused = block.add(view, 0, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kLimit);
  EXPECT_THAT(refused.error().message, HasSubstr("3 nodes, but an expression may have at most 2; a larger max_nodes"));
  EXPECT_TRUE(block.add(view, 1, 2));
  ASSERT_EQ(block.size(), 2U);
  EXPECT_EQ(block[0].size(), 1U) << "the constant NaN";
  EXPECT_EQ(block[1].variableCount(), 2U);
}

}  // namespace
}  // namespace srjit

// Text forms: round trips, grammar, errors with positions, large inputs, carets.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/text.h"
#include "ir/text/lexer.h"
#include "tests/generators/data.h"

namespace srjit {
namespace {

Expression parsed(std::string_view text, Language language = Language::kInfix, const ColumnNames& columns = {}) {
  auto e = parse(text, language, columns);
  if (!e) throw std::runtime_error(withCaret(e.error(), text, "test"));
  return *std::move(e);
}

std::string postfixOf(std::string_view infix) { return print(parsed(infix), Language::kPostfix); }

TEST(Text, FindsLanguagesByName) {
  EXPECT_EQ(findLanguage("infix"), Language::kInfix);
  EXPECT_EQ(findLanguage("postfix"), Language::kPostfix);
  EXPECT_EQ(findLanguage("prefix"), Language::kPrefix);
  EXPECT_EQ(findLanguage("json"), Language::kJson);
  EXPECT_FALSE(findLanguage("Infix"));
  EXPECT_FALSE(findLanguage(""));
}

TEST(Infix, FollowsItsGrammar) {
  const char* const cases[][2] = {{"x0 - x1 - x2", "x0 x1 - x2 -"},
                                  {"x0 / x1 / x2", "x0 x1 / x2 /"},
                                  {"x0 + x1 * x2", "x0 x1 x2 * +"},
                                  {"(x0 + x1) * x2", "x0 x1 + x2 *"},
                                  {"x0 ^ x1 ^ x2", "x0 x1 x2 ^ ^"},
                                  {"x0 ** x1 ** x2", "x0 x1 x2 ^ ^"},
                                  {"-x0 ^ 2", "x0 2 ^ neg"},
                                  {"(-x0) ^ 2", "x0 neg 2 ^"},
                                  {"2 ^ -x0", "2 x0 neg ^"},
                                  {"2 ^ -x0 ^ 2", "2 x0 2 ^ neg ^"},
                                  {"2 ^ -3 * x0", "2 -3 ^ x0 *"},
                                  {"x0 * -x1", "x0 x1 neg *"},
                                  {"-x0 * x1", "x0 neg x1 *"},
                                  {"-x0 + x1", "x0 neg x1 +"},
                                  {"--x0", "x0 neg neg"},
                                  {"x0--x1", "x0 x1 neg -"},
                                  {"+x0 - +2", "x0 2 -"},
                                  {"-+2", "2 neg"},
                                  {"-2", "-2"},
                                  {"-(2)", "2 neg"},
                                  {"--2", "-2 neg"},
                                  {"-2 ^ 2", "2 2 ^ neg"},
                                  {"-2 ** 2", "2 2 ^ neg"},
                                  {"(-2) ^ 2", "-2 2 ^"},
                                  {"- 2", "-2"},
                                  {"-pi", "-3.141592653589793"},
                                  {"-inf", "-inf"},
                                  {"-nan", "nan"},
                                  {"pi ^ 2", "3.141592653589793 2 ^"},
                                  {"sin(x0)^2", "x0 sin 2 ^"},
                                  {"-sin(x0)", "x0 sin neg"},
                                  {"fma(x0, x1 + 1, -p0)", "x0 x1 1 + p0 neg fma"},
                                  {"add(x0, mul(2, x1))", "x0 2 x1 * +"},
                                  {"neg(2)", "2 neg"},
                                  {"if(lt(x0, 1), 2, 3)", "x0 1 lt 2 3 if"},
                                  {"sin((((x0))))", "x0 sin"},
                                  {"x007 + p01", "x7 p1 +"},
                                  {"1.5e3+.5-2.*1E-2", "1500 0.5 + 2 0.01 * -"},
                                  {"\t x0\r\n + \v1\f", "x0 1 +"},
                                  {"sin (x0)", "x0 sin"}};
  for (const auto& [infix, postfix] : cases) EXPECT_EQ(postfixOf(infix), postfix) << infix;
}

TEST(Infix, SaysWhereTokensStand) {
  const std::string text = "-2 + x0 * -sin(`net weight`) - max(pi, -x1^2)";
  const ColumnNames columns = {"a", "b", "net weight"};
  const std::vector<TextRange> ranges = tokenRanges(text, columns).value();
  ASSERT_EQ(ranges.size(), parse(text, Language::kInfix, columns)->tokens().size());
  std::vector<std::string> words;
  for (const TextRange& range : ranges) words.push_back(text.substr(range.first, range.size));
  EXPECT_THAT(words, testing::ElementsAre("-2", "x0", "`net weight`", "sin", "-", "*", "+", "pi", "x1", "2", "^", "-",
                                          "max", "-"));
  EXPECT_EQ(ranges[5], (TextRange{8, 1}));
  EXPECT_FALSE(tokenRanges("x0 +").ok());
}

TEST(Infix, PrintsNoRedundantParentheses) {
  const char* const cases[] = {"x0 - (x1 - x2)",
                               "x0 - x1 - x2",
                               "x0 / (x1 / x2)",
                               "x0 / x1 * x2",
                               "x0 * (x1 / x2)",
                               "(x0 + x1) * x2",
                               "x0^x1^x2",
                               "(x0^x1)^x2",
                               "-x0^2",
                               "(-x0)^2",
                               "2^-x0",
                               "2^-3",
                               "(-2)^3",
                               "-(2)",
                               "--2",
                               "x0 - -2",
                               "x0 * -x1",
                               "-x0 * x1",
                               "-(x0 * x1)",
                               "-(x0 + x1)",
                               "--x0",
                               "x0 + -(x1 + 1)",
                               "(x0 * x1)^2",
                               "x0^(x1 * 2)",
                               "fma(x0 + 1, -x1, 2)",
                               "(-0)^2",
                               "-0",
                               "-inf",
                               "nan",
                               "-(nan)",
                               "-(inf)",
                               "inf^2",
                               "(-inf)^2",
                               "sin(x0)^2",
                               "-sin(x0)",
                               "-2^x0",
                               "2^-2^x0",
                               "(x0 + x1) / (x2 - 1)",
                               "x0 / -2",
                               "-2 * x0"};
  for (const char* text : cases) EXPECT_EQ(print(parsed(text), Language::kInfix), text);
}

TEST(Text, PrintsOneExpressionInEveryForm) {
  const Expression e = parsed("atan2(x0, -1.5) + p1 ^ neg(2)");
  EXPECT_EQ(print(e, Language::kInfix), "atan2(x0, -1.5) + p1^-(2)");
  EXPECT_EQ(print(e, Language::kPostfix), "x0 -1.5 atan2 p1 2 neg ^ +");
  EXPECT_EQ(print(e, Language::kPrefix), "+ atan2 x0 -1.5 ^ p1 neg 2");
  EXPECT_EQ(print(e, Language::kJson),
            R"({"op":"add","args":[{"op":"atan2","args":[{"var":0},-1.5]},{"op":"pow","args":[{"param":1},)"
            R"({"op":"neg","args":[2]}]}]})");
}

TEST(Text, LinearFormsAcceptTextsAndNames) {
  EXPECT_EQ(parsed("x0 x1 pow", Language::kPostfix), parsed("x0 x1 ^", Language::kPostfix));
  EXPECT_EQ(parsed("sub x0 x1", Language::kPrefix), parsed("- x0 x1", Language::kPrefix));
  EXPECT_EQ(parsed("x0 pi -pi fma -inf +", Language::kPostfix), parsed("fma(x0, pi, -pi) + -inf"));
}

TEST(Text, LinearFormsAcceptAnyWhiteSpaceAroundWords) {
  const Expression e = parsed("x0 p1 loose_sqrt + 2 x10 * -", Language::kPostfix);
  for (const std::string_view space : {" ", "  ", "\t", "\r\n", "\v\f "}) {
    std::string text(space);
    for (const char* const word : {"x0", "p1", "loose_sqrt", "+", "2", "x10", "*", "-"}) {
      text += word;
      text += space;
    }
    EXPECT_EQ(parsed(text, Language::kPostfix), e) << text;
  }
  EXPECT_EQ(parsed("x1", Language::kPostfix), Expression::create({Token::variable(1)}).value());
  for (const char* const text : {"x0 x1 +\x01", "x0 x1\x01 +", "x0 x1 +\xc3", "x0 x11x +", "x0 x1 sinh4", "x0,"}) {
    EXPECT_FALSE(parse(text, Language::kPostfix)) << text;
  }
  EXPECT_FALSE(parse(std::string_view("x0 x1 +\0", 8), Language::kPostfix));
  EXPECT_FALSE(parse(std::string_view("x0\0x1 +", 8), Language::kPostfix));
}

TEST(Text, TokensOfManyTextsAreOneArray) {
  std::vector<Token> tokens;
  for (const Language language : kLanguages) {
    const Expression e = parsed("atan2(x3, -1.5) + p1^-nan");
    const std::size_t before = tokens.size();
    const auto needs = parseTokens(print(e, language), language, {}, tokens);
    ASSERT_TRUE(needs);
    EXPECT_TRUE(std::ranges::equal(std::span(tokens).subspan(before), e.tokens()));
    EXPECT_EQ(needs->stack_height, e.stackHeight());
    EXPECT_EQ(needs->variables, 4u);
    EXPECT_EQ(needs->parameters, 2u);
    const std::size_t after = tokens.size();
    for (const char* const bad : {"", "x0 x1", "x0 + )", "+ x0 +", R"({"op":"neg","args":[1,2]})"}) {
      const auto failed = parseTokens(bad, language, {}, tokens);
      ASSERT_FALSE(failed) << bad;
      EXPECT_EQ(failed.error().message, parse(bad, language).error().message);
      EXPECT_EQ(tokens.size(), after) << bad;
    }
  }
}

TEST(Text, DecimalsAreRoundedAsFromCharsRoundsThem) {
  Random random(9);
  for (int i = 0; i < 200'000; ++i) {
    std::string digits;
    for (std::uint64_t left = 1 + random.below(20); left > 0; --left) {
      digits += static_cast<char>('0' + (random.chance(0.3) ? 0 : random.below(10)));
    }
    if (random.chance(0.8)) digits.insert(random.below(digits.size() + 1), 1, '.');
    double expected = 0, value = 0;
    ASSERT_EQ(std::from_chars(digits.data(), digits.data() + digits.size(), expected).ec, std::errc()) << digits;
    ASSERT_EQ(text::readNumber(digits, value), text::NumberFault::kNone) << digits;
    ASSERT_EQ(value, expected) << digits;
  }
}

TEST(Text, JsonAcceptsKeysInAnyOrderAndExactIntegers) {
  EXPECT_EQ(parsed(R"( {"args": [ {"var" : 1} , 2 ] , "op" : "-"} )", Language::kJson), parsed("x1 - 2"));
  EXPECT_EQ(parsed("-0", Language::kJson), parsed("-0"));
  EXPECT_EQ(parsed("18446744073709551616", Language::kJson), parsed("18446744073709551616"));
  EXPECT_EQ(parsed("\"-inf\"", Language::kJson), parsed("-inf"));
  EXPECT_EQ(parsed(R"({"op":"\u0061bs","args":[1]})", Language::kJson), parsed("abs(1)"));
}

TEST(RoundTrip, RandomExpressionsOfAllOperators) {
  ExpressionGenerator generator({.seed = 77,
                                 .min_nodes = 1,
                                 .max_nodes = 40,
                                 .variables = 12,
                                 .parameters = 5,
                                 .constant_probability = 0.5,
                                 .parameter_probability = 0.2,
                                 .special_probability = 0.5});
  const ColumnNames columns = {"mass", "x0",  "p1",    "pi",   "sin", "two words",
                               "inf",  "nan", "naïve", "mass", "x7",  "quote\"`\\\n"};
  for (int i = 0; i < 20'000; ++i) {
    const Expression e = generator.next();
    for (const Language language : kLanguages) {
      for (const ColumnNames& names : {ColumnNames(), columns}) {
        const std::string text = print(e, language, names);
        const auto back = parse(text, language, names);
        ASSERT_TRUE(back) << withCaret(back.error(), text, "text");
        ASSERT_EQ(*back, e) << text;
      }
    }
  }
}

TEST(RoundTrip, SignsPowersAndQuotientsNested) {
  // Few operators, so that all their nestings occur.
  ExpressionGenerator generator({.min_nodes = 1,
                                 .max_nodes = 12,
                                 .variables = 1,
                                 .ops = {Op::kNeg, Op::kPow, Op::kDiv, Op::kSub},
                                 .constant_probability = 0.6,
                                 .special_probability = 0.2});
  for (int i = 0; i < 50'000; ++i) {
    const Expression e = generator.next();
    const std::string text = print(e, Language::kInfix);
    ASSERT_EQ(parsed(text), e) << text;
  }
}

TEST(RoundTrip, EveryNumberReadsBackExactly) {
  Random random(5);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t bits = random.next();
    double value;
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    const Expression e = Expression::create({Token::constant(value)}).value();
    const Language language = kLanguages[i % 4];
    ASSERT_EQ(parsed(print(e, language), language), e) << print(e, language);
  }
}

TEST(Columns, NamesAreParsedAndPrinted) {
  const ColumnNames columns = {"mass", "speed", "two words", "x0", "sin", "mass"};
  EXPECT_EQ(columns.size(), 6u);
  EXPECT_EQ(columns.find("speed"), 1u);
  EXPECT_EQ(columns.find("mass"), 0u) << "the first of equal names";
  EXPECT_FALSE(columns.find("Mass"));
  EXPECT_EQ(print(parsed("mass * speed ^ 2", Language::kInfix, columns), Language::kPostfix), "x0 x1 2 ^ *");
  EXPECT_EQ(print(parsed("x0 + speed", Language::kInfix, columns), Language::kPostfix), "x3 x1 +")
      << "a column takes precedence over x<i>";
  EXPECT_EQ(print(parsed("sin(sin)", Language::kInfix, columns), Language::kPostfix), "x4 sin");
  EXPECT_EQ(print(parsed("sin", Language::kInfix, columns), Language::kInfix, columns), "sin");
  EXPECT_EQ(print(parsed("sin", Language::kInfix, columns), Language::kPostfix, columns), "`sin`")
      << "in this form it is an operator";
  EXPECT_EQ(print(parsed("x5 + x00 + x2"), Language::kInfix, columns), "x[5] + mass + `two words`");
  EXPECT_EQ(print(parsed("x2"), Language::kJson, columns), R"({"var":"two words"})");
  EXPECT_EQ(parsed(R"({"var":"two words"})", Language::kJson, columns), parsed("x2"));
  EXPECT_EQ(print(parsed("x3"), Language::kInfix, columns), "x0");
}

TEST(Columns, NamesThatAreNotUtf8AreWrittenAsIndices) {
  const ColumnNames columns = {"bad\xff", "caf\xc3\xa9"};
  EXPECT_EQ(print(parsed("x0"), Language::kJson, columns), R"({"var":0})");
  EXPECT_EQ(print(parsed("x1"), Language::kJson, columns), "{\"var\":\"caf\xc3\xa9\"}");
}

struct Malformed {
  Language language;
  std::string text;
  std::size_t line, column, length;
  const char* message;
  Errc code = Errc::kSyntax;
};

const Malformed kMalformed[] = {
    {Language::kInfix, "", 1, 1, 0, "expected an operand before the end of the text"},
    {Language::kInfix, "   ", 1, 4, 0, "expected an operand before the end of the text"},
    {Language::kInfix, "2 + * 3", 1, 5, 1, "expected an operand before '*'"},
    {Language::kInfix, "2 +", 1, 4, 0, "expected an operand before the end of the text"},
    {Language::kInfix, "x0 x1", 1, 4, 2, "expected an operator before 'x1'"},
    {Language::kInfix, "2(3)", 1, 2, 1, "expected an operator before '('"},
    {Language::kInfix, "x0 +\n  ) 2", 2, 3, 1, "expected an operand before ')'"},
    {Language::kInfix, "x0\r\n+ 2)", 2, 4, 1,
     "expected an operator or the end of the text before ')', which closes no '('"},
    {Language::kInfix, "(x0 + 1", 1, 8, 0,
     "expected an operator or ')' before the end of the text; '(' is open since line 1 column 1"},
    {Language::kInfix, "1 +\nsin((x0)", 2, 9, 0,
     "expected an operator or ')' before the end of the text; 'sin(' is open since line 2 column 1"},
    {Language::kInfix, "((", 1, 3, 0,
     "expected an operand before the end of the text; '(' is open since line 1 column 2"},
    {Language::kInfix, "()", 1, 2, 1, "expected an operand before ')'"},
    {Language::kInfix, "x0 , 1", 1, 4, 1, "expected an operator or the end of the text before ','"},
    {Language::kInfix, "(1, 2)", 1, 3, 1, "expected an operator or ')' before ','"},
    {Language::kInfix, "sin()", 1, 5, 1, "'sin' takes 1 argument, but none is given"},
    {Language::kInfix, "sin(1, 2)", 1, 6, 1, "'sin' takes 1 argument, but more are given"},
    {Language::kInfix, "atan2(1)", 1, 8, 1, "'atan2' takes 2 arguments, but 1 is given"},
    {Language::kInfix, "fma(1, 2)", 1, 9, 1, "'fma' takes 3 arguments, but 2 are given"},
    {Language::kInfix, "min(1,)", 1, 7, 1, "expected an operand before ')'"},
    {Language::kInfix, "sni(x0)", 1, 1, 3, "unknown function 'sni'; did you mean 'sin'?"},
    {Language::kInfix, "ln(x0)", 1, 1, 2, "unknown function 'ln'; did you mean 'log'?"},
    {Language::kInfix, "1 + arctan(x0)", 1, 5, 6, "unknown function 'arctan'; did you mean 'atan'?"},
    {Language::kInfix, "frobnicate(x0)", 1, 1, 10, "unknown function 'frobnicate'"},
    {Language::kInfix, "sin + 1", 1, 5, 1, "expected '(' before '+', to call 'sin'"},
    {Language::kInfix, "2 * y", 1, 5, 1,
     "unknown name 'y'; expected x<i>, p<j>, a column name, pi, inf, nan or a function"},
    {Language::kInfix, "x1048576", 1, 1, 8, "'x1048576' is above the largest index, 1048575", Errc::kInvalid},
    {Language::kInfix, "1 + p99999999999999999999", 1, 5, 21,
     "'p99999999999999999999' is above the largest index, 1048575", Errc::kInvalid},
    {Language::kInfix, "1e400", 1, 1, 5, "number '1e400' is out of the range of a double, 4.9e-324 to 1.8e308"},
    {Language::kInfix, "2 - 1e-400", 1, 5, 6, "number '1e-400' is out of the range of a double, 4.9e-324 to 1.8e308"},
    {Language::kInfix, "0x1p3", 1, 1, 5, "malformed number '0x1p3'; expected digits such as 12, 0.5 or 1e-3"},
    {Language::kInfix, "1.2.3", 1, 1, 5, "malformed number '1.2.3'; expected digits such as 12, 0.5 or 1e-3"},
    {Language::kInfix, "3x0", 1, 1, 3, "malformed number '3x0'; expected digits such as 12, 0.5 or 1e-3"},
    {Language::kInfix, "-1e", 1, 2, 2, "malformed number '1e'; expected digits such as 12, 0.5 or 1e-3"},
    {Language::kInfix, ". + 1", 1, 1, 1, "malformed number '.'; expected digits such as 12, 0.5 or 1e-3"},
    {Language::kInfix, "2 $ 3", 1, 3, 1, "expected an operator before '$'"},
    {Language::kInfix, "$", 1, 1, 1, "expected an operand before '$'"},
    {Language::kInfix, "1 \xe2\x88\x92 2", 1, 3, 3, "expected an operator before U+2212"},
    {Language::kInfix, std::string("1 + \0 2", 7), 1, 5, 1, "expected an operand before byte 0x00"},
    {Language::kInfix, "1 + \x80", 1, 5, 1, "expected an operand before byte 0x80"},
    {Language::kInfix, "1 + \x1b[0m", 1, 5, 1, "expected an operand before byte 0x1b"},
    {Language::kPostfix, "", 1, 1, 0, "expected an operand before the end of the text"},
    {Language::kPostfix, "x0 +", 1, 4, 1, "'+' needs 2 operands, but 1 precedes it"},
    {Language::kPostfix, "sin", 1, 1, 3, "'sin' needs 1 operand, but none precedes it"},
    {Language::kPostfix, "1 2 fma", 1, 5, 3, "'fma' needs 3 operands, but 2 precede it"},
    {Language::kPostfix, "1 2", 1, 4, 0, "expected an operator before the end of the text, which leaves 2 values"},
    {Language::kPostfix, "x0\n sni", 2, 2, 3, "unknown word 'sni'; did you mean 'sin'?"},
    {Language::kPostfix, "x0 (", 1, 4, 1,
     "unknown word '('; expected x<i>, p<j>, a column name, a number or an operator"},
    {Language::kPostfix, "-x0", 1, 1, 3,
     "unknown word '-x0'; expected x<i>, p<j>, a column name, a number or an operator"},
    {Language::kPostfix, "1 -2..", 1, 4, 3, "malformed number '2..'; expected digits such as 12, 0.5 or 1e-3"},
    {Language::kPostfix, std::string("\0", 1), 1, 1, 1,
     "unknown word '\\x00'; expected x<i>, p<j>, a column name, a number or an operator"},
    {Language::kPostfix, "x2000000 sin", 1, 1, 8, "'x2000000' is above the largest index, 1048575", Errc::kInvalid},
    {Language::kPrefix, "", 1, 1, 0, "expected an operand before the end of the text"},
    {Language::kPrefix, "+ 1", 1, 4, 0, "'+' needs 2 operands, but 1 follows it before the end of the text"},
    {Language::kPrefix, "+ fma 1 2", 1, 10, 0, "'fma' needs 3 operands, but 2 follow it before the end of the text"},
    {Language::kPrefix, "sin", 1, 4, 0, "'sin' needs 1 operand, but none follows it before the end of the text"},
    {Language::kPrefix, "+ 1 2 3", 1, 7, 1, "expected the end of the text before '3'"},
    {Language::kJson, "", 1, 1, 0, "malformed JSON: expected '[', '{', or a literal before the end of the text"},
    {Language::kJson, "1 2", 1, 3, 1, "malformed JSON: expected the end of the text before '2'"},
    {Language::kJson, "[1]", 1, 1, 1, "expected an object, a number, \"inf\", \"-inf\" or \"nan\" before '['"},
    {Language::kJson, "true", 1, 1, 4, "expected an object, a number, \"inf\", \"-inf\" or \"nan\" before 'true'"},
    {Language::kJson, "\"pi\"", 1, 1, 4, "expected an object, a number, \"inf\", \"-inf\" or \"nan\" before '\"pi\"'"},
    {Language::kJson, "nul", 1, 1, 3, "malformed JSON: invalid literal"},
    {Language::kJson, "\"inf", 1, 5, 0, "malformed JSON: invalid string: missing closing quote"},
    {Language::kJson, "{}", 1, 2, 1, "expected a key \"op\", \"var\" or \"param\" before '}'"},
    {Language::kJson, R"({"op":"add"})", 1, 12, 1, "expected a key \"args\" beside \"op\" before '}'"},
    {Language::kJson, R"({"args":[1]})", 1, 12, 1, "expected a key \"op\" beside \"args\" before '}'"},
    {Language::kJson, R"({"op":"add","args":[1]})", 1, 23, 1, "'add' takes 2 arguments, but 1 is given"},
    {Language::kJson, R"({"op":"addd","args":[1]})", 1, 8, 4, "unknown function 'addd'; did you mean 'add'?"},
    {Language::kJson, R"({"op":3,"args":[1]})", 1, 7, 1, "expected the name of an operator before '3'"},
    {Language::kJson, R"({"op":"neg","args":1})", 1, 20, 1, "expected an array of operands before '1'"},
    {Language::kJson, R"({"op":"neg","args":[[1]]})", 1, 21, 1,
     "expected an object, a number, \"inf\", \"-inf\" or \"nan\" before '['"},
    {Language::kJson, R"({"op":"neg","op":"neg"})", 1, 13, 4,
     "unexpected key 'op': an object has \"op\" and \"args\", or \"var\", or \"param\", once"},
    {Language::kJson, R"({"vra":1})", 1, 2, 5, "unknown key 'vra'; expected \"op\", \"args\", \"var\" or \"param\""},
    {Language::kJson, R"({"var":-1})", 1, 8, 2, "expected an index or a column name before '-1'"},
    {Language::kJson, R"({"var":1.5})", 1, 8, 3, "expected an index or a column name before '1.5'"},
    {Language::kJson, R"({"var":"mass"})", 1, 9, 4, "unknown column 'mass'"},
    {Language::kJson, R"({"param":"p"})", 1, 10, 3, "expected an index before '\"p\"'"},
    {Language::kJson, R"({"var":1048576})", 1, 8, 7, "variable index '1048576' is above the largest index, 1048575",
     Errc::kInvalid},
    {Language::kJson, "{\"op\":\"neg\",\n \"args\":[1 2]}", 2, 12, 1, "malformed JSON: expected ']' before '2'"},
    {Language::kJson, R"({"op" "neg"})", 1, 7, 5, "malformed JSON: expected ':' before '\"neg\"'"},
    {Language::kJson, "1e400", 1, 1, 5, "number '1e400' is out of the range of a double, 4.9e-324 to 1.8e308"},
    {Language::kJson, "-1e-400", 1, 2, 6, "number '1e-400' is out of the range of a double, 4.9e-324 to 1.8e308"},
};

TEST(Errors, ReportFoundExpectedAndPosition) {
  for (const Malformed& m : kMalformed) {
    const auto e = parse(m.text, m.language);
    ASSERT_FALSE(e) << m.text;
    EXPECT_EQ(e.error().message, m.message) << m.text;
    EXPECT_EQ(e.error().code, m.code) << m.text;
    ASSERT_TRUE(e.error().where) << m.text;
    EXPECT_EQ(e.error().where->line, m.line) << m.text;
    EXPECT_EQ(e.error().where->column, m.column) << m.text;
    EXPECT_EQ(e.error().where->length, m.length) << m.text;
  }
}

TEST(Errors, SuggestTheNearestColumnNames) {
  const ColumnNames columns = {"mass", "speed", "spend"};
  EXPECT_EQ(parse("2 * spee", Language::kInfix, columns).error().message, "unknown name 'spee'; did you mean 'speed'?");
  EXPECT_EQ(parse("spexd", Language::kInfix, columns).error().message,
            "unknown name 'spexd'; did you mean 'speed' or 'spend'?");
  EXPECT_EQ(parse("speedd", Language::kPostfix, columns).error().message,
            "unknown word 'speedd'; did you mean 'speed'?");
  EXPECT_EQ(parse("spexd", Language::kPostfix, {"spead", "speed"}).error().message,
            "unknown word 'spexd'; did you mean 'spead' or 'speed'?");
  EXPECT_EQ(parse(R"({"var":"mas"})", Language::kJson, columns).error().message,
            "unknown column 'mas'; did you mean 'mass'?");
  EXPECT_EQ(parse("net * 2", Language::kInfix, {"net weight", "next"}).error().message,
            "unknown name 'net'; did you mean '`net weight`'?");
  EXPECT_EQ(parse("`nett weight`", Language::kInfix, {"net weight", "next"}).error().message,
            "unknown column 'nett weight'; did you mean 'net weight'?");
  EXPECT_EQ(parse("`foo`", Language::kInfix, {"net weight", "next"}).error().message,
            "unknown column 'foo'; the columns are 'net weight', next");
}

TEST(Errors, TruncateLongWords) {
  const std::string message = parse(std::string(1000, 'y'), Language::kInfix).error().message;
  EXPECT_LT(message.size(), 140u);
  EXPECT_EQ(message.substr(0, 20), "unknown name 'yyyyyy");
  const ColumnNames columns({std::string(1'000'000, 'a'), "x\x1b[31m1"}, {{std::string(1'000'000, 'y'), "target"}});
  for (const std::string& text : {std::string("`b`"), "`" + std::string(1'000'000, 'y') + "`"}) {
    const std::string named = parse(text, Language::kInfix, columns).error().message;
    EXPECT_LT(named.size(), 200u) << named.substr(0, 300);
    EXPECT_EQ(named.find('\x1b'), std::string::npos);
  }
  const std::string digits = R"({"var":)" + std::string(300, '9') + "}";
  EXPECT_LT(parse(digits, Language::kJson).error().message.size(), 140u);
}

TEST(Caret, IsBelowTheErrorPosition) {
  const std::string text = "x0 + 1\nx0 + foo * 2\n";
  const Error error = parse(text, Language::kInfix).error();
  EXPECT_EQ(withCaret(error, text, "file.txt"),
            "file.txt:2:1: expected an operator before 'x0'\n"
            "x0 + foo * 2\n"
            "^~");
  const std::string other = "1 + sni(2)\r\n";
  EXPECT_EQ(withCaret(parse(other, Language::kInfix).error(), other, "expression 3"),
            "expression 3:1:5: unknown function 'sni'; did you mean 'sin'?\n"
            "1 + sni(2)\n"
            "    ^~~");
}

TEST(Caret, IsCorrectAtTheEndAndAfterMultibyteCharacters) {
  EXPECT_EQ(withCaret(parse("1 +", Language::kInfix).error(), "1 +", "e"),
            "e:1:4: expected an operand before the end of the text\n1 +\n   ^");
  // Two multibyte characters before the caret; the tab becomes one space.
  const Error error{Errc::kSyntax, "wrong", Span{1, 8, 1}};
  EXPECT_EQ(withCaret(error, "\xc3\xa9\t\xe2\x88\x92 $ 1", "e"), "e:1:8: wrong\n\xc3\xa9 \xe2\x88\x92 $ 1\n    ^");
}

TEST(Caret, LongLinesAreTruncatedAroundIt) {
  const std::string text = std::string(500, ' ') + "$" + std::string(500, ' ');
  const std::string shown = withCaret(parse(text, Language::kInfix).error(), text, "e");
  const std::size_t first = shown.find('\n');
  const std::size_t second = shown.find('\n', first + 1);
  const std::string line = shown.substr(first + 1, second - first - 1);
  const std::string caret = shown.substr(second + 1);
  EXPECT_LE(line.size(), 126u);
  EXPECT_EQ(line.substr(0, 3), "...");
  EXPECT_EQ(line.substr(line.size() - 3), "...");
  EXPECT_EQ(line.find('$'), caret.find('^'));
}

TEST(Caret, ReplacesTerminalControlCharacters) {
  const Error error{Errc::kSyntax, "wrong", Span{1, 6, 1}};
  // The escape character; U+009B, an escape sequence for some terminals; a byte that is no UTF-8; a truncated
  // character.
  EXPECT_EQ(withCaret(error, "\x1b\xc2\x9b\x9b $\xc3", "e"), "e:1:6: wrong\n  \xef\xbf\xbd $\xef\xbf\xbd\n    ^");
  const std::string line = std::string(1'000'000, '\x80') + "$";
  EXPECT_LT(withCaret({Errc::kSyntax, "wrong", Span{1, 500'000, 1}}, line, "e").size(), 700u)
      << "the line is truncated";
}

TEST(Caret, IsAbsentWithoutAPosition) {
  EXPECT_EQ(withCaret(Error{Errc::kIo, "no such file", {}}, "text", "here"), "here: no such file");
}

bool parses(const std::string& text, Language language) { return parse(text, language).ok(); }

std::string repeated(std::string_view piece, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += piece;
  return out;
}

// Neither the stack nor the time limit of ctest suffices for a parser that recurses or takes quadratic time.
// Sanitizers make the stack frames of a recursion so large that fewer tokens find it.
#ifdef SRJIT_SANITIZED
constexpr std::size_t kMany = 100'000;
#else
constexpr std::size_t kMany = 1'000'000;
#endif

TEST(Size, ManyTokensParseInLinearTime) {
  const std::string parentheses(kMany, '(');
  const std::string call = repeated("sin(", kMany);
  const std::string object = repeated(R"({"op":"neg","args":[)", kMany);
  EXPECT_FALSE(parses(parentheses, Language::kInfix));
  EXPECT_FALSE(parses(parentheses + "x0", Language::kInfix));
  EXPECT_TRUE(parses(parentheses + "x0" + std::string(kMany, ')'), Language::kInfix));
  EXPECT_FALSE(parses(std::string(kMany, ')'), Language::kInfix));
  EXPECT_FALSE(parses(std::string(kMany, '-'), Language::kInfix));
  EXPECT_TRUE(parses(std::string(kMany, '-') + "x0", Language::kInfix));
  EXPECT_TRUE(parses(std::string(kMany, '+') + "x0", Language::kInfix));
  EXPECT_TRUE(parses(repeated("2^", kMany) + "2", Language::kInfix));
  EXPECT_TRUE(parses(call + "x0" + std::string(kMany, ')'), Language::kInfix));
  EXPECT_FALSE(parses(call, Language::kInfix));
  EXPECT_TRUE(parses(repeated("x0 + ", kMany) + "1", Language::kInfix));
  EXPECT_FALSE(parses(std::string(kMany, '9'), Language::kInfix));
  EXPECT_TRUE(parses("0." + std::string(kMany, '9'), Language::kInfix));
  EXPECT_FALSE(parses(std::string(kMany, '\n') + "$", Language::kInfix));
  EXPECT_TRUE(parses("x0" + repeated(" neg", kMany), Language::kPostfix));
  EXPECT_FALSE(parses(repeated("x0 ", kMany), Language::kPostfix));
  EXPECT_FALSE(parses(repeated("+ x0 ", kMany), Language::kPrefix));
  EXPECT_TRUE(parses(repeated("neg ", kMany) + "1", Language::kPrefix));
  EXPECT_FALSE(parses(object, Language::kJson));
  EXPECT_TRUE(parses(object + "1" + repeated("]}", kMany), Language::kJson));
  EXPECT_FALSE(parses(std::string(kMany, '['), Language::kJson));
}

TEST(Size, DeepExpressionsRoundTripInEveryForm) {
  constexpr std::size_t kDeep = kMany / 3;
  const Expression chain = parsed(std::string(kDeep, '-') + "x0");
  const Expression tower = parsed(repeated("(x0^", kDeep) + "2" + std::string(kDeep, ')'));
  const Expression left = parsed("x0" + repeated(" x1 / neg", kDeep), Language::kPostfix);
  for (const Expression& e : {chain, tower, left}) {
    for (const Language language : kLanguages) EXPECT_EQ(parsed(print(e, language), language), e);
  }
}

TEST(Text, QuotesEscapeUnprintableCharacters) {
  EXPECT_EQ(text::inQuotes("a\tb\x7f"), "'a\\x09b\\x7f'");
  EXPECT_EQ(text::inQuotes("Gr\u00f6\u00dfe"), "'Gr\u00f6\u00dfe'");
  EXPECT_EQ(text::inQuotes("\u0085"), "'\\xc2\\x85'");
  EXPECT_EQ(text::inQuotes("\xff\xc3"), "'\\xff\\xc3'");
  EXPECT_EQ(text::inQuotes("a\u202eb"), "'a\\xe2\\x80\\xaeb'") << "it would reverse the text after it";
  EXPECT_EQ(text::printable("a\n`\\\x1b\xff" + std::string(100, 'b')), "a\\x0a`\\\\x1b\\xff" + std::string(100, 'b'));
  EXPECT_EQ(text::inQuotes(std::string(40, 'a')), "'" + std::string(40, 'a') + "'");
  EXPECT_EQ(text::inQuotes(std::string(39, 'a') + "\u00e9"), "'" + std::string(39, 'a') + "...'");
  EXPECT_EQ(text::printable(std::string(100, 'a') + "\x1b[2J\u00e9\xff"),
            std::string(100, 'a') + "\\x1b[2J\u00e9\\xff");
}

TEST(Text, SpaceIsAsciiWhiteSpace) {
  for (int c = 0; c < 256; ++c) {
    const bool expected = c < 128 && std::string_view(" \t\n\v\f\r").find(static_cast<char>(c)) != std::string::npos;
    EXPECT_EQ(text::isSpace(static_cast<char>(c)), expected) << c;
  }
}

}  // namespace
}  // namespace srjit

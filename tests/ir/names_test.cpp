// Names of columns: the meaning of words, quoting of any name, round trips.
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ir/text/lexer.h"
#include "tests/generators/data.h"

namespace srjit {
namespace {

Expression of(Token token) { return Expression::create({token}).value(); }
Expression variable(std::uint32_t index) { return of(Token::variable(index)); }
Expression parameter(std::uint32_t index) { return of(Token::parameter(index)); }

Expression parsed(std::string_view text, const ColumnNames& columns, Language language = Language::kInfix) {
  auto e = parse(text, language, columns);
  if (!e) throw std::runtime_error(withCaret(e.error(), text, "test"));
  return *std::move(e);
}

std::string faultOf(std::string_view text, const ColumnNames& columns, Language language = Language::kInfix) {
  const auto e = parse(text, language, columns);
  if (e) return "no error";
  EXPECT_EQ(e.error().code, Errc::kSyntax);
  return e.error().message;
}

TEST(Names, IndexLikeWordsAreNamesIfAColumnHasOne) {
  const ColumnNames columns = {"x1", "x2"};
  for (const Language language : {Language::kInfix, Language::kPostfix, Language::kPrefix}) {
    EXPECT_EQ(parsed("x1", columns, language), variable(0));
    EXPECT_EQ(parsed("x2", columns, language), variable(1));
    for (const std::string word : {"x0", "x3", "x01", "x99999999999"}) {
      EXPECT_EQ(faultOf(word, columns, language),
                "'" + word +
                    "' names no column; since columns are called x1, x2, words of this form are names; the "
                    "columns are x1, x2; x[0] is the first column");
    }
    EXPECT_EQ(parsed("x[0]", columns, language), variable(0)) << "always an index";
    EXPECT_EQ(parsed("p0", columns, language), parameter(0));
    EXPECT_EQ(print(variable(1), language, columns), "x2");
    EXPECT_EQ(print(variable(2), language, columns), "x[2]") << "no column has this index";
  }
  EXPECT_EQ(parsed(R"({"var":1})", columns, Language::kJson), variable(1)) << "a number is an index";
  EXPECT_EQ(parsed(R"({"var":"x1"})", columns, Language::kJson), variable(0)) << "a string is a name";
  EXPECT_EQ(faultOf(R"({"var":"x0"})", columns, Language::kJson), "unknown column 'x0'; did you mean 'x1' or 'x2'?");
  EXPECT_EQ(parsed("x0 + x01", {"mass", "x"}), parsed("mass + x", {"mass", "x"})) << "no name has this form";
  EXPECT_EQ(
      faultOf("x0", {"x1", "mass"}),
      "'x0' names no column; since a column is called x1, words of this form are names; the columns are x1, mass; "
      "x[0] is the first column");
}

TEST(Names, MessagesNameColumns) {
  const ColumnNames columns = {"mass", "net \nweight"};
  EXPECT_EQ(columns.describe(0), "column 'mass' (x0)");
  EXPECT_EQ(columns.describe(1), "column 'net \\x0aweight' (x1)");
  EXPECT_EQ(columns.describe(2), "column x2") << "there is no such column";
  EXPECT_EQ(ColumnNames().describe(7), "column x7");
}

TEST(Names, ParameterLikeWordsAreNamesIfAColumnHasOne) {
  const ColumnNames columns = {"p1", "mass"};
  EXPECT_EQ(parsed("p1", columns), variable(0));
  EXPECT_EQ(
      faultOf("p0", columns),
      "'p0' names no column; since a column is called p1, words of this form are names; the columns are p1, mass; "
      "p[0] is the first parameter");
  EXPECT_EQ(parsed("p[1]", columns), parameter(1));
  EXPECT_EQ(parsed("p[1] mass *", columns, Language::kPostfix), parsed("p1 * mass", {"a", "mass"}));
  EXPECT_EQ(print(parameter(1), Language::kInfix, columns), "p[1]");
  EXPECT_EQ(print(parameter(1), Language::kInfix, {"mass"}), "p1");
  EXPECT_EQ(parsed(R"({"param":1})", columns, Language::kJson), parameter(1));
  EXPECT_EQ(parsed("x1", columns), variable(1)) << "x and p are independent";
  EXPECT_EQ(parsed("pi", {"pi"}), variable(0));
}

TEST(Names, TargetAndWeightsAreNoVariables) {
  const ColumnNames columns({"x0", "x2"}, {{"x1", "target"}, {"w", "weights"}});
  EXPECT_EQ(parsed("x0", columns), variable(0));
  EXPECT_EQ(parsed("x2", columns), variable(1));
  for (const Language language : {Language::kInfix, Language::kPostfix, Language::kPrefix}) {
    EXPECT_EQ(faultOf("x1", columns, language), "'x1' is the target column, not a variable");
    EXPECT_EQ(faultOf("w", columns, language), "'w' is the weights column, not a variable");
    EXPECT_EQ(faultOf("`w`", columns, language), "'w' is the weights column, not a variable");
  }
  EXPECT_EQ(faultOf(R"({"var":"x1"})", columns, Language::kJson), "'x1' is the target column, not a variable");
  EXPECT_EQ(print(variable(2), Language::kInfix, columns), "x[2]");
  const ColumnNames target_alone({"a", "b"}, {{"x5", "target"}});
  EXPECT_EQ(faultOf("x0", target_alone),
            "'x0' names no column; since a column is called x5, words of this form are names; the columns are a, b; "
            "x[0] is the first column");
  EXPECT_EQ(faultOf("pi", {{"a"}, {{"pi", "target"}}}), "'pi' is the target column, not a variable");
  EXPECT_EQ(faultOf("y", ColumnNames({}, {{"y", "target"}})), "'y' is the target column, not a variable");
  const auto error = parse("a + `y`", Language::kInfix, {{"a"}, {{"y", "target"}}}).error();
  EXPECT_EQ(error.where->column, 5u);
  EXPECT_EQ(error.where->length, 3u);
}

TEST(Names, BracketsDenoteIndices) {
  EXPECT_EQ(parsed("x[0]*p[2]^x[10]", {}), parsed("x0*p2^x10", {}));
  EXPECT_EQ(parsed("* x[0] p[2]", {}, Language::kPrefix), parsed("x0*p2", {}));
  EXPECT_EQ(parsed("x[3]", {"x"}), variable(3));
  EXPECT_EQ(parsed("`x[3]`", {"x[3]"}), variable(0));
  EXPECT_EQ(parsed("x[3]", {"x[3]"}, Language::kPostfix), variable(3));
  EXPECT_EQ(parse("x[1048576]", Language::kInfix).error().message, "'x[1048576]' is above the largest index, 1048575");
  for (const std::string bad : {"x[", "x[]", "x[-1]", "x[1", "x [1]", "x[ 1]", "y[1]"}) {
    EXPECT_FALSE(parse(bad, Language::kInfix)) << bad;
    EXPECT_FALSE(parse(bad, Language::kPostfix)) << bad;
  }
}

TEST(Names, MayHaveLettersOfAllScripts) {
  for (const std::string name : {"größe", "Δt", "μ", "µm", "x₁", "速度", "naïve_2", "скорость"}) {
    const ColumnNames columns = {"a", name};
    EXPECT_TRUE(text::isIdentifier(name)) << name;
    EXPECT_EQ(parsed(name + "*2+" + name + "/a", columns), parsed("x1*2+x1/x0", {})) << name;
    for (const Language language : {Language::kInfix, Language::kPostfix, Language::kPrefix}) {
      EXPECT_EQ(print(variable(1), language, columns), name);
    }
  }
  for (const std::string sign : {"×", "−", "÷", "·", "²", "\u00a0", "\u2009", "\u200b", "（", "∂", "\ufeff"}) {
    EXPECT_FALSE(text::isIdentifier("a" + sign)) << sign;
    EXPECT_EQ(print(variable(0), Language::kInfix, {"a" + sign}).front(), '`') << sign;
  }
  EXPECT_EQ(faultOf("x0 − 1", {}), "expected an operator before U+2212");
  EXPECT_EQ(faultOf("x0−1", {}), "expected an operator before U+2212");
  EXPECT_EQ(faultOf("3größe", {"größe"}), "malformed number '3größe'; expected digits such as 12, 0.5 or 1e-3");
}

TEST(Names, AnyNameCanBeBackquoted) {
  const ColumnNames columns = {"net weight", "a`b", "a\\b", "tab\there", "bad\xff", "sin", "2", "", "-a", "x0"};
  const char* const written[] = {"`net weight`", R"(`a\`b`)", R"(`a\\b`)", R"(`tab\x09here`)",
                                 R"(`bad\xff`)", "`sin`",     "`2`",       "``",
                                 "`-a`",         "`x0`"};
  for (std::uint32_t i = 0; i < columns.size(); ++i) {
    for (const Language language : {Language::kInfix, Language::kPostfix, Language::kPrefix}) {
      EXPECT_EQ(parsed(written[i], columns, language), variable(i)) << written[i];
    }
    const bool bare = columns[i] == "sin" || columns[i] == "x0";
    EXPECT_EQ(print(variable(i), Language::kInfix, columns), bare ? columns[i] : written[i]);
    EXPECT_EQ(print(variable(i), Language::kPostfix, columns), columns[i] == "x0" ? columns[i] : written[i]);
  }
  EXPECT_EQ(parsed("-`net weight`^2*sin(`2`)", columns), parsed("-x0^2*sin(x6)", {}));
  EXPECT_EQ(parsed("+ `net weight` * `sin` 2", columns, Language::kPrefix), parsed("x0 + x5*2", {}));
}

TEST(Names, ErrorsInBackquotesHaveTheirPosition) {
  const struct {
    const char *text, *message;
    std::size_t column;
  } cases[] = {
      {"1 + `net weight", "expected another '`' before the end of the text, to close the name", 5},
      {"1 + `net\\",
       "'\\' is no escape; a quoted name has '\\\\' for a backslash, '\\`' for a backquote and '\\x09' for "
       "any byte",
       9},
      {"1 + `n\\t`",
       "'\\t' is no escape; a quoted name has '\\\\' for a backslash, '\\`' for a backquote and '\\x09' for "
       "any byte",
       7},
      {"1 + `n\\x0`",
       "'\\x' is no escape; a quoted name has '\\\\' for a backslash, '\\`' for a backquote and '\\x09' "
       "for any byte",
       7},
      {"1 + `n\tx`", "byte 0x09 in a quoted name; write '\\x09'", 7},
      {"`a` `b`", "expected an operator before '`b`'", 5},
      {"`a`(1)", "expected an operator before '('", 4},
  };
  for (const auto& c : cases) {
    const auto e = parse(c.text, Language::kInfix, {"a", "b"});
    ASSERT_FALSE(e) << c.text;
    EXPECT_EQ(e.error().message, c.message) << c.text;
    EXPECT_EQ(e.error().where->column, c.column) << c.text;
  }
  EXPECT_EQ(faultOf("`a`b 1 +", {"a"}, Language::kPostfix), "expected white space before 'b'");
  EXPECT_EQ(faultOf("`a`\n`b", {"a"}, Language::kPostfix),
            "expected another '`' before the end of the text, to close the name");
}

/// A name of up to five pieces: words of the grammar, and random bytes.
std::string randomName(Random& random) {
  static const std::string kPieces[] = {"a",  "x",   "p",    "0",    "1",    "[",   "]",  "`", "\\", " ",  "\t",
                                        "\n", "sin", "nan",  "inf",  "pi",   "-",   "+",  "(", "ß",  "速", "\xff",
                                        "^",  "\"",  "\x1b", "\xc3", "\xa0", "max", "1e", ".", "x1", "p0", ""};
  std::string name;
  for (std::uint64_t count = random.below(6); count > 0; --count) name += kPieces[random.below(std::size(kPieces))];
  return name;
}

TEST(Names, PrintedExpressionsReadBackForAnyNames) {
  Random random(11);
  ExpressionGenerator generator({.max_nodes = 12, .variables = 8, .parameters = 3, .parameter_probability = 0.2});
  for (int i = 0; i < 5'000; ++i) {
    std::vector<std::string> names(random.below(9));
    for (std::string& name : names) name = randomName(random);
    std::vector<OtherColumn> others;
    if (random.below(2) == 0) others.push_back({randomName(random), "target"});
    const ColumnNames columns(names, others);
    const Expression e = generator.next();
    for (const Language language : kLanguages) {
      const std::string text = print(e, language, columns);
      ASSERT_EQ(text::printable(text), text) << "one line of UTF-8";
      const auto back = parse(text, language, columns);
      ASSERT_TRUE(back) << withCaret(back.error(), text, "text");
      ASSERT_EQ(*back, e) << text;
    }
  }
}

TEST(Names, ListsAreTruncated) {
  EXPECT_EQ(text::listNames(std::vector<std::string>{"a", "net weight", "b\x1b"}), "a, 'net weight', 'b\\x1b'");
  const std::vector<std::string> many(21, "a");
  EXPECT_TRUE(text::listNames(many).ends_with(", a, ... (21 in all)"));
  const std::vector<std::string> longest(20, std::string(1'000'000, 'a'));
  EXPECT_LT(text::listNames(longest).size(), 1000u);
}

}  // namespace
}  // namespace srjit

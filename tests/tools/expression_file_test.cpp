#include "tools/files/expressions.h"

#include <gmock/gmock.h>

#include "tests/generators/scratch.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/report.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(ExpressionFile, SkipsCommentsAndBlankLines) {
  const auto list = parseExpressions("\xEF\xBB\xBF# a comment\n\nx0 + 1\r\n   # another\n \t \nx1*p0^p1\t1.5 -2e3\nx2",
                                     "f.txt", Language::kInfix);
  ASSERT_EQ(list.size(), 3);
  EXPECT_EQ(list[0].text, "x0 + 1");
  EXPECT_EQ(list[0].line, 3);
  EXPECT_EQ(list[0].origin, "f.txt");
  EXPECT_THAT(list[0].parameters(), IsEmpty());
  EXPECT_TRUE(list[0].ok());
  EXPECT_EQ(list[1].line, 6);
  EXPECT_THAT(list[1].parameters(), ElementsAre(1.5, -2000));
  EXPECT_EQ(list[1].expression->parameterCount(), 2);
  EXPECT_EQ(list[2].line, 7);
}

TEST(ExpressionFile, BadLinesDoNotStopOthers) {
  const auto list = parseExpressions("x0\nx0 + * 2\nx0*p0\t1.5 abc\nx1\n", "f.txt", Language::kInfix);
  ASSERT_EQ(list.size(), 4);
  EXPECT_TRUE(list[0].ok());
  ASSERT_FALSE(list[1].ok());
  EXPECT_EQ(list[1].expression.error().code, Errc::kSyntax);
  EXPECT_THAT(list[1].expression.error().message, StartsWith("f.txt:2:6: "));
  EXPECT_THAT(list[1].expression.error().message, HasSubstr("\nx0 + * 2\n     ^"));
  EXPECT_EQ(list[1].expression.error().where->line, 2);
  ASSERT_FALSE(list[2].ok());
  EXPECT_THAT(list[2].expression.error().message, StartsWith("f.txt:3:11: parameter 'abc' is not a number\n"));
  EXPECT_TRUE(list[3].ok());
}

TEST(ExpressionFile, ArgumentsAreNumbered) {
  const std::vector<std::string> arguments = {"a + 1", "a +", "p0\t7"};
  const auto list = parseArguments(arguments, Language::kInfix, ColumnNames({"a"}));
  ASSERT_EQ(list.size(), 3);
  EXPECT_TRUE(list[0].ok());
  EXPECT_THAT(list[1].expression.error().message, StartsWith("expression 2:1:4: "));
  EXPECT_THAT(list[2].parameters(), ElementsAre(7));
}

TEST(ExpressionFile, UnreadableFileIsAnError) {
  const Scratch scratch;
  EXPECT_EQ(readExpressions(scratch.path("none"), Language::kInfix).error().code, Errc::kIo);
  EXPECT_EQ(readExpressions(scratch.write("some", "x0\n"), Language::kInfix)->size(), 1);
}

TEST(ExpressionFile, ExpressionsMustFitTheData) {
  auto list = parseExpressions("x3 + x1\nx1 + x10 * x9\np0 + p2\t1\np0\nx010 + x[10]\n", "f.txt", Language::kInfix);
  EXPECT_TRUE(requireInputs(list[0], 4));
  EXPECT_FALSE(requireInputs(list[1], 4));
  EXPECT_EQ(list[1].expression.error().message,
            "f.txt:2:6: variable x10, but the data has 4 variables\nx1 + x10 * x9\n     ^~~");
  EXPECT_EQ(list[1].expression.error().code, Errc::kInvalid);
  EXPECT_FALSE(requireInputs(list[1], 40)) << "an error is kept";
  EXPECT_FALSE(requireInputs(list[2], 4));
  EXPECT_THAT(list[2].expression.error().message, StartsWith("f.txt:3:6: parameter p2, but one is given\n"));
  EXPECT_FALSE(requireInputs(list[3], 4));
  EXPECT_THAT(list[3].expression.error().message, StartsWith("f.txt:4:1: parameter p0, but no parameters are given\n"));
  EXPECT_FALSE(requireInputs(list[4], 1));
  EXPECT_THAT(list[4].expression.error().message, StartsWith("f.txt:5:8: variable x10, but the data has 1 variable\n"));
}

TEST(ExpressionFile, MoreParametersThanTheExpressionHasAreAnError) {
  const auto list =
      parseExpressions("p0\t1 2\nx0\t1\np2 + p0\t1 2 3  4 5\np0*p1\t1 2 \nx0\t\n", "f.txt", Language::kInfix);
  EXPECT_EQ(list[0].expression.error().message,
            "f.txt:1:6: 2 parameters are given, but the expression has p0 only\np0 1 2\n     ^");
  EXPECT_EQ(list[0].expression.error().code, Errc::kInvalid);
  EXPECT_EQ(list[1].expression.error().message,
            "f.txt:2:4: 1 parameter is given, but the expression has none\nx0 1\n   ^");
  EXPECT_THAT(list[2].expression.error().message,
              StartsWith("f.txt:3:16: 5 parameters are given, but the expression has p0 to p2 only\n"));
  EXPECT_THAT(list[3].parameters(), ElementsAre(1, 2));
  EXPECT_TRUE(list[4].ok());
}

TEST(ExpressionFile, NumbersTooSmallAreErrorsAsInExpressions) {
  const auto list = parseExpressions("p0\t1e-400\n1e-400\n", "f.txt", Language::kInfix);
  EXPECT_THAT(list[0].expression.error().message,
              StartsWith("f.txt:1:4: parameter '1e-400' is out of the range of a double, 4.9e-324 to 1.8e308\n"));
  EXPECT_THAT(list[1].expression.error().message,
              StartsWith("f.txt:2:1: number '1e-400' is out of the range of a double, 4.9e-324 to 1.8e308\n"));
}

TEST(ExpressionFile, ParametersOfTheOptionAreKeptOnce) {
  ExpressionOptions options;
  options.texts.assign(1000, "p0 + p1");
  options.texts.push_back("x0");
  options.texts.push_back("p0\t7");
  for (int i = 0; i < 1000; ++i) options.parameters += "0.5 ";
  const auto list = readExpressions(options, ColumnNames());
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT_THAT(list[i].parameters(), ElementsAre(0.5, 0.5));
    EXPECT_EQ(list[i].values, list.front().values) << "not a copy";
  }
  EXPECT_THAT(list[1000].parameters(), IsEmpty());
  EXPECT_THAT(list[1001].parameters(), ElementsAre(7));
}

TEST(ExpressionFile, NamesOfFilesAreEscaped) {
  EXPECT_EQ(readExpressions(std::string("no\x1b[2J\nfile"), Language::kInfix).error().message,
            "cannot read no\\x1b[2J\\x0afile: No such file or directory");
}

TEST(Report, EveryErrorHasItsStatus) {
  for (const Errc code : {Errc::kSyntax, Errc::kInvalid, Errc::kIo, Errc::kLimit}) EXPECT_EQ(exitStatus(code), 1);
  for (const Errc code : {Errc::kUnsupported, Errc::kCompile, Errc::kMachine, Errc::kCancelled}) {
    EXPECT_EQ(exitStatus(code), 3);
  }
}

TEST(Report, PositionsAreRelativeToTheOrigin) {
  const Error error = showPlace({Errc::kSyntax, "odd", Span{1, 3, 1}}, "ab?d", "f:1:2", 17);
  EXPECT_THAT(error.message, StartsWith("f:1:2:17:3: odd\n"));
  EXPECT_EQ(error.where->line, 17);
  EXPECT_EQ(showPlace({Errc::kSyntax, "odd", {}}, "ab", "f", 17).message, "f:17: odd");
}

TEST(Progress, LineFitsItsWidth) {
  EXPECT_EQ(progressLine("work", 5, 10, 40), "work [##########           ]  50% (5/10)");
  EXPECT_LE(progressLine("work", 3, 10, 40).size(), 40);
  EXPECT_EQ(progressLine("work", 10, 10, 10), "work [####] 100% (10/10)");
}

}  // namespace
}  // namespace srjit

#include "tools/expression_file.h"

#include <gmock/gmock.h>

#include "tests/tools/scratch.h"
#include "tools/progress.h"
#include "tools/report.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(ExpressionFile, SkipsCommentsAndBlankLines) {
  const auto list = parseExpressions("\xEF\xBB\xBF# a comment\n\nx0 + 1\r\n   # another\n \t \nx1*p0\t1.5 -2e3\nx2",
                                     "f.txt", Language::kInfix);
  ASSERT_EQ(list.size(), 3);
  EXPECT_EQ(list[0].text, "x0 + 1");
  EXPECT_EQ(list[0].line, 3);
  EXPECT_EQ(list[0].origin, "f.txt");
  EXPECT_THAT(list[0].parameters, IsEmpty());
  EXPECT_TRUE(list[0].ok());
  EXPECT_EQ(list[1].line, 6);
  EXPECT_THAT(list[1].parameters, ElementsAre(1.5, -2000));
  EXPECT_EQ(list[1].expression->parameterCount(), 1);
  EXPECT_EQ(list[2].line, 7);
}

TEST(ExpressionFile, BadLinesAreReportedAndOthersGoOn) {
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
  EXPECT_THAT(list[2].parameters, ElementsAre(7));
}

TEST(ExpressionFile, UnreadableFileIsAnError) {
  const Scratch scratch;
  EXPECT_EQ(readExpressions(scratch.path("none"), Language::kInfix).error().code, Errc::kIo);
  EXPECT_EQ(readExpressions(scratch.write("some", "x0\n"), Language::kInfix)->size(), 1);
}

TEST(ExpressionFile, ExpressionsMustFitTheData) {
  auto list = parseExpressions("x3 + x1\nx1 + x10 * x9\np0 + p2\t1\np0\nx0\t1 2 3\n", "f.txt", Language::kInfix);
  EXPECT_TRUE(requireInputs(list[0], 4));
  EXPECT_FALSE(requireInputs(list[1], 4));
  EXPECT_EQ(list[1].expression.error().message,
            "f.txt:2:6: variable x10, but the data has 4 columns\nx1 + x10 * x9\n     ^~~");
  EXPECT_EQ(list[1].expression.error().code, Errc::kInvalid);
  EXPECT_FALSE(requireInputs(list[1], 40)) << "stays bad";
  EXPECT_FALSE(requireInputs(list[2], 4));
  EXPECT_THAT(list[2].expression.error().message, StartsWith("f.txt:3:6: parameter p2, but one is given\n"));
  EXPECT_FALSE(requireInputs(list[3], 4));
  EXPECT_THAT(list[3].expression.error().message, StartsWith("f.txt:4:1: parameter p0, but no parameters are given\n"));
  EXPECT_TRUE(requireInputs(list[4], 4));
}

TEST(Report, EveryErrorHasItsStatus) {
  for (const Errc code : {Errc::kSyntax, Errc::kInvalid, Errc::kIo}) EXPECT_EQ(exitStatus(code), 1);
  for (const Errc code : {Errc::kUnsupported, Errc::kCompile, Errc::kMachine, Errc::kCancelled}) {
    EXPECT_EQ(exitStatus(code), 3);
  }
}

TEST(Report, PlacesCountInTheOrigin) {
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

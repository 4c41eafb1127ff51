// The options of sr-jit explain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/process.h"

namespace srjit {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class ExplainCommand : public testing::Test {
 protected:
  Outcome explain(std::vector<std::string> arguments, const std::string& input = {}) const {
    arguments.insert(arguments.begin(), {"explain", "--no-times"});
    return runCommand(arguments, scratch.path(""), input);
  }

  const Scratch scratch;
};

TEST_F(ExplainCommand, WritesThePageToStandardOutputOrAFile) {
  const Outcome page = explain({"x0 + 1", "--out", "-"});
  EXPECT_EQ(page.status, 0) << page.err;
  EXPECT_THAT(page.out, StartsWith("<!doctype html>"));
  EXPECT_EQ(explain({"x0 + 1", "--out", "page.html"}).status, 0);
  EXPECT_EQ(contentOf(scratch.path("page.html")), page.out);
  EXPECT_EQ(explain({"x0 + 1", "--json", "--out", "data.json"}).status, 0);
  EXPECT_EQ(json::parse(contentOf(scratch.path("data.json"))), json::parse(explain({"x0 + 1", "--json"}).out));
}

TEST_F(ExplainCommand, LeavesAFileThatCannotBeReplacedByAnExplanation) {
  scratch.write("page.html", "old");
  std::string sum = "x0";
  for (int i = 0; i < 100; ++i) sum += " + x0";
  const Outcome too_long = explain({sum, "--out", "page.html"});
  EXPECT_EQ(too_long.status, 1);
  EXPECT_THAT(too_long.err, HasSubstr("201 tokens, but at most 200"));
  EXPECT_EQ(contentOf(scratch.path("page.html")), "old");
  EXPECT_THAT(explain({"x0", "--out", "no/page.html"}).err, HasSubstr("No such file"));
}

TEST_F(ExplainCommand, ShowsGoodLinesAndReportsBadOnes) {
  const Outcome outcome = explain({"x0 +", "x0 * 2"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("expression 1:1:5"));
  EXPECT_THAT(outcome.out, StartsWith("; expression 1: x0 * 2\n"));
}

TEST_F(ExplainCommand, TakesOtherFormsNamesAndParameters) {
  const Outcome outcome =
      explain({"--from", "postfix", "--columns", "mass,speed", "--params", "3", "mass p0 *", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["sources"][0]["text"], "mass * p0");
}

TEST_F(ExplainCommand, ReadsStandardInputOnce) {
  const Outcome outcome = explain({"--exprs", "-", "--data", "-"}, "x0\n");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("data and expressions cannot both come from standard input"));
}

TEST_F(ExplainCommand, KeepsControlCharactersOutOfTheText) {
  EXPECT_THAT(explain({"x0 +\n1"}).out, StartsWith("; expression 1: x0 +\\x0a1\n"));
}

}  // namespace
}  // namespace srjit

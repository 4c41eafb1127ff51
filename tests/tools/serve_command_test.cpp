// sr-jit serve: requests in, answers out.
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/process.h"

namespace srjit {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> linesOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The answers to requests about a table with y = 3 x + 1, without the first, which is info.
class Serve : public testing::Test {
 protected:
  std::vector<json> answers(const std::string& requests, const std::vector<std::string>& options = {}) {
    scratch_.write("table.csv", table_);
    std::vector<std::string> words = {"serve",    "--data", "table.csv",   "--target", "y",
                                      "--device", "cpu",    "--precision", "f64",      "--quiet"};
    words.insert(words.end(), options.begin(), options.end());
    const Outcome outcome = runCommand(words, scratch_.path("."), requests);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    std::vector<json> list;
    for (const std::string& line : linesOf(outcome.out)) list.push_back(json::parse(line));
    EXPECT_FALSE(list.empty());
    if (!list.empty()) list.erase(list.begin());
    return list;
  }
  json answer(const std::string& request) {
    const std::vector<json> all = answers(request + "\n");
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? json() : all[0];
  }
  std::string errorOf(const std::string& request) {
    const json reply = answer(request);
    EXPECT_TRUE(reply.contains("error")) << reply;
    return reply.contains("error") ? reply["error"].value("message", "") : "";
  }

  Scratch scratch_;
  std::string table_ = "x,y\n1,4\n2,7\n3,10\n4,13\n";
};

TEST_F(Serve, AnswersInOrderAndEndsWithItsInput) {
  const std::vector<json> all = answers(
      "{\"id\":7,\"op\":\"loss\",\"expressions\":[\"3*x + 1\",\"x\"]}\n\n  \n"
      "{\"id\":{\"a\":1},\"op\":\"info\"}\n"
      "{\"op\":\"loss\",\"expressions\":[\"p0*x\"],\"parameters\":[3],\"loss\":\"mae\"}");
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0], json::parse(R"({"id":7,"losses":[0.0,41.0],"valid_rows":[4,4],"failures":[]})"));
  EXPECT_EQ(all[1]["id"], json::parse(R"({"a":1})"));
  EXPECT_EQ(all[1]["rows"], 4);
  EXPECT_EQ(all[1]["columns"], json::parse(R"(["x"])"));
  EXPECT_EQ(all[2]["losses"], json::parse("[1.0]"));
}

TEST_F(Serve, TakesTokenArrays) {
  const json postfix =
      answer(R"({"op":"predict","population":{"codes":[-1,0,3,-1],"constants":[0,3,0,0],"offsets":[0,3,4]}})");
  EXPECT_EQ(postfix["values"], json::parse("[[3.0,6.0,9.0,12.0],[1.0,2.0,3.0,4.0]]"));
  const json prefix = answer(
      R"({"op":"predict","population":{"codes":[3,-1,0],"constants":[0,0,3],"offsets":[0,3],"notation":"prefix"}})");
  EXPECT_EQ(prefix["values"], json::parse("[[3.0,6.0,9.0,12.0]]"));
}

TEST_F(Serve, FitsAndDifferentiates) {
  const json fit = answer(R"({"op":"fit","expressions":["p0*x + p1","x"],"starts":[[2,0],[]],"iterations":20})");
  EXPECT_EQ(fit["status"], json::parse(R"(["converged","no parameters"])"));
  ASSERT_EQ(fit["parameters"].size(), 2U);
  EXPECT_NEAR(fit["parameters"][0][0], 3, 1e-9);
  EXPECT_NEAR(fit["parameters"][0][1], 1, 1e-9);
  EXPECT_EQ(fit["parameters"][1], json::array());
  const json gradient = answer(R"({"op":"gradient","expressions":["p0*x"],"parameters":[3]})");
  EXPECT_EQ(gradient["losses"], json::parse("[1.0]"));
  EXPECT_EQ(gradient["derivatives"], json::parse("[[-5.0]]"));
}

TEST_F(Serve, SeveralVectorsOfParametersGiveResultsForEach) {
  const json losses = answer(R"({"op":"loss","expressions":["p0*x","x +"],"parameters":[[3],[1]]})");
  EXPECT_EQ(losses["losses"], json::parse("[1.0,null,41.0,null]"));
  ASSERT_EQ(losses["failures"].size(), 1U);
  EXPECT_EQ(losses["failures"][0]["expression"], 1);
  EXPECT_EQ(losses["failures"][0]["code"], "syntax");
  const json values = answer(R"({"op":"predict","expressions":["p0*x"],"parameters":[[1],[2]]})");
  EXPECT_EQ(values["values"], json::parse("[[1.0,2.0,3.0,4.0],[2.0,4.0,6.0,8.0]]"));
  const json gradient = answer(R"({"op":"gradient","expressions":["p0*x"],"parameters":[3,3]})");
  EXPECT_EQ(gradient["derivatives"], json::parse("[[-5.0],[-5.0]]"));
}

TEST_F(Serve, NumbersAndDepthsThatCannotBeAreAnErrorOfTheirRequest) {
  const std::string deep(200'000, '[');
  const std::vector<json> all = answers(
      "{\"op\":\"loss\",\"expressions\":[\"p0*x\"],\"parameters\":[1e999]}\n"
      "{\"id\":" +
      deep + "\n{\"op\":\"loss\",\"parameters\":" + deep + std::string(200'000, ']') +
      "}\n"
      "{\"id\":5,\"op\":\"info\"}\n");
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0]["error"]["code"], "invalid");
  EXPECT_EQ(all[0]["error"]["message"], "a number is out of the range of a double, 4.9e-324 to 1.8e308");
  EXPECT_EQ(all[1]["error"]["message"], "lists and objects are nested more than 32 deep");
  EXPECT_EQ(all[2]["error"]["message"], "lists and objects are nested more than 32 deep");
  EXPECT_EQ(all[3]["id"], 5);
}

TEST_F(Serve, AFailedExpressionLeavesTheOthers) {
  const json losses = answer(R"({"op":"loss","expressions":["x +","x","z","1/(x - 1)*1"]})");
  EXPECT_EQ(losses["losses"], json::parse("[null,41.0,null,null]"));
  EXPECT_EQ(losses["valid_rows"], json::parse("[0,4,0,null]"));
  ASSERT_EQ(losses["failures"].size(), 2U);
  EXPECT_EQ(losses["failures"][0]["expression"], 0);
  EXPECT_EQ(losses["failures"][0]["code"], "syntax");
  EXPECT_EQ(losses["failures"][0]["where"]["column"], 4);
  EXPECT_THAT(losses["failures"][1]["message"], HasSubstr("'z'"));
  const json skipped = answer(R"({"op":"loss","expressions":["1/(x - 1)*1"],"nan":"skip"})");
  EXPECT_EQ(skipped["valid_rows"], json::parse("[3]"));
}

TEST_F(Serve, Simplifies) {
  const json simple = answer(R"({"op":"simplify","expressions":["x*1 + 0","(","x + x - x"]})");
  EXPECT_EQ(simple["expressions"], json::parse(R"(["x",null,"x"])"));
  EXPECT_EQ(simple["failures"].size(), 1U);
}

TEST_F(Serve, ABadRequestIsAnsweredAndTheNextOneIsRead) {
  const std::vector<json> all = answers("{\"op\":\n[1]\n{\"id\":3,\"op\":\"info\"}\n");
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0]["error"]["code"], "syntax");
  EXPECT_THAT(all[0]["error"]["message"], HasSubstr("malformed JSON: expected "));
  EXPECT_EQ(all[0]["error"]["where"], json::parse(R"({"line":1,"column":7,"length":0})"));
  EXPECT_EQ(all[1]["error"]["message"], "a request is an object");
  EXPECT_EQ(all[2]["id"], 3);
  EXPECT_EQ(errorOf("{}"), "'op' is \"\", expected one of info, loss, predict, gradient, fit, simplify");
  EXPECT_THAT(errorOf(R"({"op":"loss"})"), HasSubstr("expected 'expressions'"));
  EXPECT_EQ(errorOf(R"({"op":"loss","expressions":"x"})"), "'expressions' is of the wrong type");
  EXPECT_EQ(errorOf(R"({"op":"loss","expressions":["x"],"language":"latin"})"),
            "'language' is \"latin\", expected one of infix, postfix, prefix, json");
  EXPECT_EQ(errorOf(R"({"op":"loss","expressions":["x"],"nan":"drop"})"),
            "'nan' is \"drop\", expected one of propagate, skip, reject");
  EXPECT_EQ(errorOf(R"({"op":"loss","expressions":["p0*x"],"parameters":["a"]})"),
            "'parameters' is neither a list of numbers nor a list of such lists");
  EXPECT_THAT(errorOf(R"({"op":"loss","expressions":["p0*x"]})"), HasSubstr("parameter"));
  EXPECT_THAT(errorOf(R"({"op":"loss","expressions":["x"],"loss":"mes"})"), HasSubstr("mes"));
  EXPECT_THAT(errorOf(R"({"op":"predict","population":{"codes":[-1],"constants":[0],"offsets":[0,2]}})"),
              HasSubstr("offset"));
  EXPECT_EQ(errorOf(R"({"op":"predict","population":{"codes":[4294967296],"offsets":[0,1]}})"),
            "'codes' has 4294967296, expected integers of 32 bits");
  EXPECT_EQ(errorOf(R"({"op":"predict","population":{"codes":[1.5],"offsets":[0,1]}})"),
            "'codes' has 1.5, expected integers of 32 bits");
  EXPECT_EQ(errorOf(R"({"op":"predict","population":{"codes":[-1]}})"), "'offsets' is no list of integers");
  EXPECT_EQ(errorOf(R"({"op":"fit","expressions":["p0*x"],"iterations":-1})"),
            "'iterations' has -1, expected integers of 32 bits");
}

TEST_F(Serve, LimitsHoldForSimplifying) {
  const std::string request = R"({"op":"simplify","expressions":["x*1 + 0","x"]})";
  const std::vector<json> large =
      answers(request + "\n" + R"({"op":"simplify","expressions":["x*1 + 0"]})", {"--max-call-nodes", "5"});
  ASSERT_EQ(large.size(), 2U);
  EXPECT_EQ(large[0]["error"]["code"], "limit");
  EXPECT_THAT(large[0]["error"]["message"], HasSubstr("6 nodes in all expressions, but a call may have at most 5"));
  EXPECT_EQ(large[1]["expressions"], json::parse(R"(["x"])"));
  const std::vector<json> late = answers(request + "\n", {"--max-seconds", "1e-9"});
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0]["error"]["code"], "limit");
  EXPECT_THAT(late[0]["error"]["message"], HasSubstr("1e-09 s"));
}

// 300 expressions, 100,000 vectors of parameters and 10,000 rows have 3e11 predictions, for which there is no memory.
TEST_F(Serve, PredictionsAreRefusedBeforeThereIsMemoryForThem) {
  table_ = "x,y\n";
  for (int row = 0; row < 10'000; ++row) table_ += "1,4\n";
  std::string request = R"({"op":"predict","expressions":["p0*x")";
  for (int e = 1; e < 300; ++e) request += R"(,"x")";
  request += R"(],"parameters":[1)";
  for (int vector = 1; vector < 100'000; ++vector) request += ",1";
  const std::vector<json> all = answers(request + "]}\n", {"--max-call-nodes", "1000"});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0]["error"]["code"], "limit") << all[0]["error"];
  EXPECT_THAT(all[0]["error"]["message"], HasSubstr("30200000 nodes"));
}

TEST_F(Serve, ALongLineThatBeginsBlankIsAnswered) {
  const std::vector<json> all = answers(
      std::string(50, ' ') + "{\"id\":1,\"op\":\"info\"}\n   \n{\"id\":2,\"op\":\"info\"}\n", {"--max-bytes", "40"});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["error"]["code"], "limit");
  EXPECT_FALSE(all[0].contains("id")) << "it is not read";
  EXPECT_EQ(all[1]["id"], 2);
}

TEST(ServeCommand, TakesFiniteSecondsAlone) {
  for (const char* const seconds : {"nan", "-nan", "inf", "1e999", "0", "-1", "soon"}) {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"serve", "--data", SRJIT_SOURCE_DIR "/docs/examples/planets.csv"},
          std::vector<std::string>{"parse", "x0"}}) {
      std::vector<std::string> all = words;
      all.push_back(std::string("--max-seconds=") + seconds);
      const Outcome outcome = runCommand(all, "/");
      EXPECT_EQ(outcome.status, 2) << words[0] << " " << seconds << " " << outcome.out;
      EXPECT_THAT(outcome.err, HasSubstr("--max-seconds")) << words[0];
    }
  }
}

TEST(ServeCommand, RefusesDataFromWhereTheRequestsAre) {
  EXPECT_EQ(runCommand({"serve", "--data", "-"}, "/").status, 2);
  EXPECT_EQ(runCommand({"serve", "--data", "/no/such/file.csv"}, "/").status, 1);
  EXPECT_EQ(runCommand({"serve"}, "/").status, 2);
}

TEST(ServeCommand, EndsWhereNobodyReads) {
  const Scratch scratch;
  scratch.write("table.csv", "x,y\n1,4\n");
  const Outcome outcome = runShell(
      "yes '{\"op\":\"info\"}' | \"$SRJIT\" serve --data table.csv --target y --device cpu | head -n 3 >/dev/null",
      scratch.path("."));
  EXPECT_EQ(outcome.status, 0);
}

}  // namespace
}  // namespace srjit

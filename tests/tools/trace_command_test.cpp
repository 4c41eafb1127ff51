// SRJIT_TRACE, which every command that evaluates heeds.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/generators/environment.h"
#include "tests/generators/scratch.h"
#include "tests/tools/process.h"

namespace srjit {
namespace {

using testing::HasSubstr;
using testing::Not;

class TraceVariable : public testing::Test {
 protected:
  TraceVariable() { std::ofstream(scratch.path("data.csv")) << "a,y\n1,2\n3,4\n"; }

  Outcome loss(const std::string& trace) const {
    const ScopedVariable variable("SRJIT_TRACE", trace);
    return runCommand({"loss", "a + 1", "--data", scratch.path("data.csv"), "--target", "y", "--device", "cpu"}, "/");
  }

  const Scratch scratch;
};

TEST_F(TraceVariable, GivesAFile) {
  const Outcome outcome = loss(scratch.path("trace.json"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("trace")));
  std::ifstream file(scratch.path("trace.json"));
  std::vector<std::string> categories;
  for (const nlohmann::json& event : nlohmann::json::parse(file)) {
    if (event.contains("cat")) categories.push_back(event.at("cat"));
  }
  EXPECT_THAT(categories, testing::ElementsAre("compile", "kernel"));
}

TEST_F(TraceVariable, IsOptionalWork) {
  const Outcome outcome = loss(scratch.path("no/folder.json"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("trace " + scratch.path("no/folder.json") + ": No such file or directory"));
  EXPECT_THAT(loss("").err, Not(HasSubstr("trace")));
}

}  // namespace
}  // namespace srjit

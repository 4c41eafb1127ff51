#include <csignal>
#include <string>

#include <gmock/gmock.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/tools/search/small_command.h"

namespace srjit {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

TEST(SearchCommandSlow, AKilledSearchGoesOnFromItsCheckpoint) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  RunningSearch running(scratch);
  ASSERT_TRUE(appears(scratch.path("search.json")));
  EXPECT_EQ(running.end(SIGKILL), 128 + SIGKILL);
  EXPECT_NE(access(scratch.path("front.csv").c_str(), F_OK), 0);
  const json before = json::parse(contentOf(scratch.path("search.json")));
  const std::uint64_t generations = before.at("generations");
  ASSERT_GT(generations, 0u);
  const Outcome resumed = runCommand(
      commandOf({"--generations", std::to_string(generations + 2), "--checkpoint", "search.json"}), scratch.path("."));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr(fmt::format("in {} generations", generations + 2)));
  const json after = json::parse(contentOf(scratch.path("search.json")));
  EXPECT_GT(after.at("candidates").get<std::uint64_t>(), before.at("candidates").get<std::uint64_t>());
  EXPECT_LE(after.at("front").back().at("loss").get<double>(), before.at("front").back().at("loss").get<double>());
  const Outcome unbroken = runCommand(commandOf({"--generations", std::to_string(generations + 2)}), scratch.path("."));
  EXPECT_EQ(resumed.out, unbroken.out);
}

class SearchCommandEndedSlow : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, SearchCommandEndedSlow, testing::Values(SIGINT, SIGTERM),
                         [](const auto& tested) { return tested.param == SIGINT ? "Interrupt" : "Terminate"; });

// What it writes is what an unbroken search of as many generations would have given.
TEST_P(SearchCommandEndedSlow, WritesTheFrontFoundSoFar) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  RunningSearch running(scratch);
  ASSERT_TRUE(appears(scratch.path("search.json")));
  EXPECT_EQ(running.end(GetParam()), 0);
  EXPECT_THAT(contentOf(scratch.path("err")), HasSubstr("; stopped\n"));
  const std::uint64_t generations = json::parse(contentOf(scratch.path("search.json"))).at("generations");
  const Outcome unbroken = runCommand(commandOf({"--generations", std::to_string(generations)}), scratch.path("."));
  EXPECT_THAT(unbroken.out, StartsWith("complexity,loss,held_out,formula\n1,"));
  // A busy machine has no time to round all formulas; the checkpoint has what a search at its limit needs for that.
  if (contentOf(scratch.path("err")).find("more digits than they need") == std::string::npos) {
    EXPECT_EQ(contentOf(scratch.path("front.csv")), unbroken.out);
  }
  const Outcome resumed = runCommand(
      commandOf({"--generations", std::to_string(generations), "--checkpoint", "search.json"}), scratch.path("."));
  EXPECT_EQ(resumed.out, unbroken.out);
}

TEST(SearchCommandSlow, ACheckpointThatCannotBeWrittenLosesNoResult) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  ASSERT_EQ(runCommand(commandOf({"--generations", "2", "--checkpoint", "search.json"}), scratch.path(".")).status, 0);
  const std::string before = contentOf(scratch.path("search.json"));
  const int limit = 4096;  // bytes of a file
  const Outcome outcome =
      runProgram({"/bin/bash",   "-c",           fmt::format("ulimit -f {}; exec \"$0\" \"$@\"", limit / 1024),
                  SRJIT_COMMAND, "search",       "--data",
                  "table.csv",   "--target",     "energy",
                  "--device",    "cpu",          "--islands",
                  "4",           "--population", "60",
                  "--offspring", "120",          "--generations",
                  "4",           "--checkpoint", "search.json"},
                 scratch.path("."));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("search.json"));
  EXPECT_THAT(outcome.out, StartsWith("complexity,loss,held_out,formula\n1,"));
  EXPECT_EQ(contentOf(scratch.path("search.json")), before);
}

}  // namespace
}  // namespace srjit

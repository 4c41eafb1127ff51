#include <csignal>
#include <filesystem>
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

TEST(SearchCommand, FindsKeplersThirdLaw) {
  const Outcome front = runCommand({"search", "--data", SRJIT_SOURCE_DIR "/docs/examples/planets.csv", "--target",
                                    "period", "--ops", "mul,div,sqrt", "--generations", "8", "--device", "cpu"},
                                   "/");
  EXPECT_EQ(front.status, 0) << front.err;
  EXPECT_THAT(front.out, testing::ContainsRegex("\n5,[0-9.]+e-07,,sqrt\\(0\\.99[0-9]* \\* cube\\(axis\\)\\)\n"));
}

// What a search refuses is not offered.
TEST(SearchCommand, HelpListsTheLossesThatCanBeMinimised) {
  const std::string help = runCommand({"search", "--help"}, "/").out;
  EXPECT_THAT(help, HasSubstr("mse|"));
  for (const char* const name : {"|r2|", "|sum|", "scaled-", "correlation"}) {
    EXPECT_THAT(help, testing::Not(HasSubstr(name))) << name;
  }
}

TEST(SearchCommand, WritesTheFrontAsCsvJsonAndLatex) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(true));
  const Outcome csv = runCommand(commandOf({}), scratch.path("."));
  EXPECT_EQ(csv.status, 0) << csv.err;
  EXPECT_THAT(csv.out, StartsWith("complexity,loss,held_out,formula\n1,"));
  EXPECT_THAT(csv.err, HasSubstr("; a formula is exact\n"));
  const Outcome text = runCommand(commandOf({"--json", "--held-out", "0.2", "--quiet"}), scratch.path("."));
  EXPECT_EQ(text.err, "");
  const json front = json::parse(text.out);
  EXPECT_LT(front.back().at("loss").get<double>(), 1e-18);
  EXPECT_LT(front.back().at("held_out").get<double>(), 1e-18);
  EXPECT_THAT(front.back().at("formula").get<std::string>(), HasSubstr("mass"));
  const Outcome linked = runCommand(commandOf({"--links", "log,identity", "--generations", "1"}), scratch.path("."));
  EXPECT_EQ(linked.status, 0) << linked.err;
  const Outcome latex = runCommand(commandOf({"--latex", "--out", "front.tex"}), scratch.path("."));
  EXPECT_EQ(latex.out, "");
  EXPECT_THAT(contentOf(scratch.path("front.tex")), HasSubstr("\\begin{tabular}"));
}

TEST(SearchCommand, TellsWhatIsWrong) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(true));
  scratch.write("other.json", "{\"format\":\"another\"}");
  scratch.write("broken.json", "{\n  rows: 3}");
  struct Case {
    std::vector<std::string> words;
    int status;
    const char* message;
  };
  const Case cases[] = {
      {{"--ops", "add,sine"}, 1, "--ops:1:5: unknown operator 'sine'"},
      {{"--nesting", "sin:cos"}, 1, "--nesting:1:1: a limit of nesting is OUTER:INNER:MOST"},
      {{"--links", "cube"}, 1, "unknown link 'cube'"},
      {{"--loss", "r2"}, 1, "cannot minimise r2"},
      {{"--loss", "mist"}, 2, "mist"},
      {{"--seconds", "-1"}, 2, "--seconds"},
      {{"--held-out", "2"}, 2, "--held-out"},
      {{"--json", "--latex"}, 2, "--latex"},
      {{"--checkpoint", "other.json"},
       1,
       "other.json: this is no checkpoint of a search: its format is 'another', expected 'sr-jit search "},
      {{"--checkpoint", "broken.json"},
       1,
       "broken.json:2:3: this is no checkpoint of a search: malformed JSON: invalid literal\n"},
      {{"--checkpoint", "/dev/full"}, 1, "/dev/full: a checkpoint is a file or in a folder, not a device or pipe\n"},
      {{"--checkpoint", ""}, 1, "cannot write '': No such file or directory\n"},
      {{"--plot", ""}, 1, "cannot write '': No such file or directory\n"},
      {{"--out", ""}, 1, "cannot write '': No such file or directory\n"},
      {{"--ops", ""}, 1, "--ops:1: no operator is named; `sr-jit ops` lists them\n"},
      {{"--seed", "-1"}, 2, "--seed: '-1' is no whole number from 0 to 18446744073709551615\n"},
      {{"--seed=-1"}, 2, "--seed: '-1' is no whole number from 0 to 18446744073709551615\n"},
      {{"--rows", "-5"}, 2, "--rows: '-5' is no whole number"},
      {{"--generations", "1e3"}, 2, "--generations: '1e3' is no whole number"},
      {{"--islands", "1"}, 2, "--islands: '1' is no whole number from 2 to 10000000\n"},
      {{"--seconds", "abc"}, 2, "--seconds: 'abc' is no number from 0 on\n"},
      {{"--seconds", "nan"}, 2, "--seconds: 'nan' is no number from 0 on\n"},
      {{"--enough", "nan"}, 2, "--enough: 'nan' is no number from 0 on\n"},
      {{"--held-out", "nan"}, 2, "--held-out: 'nan' is no number from 0 to 0.9\n"},
      {{"--checkpoint", "none/search.json"}, 1, "none"},
      {{"--out", "none/front.csv"}, 1, "none"},
      {{"--plot", "none/front.svg"}, 1, "none"},
  };
  for (const Case& bad : cases) {
    const Outcome outcome = runCommand(commandOf(bad.words), scratch.path("."));
    EXPECT_EQ(outcome.status, bad.status) << bad.words[0];
    EXPECT_THAT(outcome.err, HasSubstr(bad.message));
    EXPECT_THAT(outcome.err, testing::Not(HasSubstr("exception")));
    EXPECT_EQ(outcome.out, "");
  }
}

// The search would take ten seconds.
TEST(SearchCommand, APlotWithoutGnuplotIsRefusedBeforeTheSearch) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  const Outcome outcome = runShell(
      "PATH=/nowhere \"$SRJIT\" search --data table.csv --target energy --device cpu "
      "--seconds 10 --out front.csv --plot front.svg",
      scratch.path("."));
  EXPECT_EQ(outcome.status, 3);
  EXPECT_EQ(outcome.err,
            "sr-jit: gnuplot was not found; plots need it: install it (Debian's package is gnuplot-nox)\n");
  EXPECT_THAT(scratch.list(), testing::ElementsAre("table.csv"));
}

TEST(SearchCommand, EachSearchHasItsOwnFileInAFolderOfCheckpoints) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  std::filesystem::create_directory(scratch.path("searches"));
  const auto search = [&](const std::string& seed, const std::string& generations) {
    const Outcome outcome = runCommand(
        commandOf({"--seed", seed, "--generations", generations, "--checkpoint", "searches"}), scratch.path("."));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  };
  const auto files = [&] {
    std::size_t count = 0;
    for (const auto& file : std::filesystem::directory_iterator(scratch.path("searches"))) {
      EXPECT_THAT(file.path().filename().string(), testing::MatchesRegex("[0-9a-f]+\\.json"));
      ++count;
    }
    return count;
  };
  search("1", "2");
  EXPECT_EQ(files(), 1u);
  search("2", "2");
  EXPECT_EQ(files(), 2u);
  const Outcome resumed = search("1", "4"), unbroken = runCommand(commandOf({"--generations", "4"}), scratch.path("."));
  EXPECT_EQ(files(), 2u);
  EXPECT_EQ(resumed.out, unbroken.out);
}

TEST(SearchCommand, SaysThatACheckpointIsOfOtherOptions) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  const std::vector<std::string> words = commandOf({"--generations", "2", "--checkpoint", "search.json"});
  ASSERT_EQ(runCommand(words, scratch.path(".")).status, 0);
  std::vector<std::string> other = words;
  other.insert(other.end(), {"--seed", "2"});
  const Outcome outcome = runCommand(other, scratch.path("."));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("search.json: it is the checkpoint of a search with other data or options; give "
                                     "another file, or a folder, where each search has its own\n"));
}

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

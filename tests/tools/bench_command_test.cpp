// The command `bench`. Its benchmarks are programs of their own, which sanitizers do not build (tools/CMakeLists.txt).
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/generators/environment.h"
#include "tests/tools/process.h"
#include "tools/bench/harness.h"

namespace srjit {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

TEST(BenchSlow, RejectsWrongUsage) {
  EXPECT_THAT(runCommand({"bench", "all", "--help"}, "/").out, HasSubstr("--seconds"));
  EXPECT_EQ(runCommand({"bench", "--only", "nothing"}, "/").status, 2);
  EXPECT_EQ(runCommand({"bench", "modes", "--device", "cuda:99"}, "/").status, 3);
  EXPECT_EQ(runCommand({"bench", "tiers", "--seconds", "0"}, "/").status, 2);
  for (const auto& [words, message] :
       {std::pair<std::vector<std::string>, const char*>{{"scenarios", "mixed"}, "'all' selects all scenarios"},
        {{"all", "tiers"}, "'all' selects all scenarios"},
        {{"mixed", "--data", "x.csv"}, "--data is not read by the scenario 'mixed'"},
        {{"tiers", "--export", "x"}, "--export requires the scenario 'gradients'"}}) {
    std::vector<std::string> all = {"bench"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = runCommand(all, "/");
    EXPECT_EQ(outcome.status, 2) << words.back();
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

TEST(BenchSlow, ChecksItsOutputFileFirst) {
  const Outcome outcome = runCommand({"bench", "tiers", "--quick", "--device", "cpu", "--json", "/none/x.json"}, "/");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("/none/x.json"));
}

TEST(BenchSlow, FailsWithFullStandardOutput) {
  const Outcome outcome = runShell("\"$SRJIT\" bench all --help >/dev/full", "/");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("sr-jit: cannot write standard output"));
}

TEST(BenchSlow, RunsAScenario) {
  EXPECT_THAT(runCommand({"bench", "--help"}, "/").out, HasSubstr("mit-generation"));
  const std::string help = runCommand({"bench", "thesis-1", "--help"}, "/").out;
  EXPECT_THAT(help, HasSubstr("--no-baselines"));
  EXPECT_THAT(help, HasSubstr("(--device cpu)"));
  EXPECT_EQ(runCommand({"bench", "thesis-1", "--result", "nothing"}, "/").status, 2);
  const Scratch scratch;
  const std::string file = scratch.path("figures.json");
  const std::string data = scratch.write("data.csv", "a,b,y\n1,2,3\n4,5,6\n7,8,10\n");
  const Outcome outcome = runCommand({"bench", "thesis-2", "--device", "cpu", "--quick", "--result", "losses", "--data",
                                      data, "--no-baselines", "--json", file},
                                     "/");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("cpu, "));
  EXPECT_THAT(outcome.out, HasSubstr(" host threads, sr-jit "));
  std::set<std::string> results;
  const json figures = json::parse(contentOf(file))["figures"];
  for (const json& figure : figures) {
    EXPECT_EQ(figure["facts"]["rows"], 3);
    EXPECT_EQ(figure["facts"]["data"], data);
    results.insert(figure["facts"].value("result", ""));
  }
  EXPECT_EQ(results, (std::set<std::string>{"", "losses"}));
  const Outcome bad = runCommand({"bench", "thesis-2", "--device", "cpu", "--quick", "--data", file + ".csv"}, "/");
  EXPECT_EQ(bad.status, 3);
  EXPECT_THAT(bad.out, HasSubstr("FAILED"));
}

TEST(BenchSlow, ExportsWhatItFits) {
  const Scratch scratch;
  const std::string report = scratch.path("figures.json"), folder = scratch.path("fits/of a run");
  const Outcome outcome =
      runCommand({"bench", "gradients", "--quick", "--device", "cpu", "--json", report, "--export", folder}, "/");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::map<std::string, json> works;
  const json figures = json::parse(contentOf(report))["figures"];
  for (const json& figure : figures) {
    if (figure["metric"] == "converged" && figure["facts"]["passes"] == 10) {
      works[figure["facts"]["key"].get<std::string>()] = figure["facts"];
    }
  }
  ASSERT_EQ(works.size(), 5U);
  for (const auto& [key, work] : works) {
    if (key == "small") continue;
    const std::string file = folder + "/" + key;
    const Outcome fits =
        runCommand({"fit", "--exprs", file + ".txt", "--data", file + ".npy", "--target", key == "random" ? "10" : "5",
                    "--math", "fast", "--device", "cpu", "--iterations", "10", "--json", "--quiet"},
                   "/");
    ASSERT_EQ(fits.status, 0) << fits.err;
    const json results = json::parse(fits.out);
    EXPECT_EQ(results.size(), work["expressions"]) << file;
    std::size_t converged = 0, rows = 0;
    for (const json& fit : results) {
      converged += fit["status"] == "converged" ? 1U : 0U;
      rows = std::max(rows, fit["valid_rows"].is_null() ? 0 : fit["valid_rows"].get<std::size_t>());
    }
    EXPECT_EQ(converged, work["converged"]) << file;
    EXPECT_EQ(rows, work["rows"]) << file;
  }
}

TEST(BenchSlow, WritesFigures) {
  const Scratch scratch;
  const std::string file = scratch.path("figures.json");
  const Outcome outcome = runCommand({"bench", "--device", "cpu", "--quick", "--only", "compile", "--only", "modes",
                                      "--commit", "abc", "--json", file},
                                     "/");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("interpreter: to loaded code"));
  const json report = json::parse(contentOf(file));
  EXPECT_EQ(report["machine"]["commit"], "abc");
  EXPECT_EQ(report["complete"], true);
  EXPECT_TRUE(report["faults"].empty());
  std::set<std::string> parts;
  for (const json& figure : report["figures"]) parts.insert(figure["part"].get<std::string>());
  EXPECT_EQ(parts, (std::set<std::string>{"compile", "modes"}));
}

/// Runs the benchmark with a time limit that allows no measurement.
void runIn(const std::string& temporary) {
  const ScopedVariable directory("TMPDIR", temporary);
  runCommand({"bench", "mixed", "--device", "cpu", "--seconds", "1e-9"}, "/");
}

// Process ids on Linux are at most 4,194,304.
TEST(BenchScratchSlow, RemovesDirectoriesOfKilledRuns) {
  const Scratch scratch;
  for (const char* const name :
       {"srjit-bench-4194305-abcdef", "srjit-bench-notes", "srjit-bench-4194305", "srjit-bench-4194306-abcdef"}) {
    ASSERT_EQ(mkdir(scratch.path(name).c_str(), 0700), 0);
  }
  const std::string other = scratch.path("srjit-bench-4194306-abcdef");
  const bool is_given_away = chown(other.c_str(), 1000, 1000) == 0;
  runIn(scratch.path(""));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("srjit-bench-4194305-abcdef")));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("srjit-bench-notes")));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("srjit-bench-4194305"))) << "not a name of the benchmark";
  EXPECT_EQ(std::filesystem::exists(other), is_given_away);
}

Bench benchOf(Report& report, double seconds) {
  return {.scenario = "compile", .device = "cuda:0", .seconds = seconds, .report = &report};
}

TEST(BenchReport, HasSkippedPiecesOnce) {
  Report report(Json::object(), "");
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(benchOf(report, 0).mayBegin("300 nodes"));
  EXPECT_TRUE(benchOf(report, 1e6).mayBegin("1000 nodes"));
  EXPECT_EQ(report.json(true)["not_run"].dump(),
            R"([{"part":"compile","name":"300 nodes","reason":"the 0 s were up"}])");
  EXPECT_FALSE(report.hasFaults());
}

TEST(BenchReport, ScalesSamplesAndComparesThemWithTheirTarget) {
  Report report(Json::object(), "");
  const Bench bench = benchOf(report, 1);
  const Subject subject = Subject{"4096 expressions of 30 nodes, cuda:0, all cores", {{"nodes", 30}}}
                              .with("machine code", {{"cores", 2}})
                              .with("");
  bench.add(subject, "to loaded code", "us/expression", {1e-3, 3e-4, 4e-4}, "a note", true);
  bench.add(subject, "rate", "T nodes/s", {2e12});
  const Json figures = report.json(true)["figures"];
  EXPECT_EQ(figures[0]["what"], "4096 expressions of 30 nodes, cuda:0, all cores, machine code: to loaded code");
  EXPECT_EQ(figures[0]["facts"].dump(), R"({"nodes":30,"cores":2})");
  EXPECT_NEAR(figures[0]["value"].get<double>(), 400, 1e-9);
  EXPECT_NEAR(figures[0]["quartile1"].get<double>(), 350, 1e-9);
  EXPECT_EQ(figures[0]["target"], 500) << "of targets.def";
  EXPECT_EQ(figures[0]["reached"], true);
  EXPECT_EQ(figures[0]["better"], "less");
  EXPECT_EQ(figures[0]["extrapolated"], true);
  EXPECT_EQ(figures[1]["value"], 2);
  EXPECT_EQ(figures[1]["better"], "more");
  EXPECT_FALSE(figures[1].contains("target"));
}

}  // namespace
}  // namespace srjit

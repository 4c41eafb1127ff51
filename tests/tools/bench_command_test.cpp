// The command `bench`. Its benchmarks are programs of their own, which sanitizers do not build (tools/CMakeLists.txt).
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/process.h"

namespace srjit {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

TEST(BenchSlow, ListsTheBenchmarks) {
  const Outcome list = runCommand({"bench", "--list", "--filter", "mixed"}, "/");
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("evaluate/mixed/interpreter"));
  EXPECT_THAT(list.out, testing::Not(HasSubstr("arithmetic")));
}

TEST(BenchSlow, RejectsWrongUsage) {
  EXPECT_THAT(runCommand({"bench", "gpu", "--help"}, "/").out, HasSubstr("--seconds"));
  EXPECT_EQ(runCommand({"bench", "gpu", "--only", "nothing"}, "/").status, 2);
  EXPECT_EQ(runCommand({"bench", "gpu", "--device", "cuda:99"}, "/").status, 3);
  EXPECT_EQ(runCommand({"bench", "tiers", "--seconds", "0"}, "/").status, 2);
  for (const auto& [words, message] :
       {std::pair<std::vector<std::string>, const char*>{{"scenarios", "mixed"}, "'all' selects all scenarios"},
        {{"all", "tiers"}, "'all' selects all scenarios"},
        {{"tiers", "--only", "small"}, "--only selects parts"},
        {{"mixed", "--data", "x.csv"}, "--data is not read by the scenario 'mixed'"},
        {{"gpu", "--data", "x.csv"}, "--data requires a scenario"},
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
  const json details = json::parse(contentOf(file))["details"]["thesis-2"];
  EXPECT_EQ(details["rows"], 3);
  EXPECT_EQ(details["data"], data);
  EXPECT_TRUE(details.contains("losses"));
  EXPECT_FALSE(details.contains("predictions"));
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
  const json works = json::parse(contentOf(report))["details"]["gradients"]["works"];
  ASSERT_EQ(works.size(), 5U);
  for (const auto& [index, target] : {std::pair{1, "5"}, {2, "5"}, {3, "5"}, {4, "10"}}) {
    const json& work = works[static_cast<std::size_t>(index)];
    EXPECT_FALSE(work["normal_equations"]["passes_ms"].empty());
    const std::string file = folder + "/" + work["key"].get<std::string>();
    const Outcome fits = runCommand(
        {"fit", "--exprs", file + ".txt", "--data", file + ".npy", "--target", target, "--math", "fast", "--device",
         "cpu", "--iterations", std::to_string(work["fits"]["passes"].get<int>()), "--json", "--quiet"},
        "/");
    ASSERT_EQ(fits.status, 0) << fits.err;
    const json results = json::parse(fits.out);
    EXPECT_EQ(results.size(), work["expressions"]) << file;
    std::size_t converged = 0, rows = 0;
    for (const json& fit : results) {
      converged += fit["status"] == "converged" ? 1U : 0U;
      rows = std::max(rows, fit["valid_rows"].is_null() ? 0 : fit["valid_rows"].get<std::size_t>());
    }
    EXPECT_EQ(converged, work["fits"]["converged"]) << file;
    EXPECT_EQ(rows, work["rows"]) << file;
  }
}

// On the processor the parts are the same, without figures of a GPU.
TEST(BenchSlow, OfAGpuWritesFiguresWithTheirTargets) {
  const Scratch scratch;
  const std::string file = scratch.path("figures.json");
  const Outcome outcome = runCommand({"bench", "gpu", "--device", "cpu", "--quick", "--only", "small", "--only",
                                      "steady", "--commit", "abc", "--json", file},
                                     "/");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("host to host over kernel"));
  const json report = json::parse(contentOf(file));
  EXPECT_EQ(report["machine"]["commit"], "abc");
  EXPECT_EQ(report["complete"], true);
  EXPECT_TRUE(report["faults"].empty());
  std::size_t targets = 0;
  for (const json& figure : report["figures"]) {
    EXPECT_LE(figure["min"], figure["value"]);
    EXPECT_LE(figure["value"], figure["max"]);
    EXPECT_GE(figure["samples"], 1);
    if (!figure.contains("target")) continue;
    ++targets;
    const bool most = figure["direction"] == "at most";
    EXPECT_EQ(figure["reached"], most ? figure["value"] <= figure["target"] : figure["value"] >= figure["target"]);
  }
  EXPECT_EQ(targets, 3U);
}

TEST(BenchSlow, AFilterThatMatchesNothingIsWrongUsage) {
  const std::filesystem::path program = std::filesystem::path(SRJIT_COMMAND).parent_path() / "sr-jit-bench";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "Google Benchmark is not installed";
  for (const std::string filter : {"[", "no such benchmark"}) {
    const Outcome outcome = runCommand({"bench", "--filter", filter}, "/");
    EXPECT_EQ(outcome.status, 2) << filter;
    EXPECT_THAT(outcome.err, HasSubstr("the filter matches no benchmark")) << filter;
  }
}

}  // namespace
}  // namespace srjit

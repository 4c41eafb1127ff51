// The benchmark's report: figures with their targets, and pieces that were skipped.
#include <gtest/gtest.h>

#include "tools/bench/harness.h"

namespace srjit {
namespace {

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

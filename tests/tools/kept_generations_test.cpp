// The benchmark of kept subtrees on a model of a GPU.
#include "tools/bench/scenarios/sharing.h"

#include "tests/gpu_model/slow_machine.h"

namespace srjit {
namespace {

TEST(KeptGenerations, OverlapWithTheirPredecessors) {
  for (const char* const name : {"formula", "mixed"}) {
    const std::vector<std::vector<Expression>> generations = generationsOf(name, 3, 20);
    ASSERT_EQ(generations.size(), 3U);
    for (std::size_t g = 0; g < 3; ++g) {
      ASSERT_EQ(generations[g].size(), 20U);
      EXPECT_FALSE(g > 0 && generations[g] == generations[g - 1]) << name;
    }
    EXPECT_TRUE(generations == generationsOf(name, 3, 20)) << "the same on every machine";
  }
}

TEST(KeptGenerations, AreComparedAndTimed) {
  SlowMachine machine(Precision::kF32, Math::kFast);
  const Engine engine = machine.keeping();
  const BenchData columns = randomData(10, 200);
  const std::vector<std::vector<Expression>> generations = generationsOf("mixed", 4, 30);
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    const Dataset data = engine.upload(columns.view()).value();
    Report report(Json::object(), "");
    Bench bench{.scenario = "sharing", .report = &report};
    timeKept(bench, engine, data, generations, tier, {"generations"});
    const Json figures = report.json(true)["figures"];
    ASSERT_EQ(figures.size(), 8U) << "four of each way";
    const auto last = [&](const char* way, const char* metric) {
      for (const Json& figure : figures) {
        EXPECT_EQ(figure["samples"], 2) << "from the third generation on";
        if (figure["facts"]["way"] == way && figure["metric"] == metric) return figure["values"][1].get<double>();
      }
      return -1.0;
    };
    EXPECT_GT(last("subtrees kept", "columns read"), 0);
    EXPECT_EQ(last("all computed", "columns read"), 0);
    EXPECT_GT(last("subtrees kept", "a generation"), 0);
    EXPECT_LT(last("subtrees kept", "nodes after the passes"), last("all computed", "nodes after the passes"));
  }
}

}  // namespace
}  // namespace srjit

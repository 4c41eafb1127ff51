// The benchmark of kept subtrees on a model of a GPU.
#include "tools/bench/scenarios/kept_generations.h"

#include "tests/gpu_model/slow_machine.h"

namespace srjit {
namespace {

TEST(KeptGenerations, OverlapWithTheirPredecessors) {
  for (const char* const name : {"mit-generation", "mixed"}) {
    const std::vector<Generation> generations = generationsOf(name, 3, 20);
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
  const BenchData columns(10, 200);
  const std::vector<Generation> generations = generationsOf("mixed", 4, 30);
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    const Dataset data = engine.upload(columns.view()).value();
    const nlohmann::ordered_json row = timeGenerations(engine, data, generations, tier);
    EXPECT_EQ(row["tier"], tier == Tier::kCompile ? "compile" : "interpret");
    EXPECT_EQ(row["rows"], 200);
    EXPECT_EQ(row["columns"], 32);
    EXPECT_GT(row["columns_computed"], 0);
    for (const char* const way : {"kept", "computed"}) {
      for (const char* const field : {"ready_ms", "losses_ms", "total_ms", "kernel_ms", "nodes", "columns_read"}) {
        EXPECT_EQ(row[way][field].size(), 4U) << way << " " << field;
      }
    }
    EXPECT_EQ(row["kept"]["columns_read"][1], 0);
    EXPECT_GT(row["kept"]["columns_read"][3], 0);
    EXPECT_EQ(row["computed"]["columns_read"][3], 0);
    EXPECT_LT(row["kept"]["nodes"][3], row["computed"]["nodes"][3]);
  }
}

}  // namespace
}  // namespace srjit

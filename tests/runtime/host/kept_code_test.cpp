// Handlers and losses of the CPU in the kernel cache: found by later engines, made again where that fails.
#include <fstream>

#include <gmock/gmock.h>

#include "runtime/host/executor.h"
#include "tests/generators/scratch.h"
#include "tests/generators/workload.h"
#include "tests/runtime/cache/images.h"

namespace srjit {
namespace {

struct Outcome {
  std::vector<double> losses;
  CacheStats stats;
};

class KeptCode : public testing::Test {
 protected:
  /// Of a new engine.
  Outcome run(EngineOptions options = {}, std::size_t expressions = 20) const {
    options.device = "cpu";
    options.threads = 2;
    if (!options.cache_directory) options.cache_directory = directory_;
    const Engine engine = Engine::create(options).value();
    const Dataset data = engine.upload(workload_.view()).value();
    const std::span some = std::span(workload_.expressions).first(expressions);
    const Program program = engine.compile(some, {.tier = Tier::kInterpret});
    const std::span parameters = std::span(workload_.parameters).first(program.parameterOffset(expressions));
    Outcome outcome;
    outcome.losses = engine.loss(program, data, parameters).value().values;
    outcome.stats = engine.cacheStats();
    return outcome;
  }
  std::vector<std::string> files() const { return filesEndingIn(directory_, ".kernel"); }

  Scratch scratch_;
  const std::string directory_ = scratch_.path("");
  const Workload workload_ = Workload::random(
      {.seed = 5, .min_nodes = 3, .max_nodes = 20, .variables = 3, .parameters = 2, .parameter_probability = 0.2}, 40,
      200, Spread::kTame, Precision::kF32);
};

TEST_F(KeptCode, IsFoundByTheNextEngine) {
  const Outcome first = run();
  EXPECT_GT(first.stats.misses, 10U);
  EXPECT_EQ(first.stats.disk_hits, 0U);
  EXPECT_EQ(files().size(), first.stats.misses);
  const Outcome second = run();
  EXPECT_EQ(second.stats.misses, 0U);
  EXPECT_EQ(second.stats.disk_hits, first.stats.misses);
  EXPECT_GT(second.stats.saved_seconds, 0);
  expectSameBits(first.losses, second.losses, 1, "engines");
}

TEST_F(KeptCode, IsUsedByOtherExpressions) {
  const Outcome some = run({}, 20), all = run({}, 40);
  EXPECT_GT(all.stats.disk_hits, 0U);
  EXPECT_EQ(files().size(), some.stats.misses + all.stats.misses);
  EXPECT_EQ(run({}, 40).stats.misses, 0U);
}

TEST_F(KeptCode, ThatIsDamagedIsMadeAgain) {
  const Outcome first = run();
  for (const std::string& file : files()) flipByte(file);
  const Outcome second = run();
  EXPECT_EQ(second.stats.damaged, first.stats.misses);
  EXPECT_EQ(second.stats.misses, first.stats.misses);
  expectSameBits(first.losses, second.losses, 1, "engines");
  const Outcome third = run();
  EXPECT_EQ(third.stats.misses + third.stats.damaged, 0U);
}

TEST_F(KeptCode, IsNotThatOfOtherOptions) {
  const Outcome first = run();
  for (const EngineOptions& other : {EngineOptions{.math = Math::kStrict}, EngineOptions{.math = Math::kFast},
                                     EngineOptions{.precision = Precision::kF64}}) {
    EXPECT_EQ(run(other).stats.disk_hits, 0U);
  }
  EXPECT_EQ(run().stats.disk_hits, first.stats.misses);
}

TEST_F(KeptCode, IsNotNeeded) {
  const Outcome kept = run(), unkept = run({.cache_directory = ""});
  EXPECT_GT(unkept.stats.misses, 0U);
  expectSameBits(kept.losses, unkept.losses, 1, "engines");
  const std::string file = scratch_.path("file");
  std::ofstream(file) << "no directory";
  const Outcome refused = run({.cache_directory = file});
  EXPECT_THAT(refused.stats.disk_fault, testing::HasSubstr("it is no directory"));
  expectSameBits(kept.losses, refused.losses, 1, "engines");
}

TEST_F(KeptCode, IsSharedByTheEnginesOfAProcess) {
  const auto cache = KernelCache::open({.directory = directory_});  // as an engine that lives on
  const Outcome first = run(), second = run();
  EXPECT_EQ(second.stats.misses, first.stats.misses);
  EXPECT_EQ(second.stats.memory_hits, first.stats.misses);
  expectSameBits(first.losses, second.losses, 1, "engines");
}

}  // namespace
}  // namespace srjit

// Auto and the kernel cache: compiled kernels that are in the cache cost no more than loading.
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "compiler/lowering/source_map.h"
#include "tests/generators/scratch.h"
#include "tests/gpu_model/device_engine.h"
#include "tests/runtime/cache/images.h"
#include "tests/runtime/tiers/held_pass.h"

namespace srjit {
namespace {

constexpr std::size_t kCachedRows = 200, kExpressions = 384;
/// Enough evaluations for loading the kernels or compiling one of them to pay, but not for compiling all: loading takes
/// milliseconds, a kernel a tenth of a second, and all of them half a second.
constexpr double kEvaluations = 50'000;

/// A device without the direct tier, so that only the interpreter serves before compiled code.
struct CachedMachine {
  FakeMachine machine{{.devices = {FakeDevice{.capability = 75}}}};
  Engine gpu;
  Dataset data;

  CachedMachine(const Scratch& directory, const Workload& w)
      : gpu(machine.engine(
            {.precision = Precision::kF64, .math = Math::kStrict, .cache_directory = directory.path("")})),
        data(gpu.upload(w.view()).value()) {
    machine.images->seconds = 0.1;
  }
  Program automatic(const Workload& w, std::optional<Pipeline> pipeline = {}) const {
    return gpu.compile(
        w.expressions,
        {.pipeline = std::move(pipeline), .expected_evaluations = kEvaluations, .group_by_sharing = false});
  }
  std::size_t made() const { return machine.images->count("rows"); }
};

Workload workload() { return arithmeticWorkload(51, kExpressions, kCachedRows, Precision::kF64); }

/// Leaves the kernels of the first `count` expressions in the cache; returns how many modules they are.
std::size_t fill(const Scratch& directory, const Workload& w, std::size_t count) {
  const CachedMachine first(directory, w);
  const Program program =
      first.gpu.compile(std::span(w.expressions).first(count), {.tier = Tier::kCompile, .group_by_sharing = false});
  EXPECT_TRUE(first.gpu.prepare(program, first.data, LossOptions{}).ok());
  return first.made();
}

/// One loss, and the end of the background work that it started.
Losses lossAndRest(const CachedMachine& machine, const Program& program, const Workload& w) {
  Losses losses = machine.gpu.loss(program, machine.data, w.parameters).value();
  while (program.status().compiling) std::this_thread::yield();
  return losses;
}

TEST(CachedTiers, ASecondProcessLoadsTheCachedKernels) {
  const Scratch directory;
  const Workload w = workload();
  ASSERT_GT(fill(directory, w, kExpressions), 1U);
  const CachedMachine second(directory, w);
  const Program program = second.automatic(w);
  const Losses interpreted = lossAndRest(second, program, w);
  EXPECT_EQ(second.machine.driver.count("cuGraphLaunch"), 0U);
  const ProgramStatus status = program.status();
  EXPECT_EQ(status.tier, Tier::kCompile);
  EXPECT_EQ(status.compiled, kExpressions);
  EXPECT_EQ(second.made(), 0U);
  expectSameLosses(lossAndRest(second, program, w), interpreted, "loaded");
  EXPECT_EQ(second.machine.driver.count("cuGraphLaunch"), 1U);
}

/// The loading of modules of rows, in order.
std::vector<FakeCall> loadsOfRows(const CachedMachine& machine) {
  std::vector<FakeCall> calls = machine.machine.driver.calls();
  std::erase_if(calls, [](const FakeCall& call) {
    return call.entry != "cuModuleLoadDataEx" || call.detail != rowsKernelName(0);
  });
  return calls;
}

/// How often a module of rows was loaded before the one loaded last had given a kernel.
std::size_t overlappingLoads(const std::vector<FakeCall>& calls) {
  std::size_t overlapping = 0;
  bool loading = false;
  for (const FakeCall& call : calls) {
    const bool loads = call.entry == "cuModuleLoadDataEx" && call.detail == rowsKernelName(0);
    if (loads && loading) ++overlapping;
    if (loads || call.entry == "cuModuleGetFunction") loading = loads;
  }
  return overlapping;
}

TEST(CachedTiers, CachedKernelsAreLoadedOneByOneBeforeOthersAreCompiled) {
  const Scratch directory;
  const Workload w = workload();
  const std::size_t cached = fill(directory, w, kExpressions - 10);
  const CachedMachine second(directory, w);
  const Program program = second.gpu.compile(w.expressions, {.tier = Tier::kCompile, .group_by_sharing = false});
  std::vector<std::size_t> loaded;
  std::optional<std::size_t> overlapping;
  std::mutex mutex;
  second.machine.images->before = [&](const FakeImageMaker::Request& request) {
    const std::scoped_lock lock(mutex);
    if (request.kind != "rows") return okStatus();
    loaded.push_back(loadsOfRows(second).size());
    if (!overlapping) overlapping = overlappingLoads(second.machine.driver.calls());
    return okStatus();
  };
  ASSERT_TRUE(second.gpu.prepare(program, second.data, LossOptions{}).ok());
  const std::vector<FakeCall> loads = loadsOfRows(second);
  const std::size_t found = loads.size() - second.made();
  ASSERT_GT(found, 3U);
  EXPECT_LE(found, cached);
  EXPECT_EQ(overlapping, 0U);
  for (const FakeCall& load : std::span(loads).first(found)) EXPECT_EQ(load.thread, loads.front().thread);
  ASSERT_FALSE(loaded.empty());
  for (const std::size_t before : loaded) EXPECT_GE(before, found);
  const ProgramStatus status = program.status();
  EXPECT_GT(status.seconds_reading, 0);
  EXPECT_GT(status.seconds_loading, 0);
  EXPECT_LE(status.seconds_reading + status.seconds_loading, status.seconds_compiling);
}

/// Of a program that compiles everything at once.
Result<Losses> compiledLosses(const CachedMachine& machine, const Workload& w) {
  const Program program = machine.gpu.compile(w.expressions, {.tier = Tier::kCompile, .group_by_sharing = false});
  return machine.gpu.loss(program, machine.data, w.parameters);
}

// Others are being read when that is seen.
TEST(CachedTiers, DamagedKernelsAreCompiledAgain) {
  const Scratch directory;
  const Workload w = workload();
  const std::size_t modules = fill(directory, w, kExpressions);
  ASSERT_GT(modules, 4U);
  const std::vector<std::string> files = filesEndingIn(directory.path(""), ".kernel");
  for (std::size_t i = 0; i < files.size(); i += 3) flipByte(files[i]);
  const Losses expected = lossesOf(cpuEngine(Precision::kF64), w, Tier::kInterpret, {});
  {
    const CachedMachine second(directory, w);
    expectSameLosses(compiledLosses(second, w).value(), expected, "read and made");
    EXPECT_GT(second.made(), 0U);
    EXPECT_LT(second.made(), modules);
  }
  const CachedMachine third(directory, w);
  expectSameLosses(compiledLosses(third, w).value(), expected, "read");
  EXPECT_EQ(third.made(), 0U);
}

TEST(CachedTiers, AModuleThatCannotBeLoadedEndsTheReading) {
  const Scratch directory;
  const Workload w = workload();
  const std::size_t modules = fill(directory, w, kExpressions);
  for (std::size_t n = 1; n <= modules; ++n) {
    CachedMachine second(directory, w);
    second.machine.driver.failAt("cuModuleLoadDataEx", n, CUDA_ERROR_INVALID_IMAGE);
    EXPECT_FALSE(compiledLosses(second, w).ok()) << n;
    EXPECT_TRUE(compiledLosses(second, w).ok()) << n;
    EXPECT_EQ(second.made(), 0U);
  }
}

TEST(CachedTiers, HalvesOfSpillingKernelsAreCached) {
  const Scratch directory;
  const Workload w = workload();
  const auto lossesBy = [&](std::size_t& made) {
    const CachedMachine machine(directory, w);
    machine.machine.images->facts = [](const Dag& dag) {
      return KernelFacts{{}, 32, dag.roots().size() > 16 ? 100'000U : 0U, 0, 0};
    };
    const Program program = machine.gpu.compile(w.expressions, {.tier = Tier::kCompile, .group_by_sharing = false});
    Losses losses = machine.gpu.loss(program, machine.data, w.parameters).value();
    EXPECT_EQ(program.status().compiled, kExpressions);
    made = machine.made();
    return losses;
  };
  std::size_t made = 0, made_again = 0;
  const Losses first = lossesBy(made);
  expectSameLosses(lossesBy(made_again), first, "from the cache");
  EXPECT_GE(made, kExpressions / 16);
  EXPECT_EQ(made_again, 0U);
}

TEST(CachedTiers, OnlyMissingKernelsCountAsCost) {
  const Scratch directory;
  const Workload w = workload();
  const std::size_t cached = fill(directory, w, kExpressions - 10);
  const CachedMachine second(directory, w);
  const Program program = second.automatic(w);
  lossAndRest(second, program, w);
  EXPECT_EQ(program.status().tier, Tier::kCompile);
  EXPECT_GT(second.made(), 0U);
  EXPECT_LT(second.made(), cached / 2);
}

TEST(CachedTiers, MissingKernelsAreLookedUpOnce) {
  const Scratch directory;
  const Workload w = workload();
  const CachedMachine machine(directory, w);
  HeldPass pass;
  const Program program = machine.automatic(w, pass.pipeline(Math::kStrict));
  const std::size_t encoded = pass.runs();
  lossAndRest(machine, program, w);
  const std::size_t looked = pass.runs();
  EXPECT_GT(looked, encoded);
  for (int i = 0; i < 3; ++i) lossAndRest(machine, program, w);
  EXPECT_EQ(pass.runs(), looked);
  EXPECT_EQ(program.status().tier, Tier::kInterpret);
  EXPECT_FALSE(program.status().error);
  EXPECT_EQ(machine.made(), 0U);
}

TEST(CachedTiers, FewEvaluationsStartNoLookup) {
  const Scratch directory;
  const Workload w = workload();
  fill(directory, w, kExpressions);
  const CachedMachine machine(directory, w);
  HeldPass pass;
  const Program program = machine.gpu.compile(
      w.expressions,
      {.pipeline = pass.pipeline(Math::kStrict), .expected_evaluations = 100, .group_by_sharing = false});
  const std::size_t encoded = pass.runs();
  for (int i = 0; i < 3; ++i) lossAndRest(machine, program, w);
  EXPECT_EQ(pass.runs(), encoded);
  EXPECT_EQ(program.status().tier, Tier::kInterpret);
}

TEST(CachedTiers, CacheLookupsDoNotBlock) {
  const Scratch directory;
  const Workload w = workload();
  fill(directory, w, kExpressions);
  const CachedMachine machine(directory, w);
  HeldPass pass;
  std::weak_ptr<const ProgramSource> source;
  {
    const Program program = machine.automatic(w, pass.pipeline(Math::kStrict));
    ASSERT_TRUE(machine.gpu.prepare(program, machine.data, LossOptions{}).ok());
    pass.hold();
    const Losses first = machine.gpu.loss(program, machine.data, w.parameters).value();
    pass.waitUntilHeld();
    EXPECT_TRUE(program.status().compiling);
    expectSameLosses(machine.gpu.loss(program, machine.data, w.parameters).value(), first, "meanwhile");
    source = program.state().source;
  }
  // The lookup ends with the program.
  const std::size_t loaded = machine.machine.driver.count("cuModuleLoadDataEx");
  pass.release();
  waitForEnd(source);
  EXPECT_EQ(machine.machine.driver.count("cuModuleLoadDataEx"), loaded);
  EXPECT_EQ(machine.made(), 0U);
}

}  // namespace
}  // namespace srjit

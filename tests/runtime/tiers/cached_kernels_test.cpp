// Compiled code and the kernel cache.
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "compiler/lowering/source_map.h"
#include "tests/generators/scratch.h"
#include "tests/gpu_model/device_engine.h"
#include "tests/runtime/cache/images.h"

namespace srjit {
namespace {

constexpr std::size_t kCachedRows = 200, kExpressions = 384;

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

/// Of a program that compiles everything at once.
Result<Losses> compiledLosses(const CachedMachine& machine, const Workload& w) {
  const Program program = machine.gpu.compile(w.expressions, {.tier = Tier::kCompile, .group_by_sharing = false});
  return machine.gpu.loss(program, machine.data, w.parameters);
}

TEST(CachedTiers, ASecondProcessLoadsTheCachedKernels) {
  const Scratch directory;
  const Workload w = workload();
  ASSERT_GT(fill(directory, w, kExpressions), 1U);
  const CachedMachine second(directory, w);
  const Losses expected = lossesOf(cpuEngine(Precision::kF64), w, Tier::kInterpret, {});
  expectSameLosses(compiledLosses(second, w).value(), expected, "loaded");
  EXPECT_EQ(second.made(), 0U);
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

}  // namespace
}  // namespace srjit

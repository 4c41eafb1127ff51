// Scenarios on a model of a GPU, and of two.
#include "runtime/tiers/direct_self_test.h"
#include "tests/faults/engine_calls.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

constexpr unsigned kStart = kMemory | kGpu, kOfGpu = kStart | kKernels;

EngineOptions onGpu(Tier tier = Tier::kInterpret) { return {.device = "cuda:0", .math = Math::kStrict, .tier = tier}; }
EngineOptions onPool() { return {.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret}; }

/// Work lags behind, as on a real device: a missing wait gives other numbers.
FakeOptions oneGpu() { return {.lag = true}; }
FakeOptions twoGpus() { return manyDevices(2); }

/// Writes facts to the cache in the world's folder: that the direct tier works, and that computing takes so long that
/// every kept value saves time.
EngineOptions withFacts(World& world, Tier tier) {
  EngineOptions options = onGpu(tier);
  options.cache_directory = world.scratch.path("");
  auto cuda = Cuda::open(world.machine.driver.load().value(), 0).value();
  const CurrentContext current(*cuda);
  const auto cache = KernelCache::open({.directory = world.scratch.path("")});
  cache->writeFact(fmt::format("costs of {} ({}) {} {}", cuda->limits().name, cuda->limits().driver_version,
                               nameOf(options.precision), nameOf(options.math)),
                   R"({"interpret": 1e-7, "direct": 1e-7, "compiled": 1e-7})");
  auto queue = std::make_shared<DeviceQueue>(cuda);
  auto store = std::make_shared<KernelStore>(cuda, world.machine.images, cache, options.precision, options.math);
  cache->writeFact(DirectSelfTest(queue, store, cache, 2).fact(), "proved");
  return options;
}

Calls streamed(World& world) {
  EngineOptions options = onGpu();
  options.device_bytes = 1;
  return compilation(world, options, {.expressions = 2, .rows = 4200});
}

Calls keptSubtrees(World& world) {
  EngineOptions options = withFacts(world, Tier::kInterpret);
  options.subtree_bytes = std::uint64_t{1} << 20;
  return generations(world, options);
}

Calls streamedByAll(World& world) {
  EngineOptions options = onPool();
  options.device_bytes = 100'000;
  return compilation(world, options, {.expressions = 2, .rows = 4096 + 100});
}

constexpr Scenario kGpuScenarios[] = {
    {"GpuEngine", kStart | kCodes, [](World& w) { return creation(w, onGpu()); }, oneGpu},
    {"GpuAnyEngine", kStart, [](World& w) { return creation(w, {.device = "auto"}); }, oneGpu},
    {"GpuWholeLife", kThreads, [](World& w) { return wholeLife(w, onGpu()); }, oneGpu, true},
    {"PoolWholeLife", kThreads, [](World& w) { return wholeLife(w, onPool()); }, twoGpus, true},
    {"GpuUploads", kStart | kCodes, [](World& w) { return uploads(w, onGpu()); }, oneGpu},
    {"GpuInterpreted", kOfGpu | kCodes, [](World& w) { return compilation(w, onGpu()); }, oneGpu, true},
    {"GpuCompiled", kOfGpu, [](World& w) { return compilation(w, onGpu(Tier::kCompile)); }, oneGpu, true},
    {"GpuDirect", kOfGpu, [](World& w) { return compilation(w, withFacts(w, Tier::kDirect)); }, oneGpu, true},
    {"GpuAuto", kOfGpu, [](World& w) { return compilation(w, onGpu(Tier::kAuto)); }, oneGpu, true},
    {"GpuTokenArrays", kOfGpu, [](World& w) { return tokenArrays(w, onGpu()); }, oneGpu, true},
    {"GpuPredictions", kOfGpu, [](World& w) { return predictions(w, onGpu()); }, oneGpu},
    {"GpuSeveralVectors", kOfGpu, [](World& w) { return severalVectors(w, onGpu()); }, oneGpu},
    {"GpuLosses", kOfGpu, [](World& w) { return losses(w, onGpu()); }, oneGpu},
    {"GpuGradients", kOfGpu, [](World& w) { return gradients(w, onGpu()); }, oneGpu},
    {"GpuFits", kOfGpu, [](World& w) { return fits(w, onGpu()); }, oneGpu},
    {"GpuFlights", kOfGpu | kCodes, [](World& w) { return flights(w, onGpu()); }, oneGpu},
    {"GpuFitsInFlight", kOfGpu, [](World& w) { return fitsInFlight(w, onGpu()); }, oneGpu},
    {"GpuStreamed", kOfGpu, streamed, oneGpu, true},
    {"GpuKeptSubtrees", kOfGpu, keptSubtrees, oneGpu, true},
    {"GpuDeviceMemory", kOfGpu, [](World& w) { return deviceMemory(w, onGpu()); }, oneGpu},
    {"PoolEngine", kStart, [](World& w) { return creation(w, onPool()); }, twoGpus},
    {"PoolUploads", kStart, [](World& w) { return uploads(w, onPool()); }, twoGpus},
    {"PoolCompilation", kOfGpu, [](World& w) { return compilation(w, onPool()); }, twoGpus, true},
    {"PoolFlights", kOfGpu, [](World& w) { return flights(w, onPool()); }, twoGpus},
    {"PoolFits", kOfGpu, [](World& w) { return fits(w, onPool()); }, twoGpus},
    {"PoolStreamed", kOfGpu, streamedByAll, twoGpus, true},
};

}  // namespace

std::span<const Scenario> gpuScenarios() { return kGpuScenarios; }

}  // namespace srjit

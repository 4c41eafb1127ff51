// The environment of direct-tier tests: a model of a GPU that executes the tier's machine code, and the self-test by
// itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "compiler/direct/emitter.h"
#include "runtime/tiers/direct_self_test.h"
#include "tests/generators/scratch.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {

/// Images of direct code that a self-test loads, of both shapes: for predictions, and for each kind of losses.
/// With weights and without, with rows left out and without, every term.
inline const std::size_t kSelfTestLosses = 4 * kernelLossTerms().size(), kSelfTestModules = 2 * (1 + kSelfTestLosses);
/// Its launches, for code of both shapes: predictions from adjacent and from strided values; losses.
inline const std::size_t kSelfTestLaunches = 2 * (2 + kSelfTestLosses);

/// Calls of an entry, since forgetCalls(), that are of direct code.
inline std::size_t directCalls(const FakeDriver& driver, std::string_view entry) {
  return static_cast<std::size_t>(std::ranges::count_if(
      driver.calls(), [&](const FakeCall& call) { return call.entry == entry && call.detail == kDirectKernel; }));
}

/// The self-test of a machine's first device, as an engine of two threads runs it.
struct SelfTesting {
  explicit SelfTesting(FakeMachine& machine, const std::string& directory, Precision precision = Precision::kF32)
      : cuda(Cuda::open(machine.driver.load().value(), 0).value()),
        current(*cuda),
        cache(KernelCache::open({.directory = directory})),
        queue(std::make_shared<DeviceQueue>(cuda)),
        store(std::make_shared<KernelStore>(queue, machine.images, cache, precision, Math::kStrict)),
        self_test(store, 2) {}
  std::optional<Error> ensure() { return self_test.ensure(never); }
  /// Whether the lock of the self-test is marked, determined without holding it.
  bool isMarked(const Scratch& directory) const {
    const auto names = directory.list();
    return std::ranges::any_of(names, [&](const std::string& name) {
      return name.ends_with(".lock") && std::filesystem::file_size(directory.path(name)) > 0;
    });
  }

  std::shared_ptr<const Cuda> cuda;
  CurrentContext current;
  std::shared_ptr<KernelCache> cache;
  std::shared_ptr<DeviceQueue> queue;
  std::shared_ptr<KernelStore> store;
  std::atomic<bool> never = false;
  DirectSelfTest self_test;
};

/// A machine whose cache has the result of the self-test: passed, or `fact`.
struct DirectMachine : FakeMachine {
  explicit DirectMachine(FakeOptions options = {}, const char* fact = "proved", Precision of = Precision::kF32)
      : FakeMachine(std::move(options)), precision(of) {
    SelfTesting tested(*this, directory.path(""), precision);
    fact_name = tested.self_test.fact();
    tested.cache->writeFact(fact_name, fact);
  }
  EngineOptions strict() const {
    return {.precision = precision, .math = Math::kStrict, .cache_directory = directory.path("")};
  }
  /// Number of driver calls that launch, or load, direct code.
  std::size_t launches() const { return directCalls(driver, "cuLaunchKernel"); }
  std::size_t modules() const { return directCalls(driver, "cuModuleLoadDataEx"); }
  std::string known() const {
    return KernelCache::open({.directory = directory.path("")})->readFact(fact_name).value_or("nothing");
  }
  Precision precision;
  Scratch directory;
  std::string fact_name;
};

/// A workload of short expressions, which have direct code.
inline Workload directWorkload(std::uint64_t seed, std::size_t count, std::size_t rows, bool weighted = false,
                               Precision precision = Precision::kF32) {
  return arithmeticWorkload(seed, count, rows, precision, weighted, arithmeticOps());
}

/// Expects that direct code serves `expressions` expressions of a program, and that the status says so if there are
/// others.
inline void expectDirect(const Program& program, std::size_t expressions) {
  const ProgramStatus status = program.status();
  EXPECT_EQ(status.tier, Tier::kDirect);
  EXPECT_EQ(status.compiled, expressions);
  EXPECT_EQ(status.error.has_value(), expressions != program.size()) << status.error.value_or(Error{}).message;
}

}  // namespace srjit

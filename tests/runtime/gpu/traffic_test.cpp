// One engine, many threads, and other processes on the same file of kernels: the bits are those of a single thread.
#include "tests/generators/traffic.h"
#include "tests/runtime/cache/visitors.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

TEST(CacheVisit, OfAnotherProcess) { CacheVisitors::visitIfAsked(); }

TrafficOptions trafficOf(FakeMachine& machine, const EngineOptions& options) {
  TrafficOptions traffic{.make_engine = [&machine, options] { return machine.engine(options); },
                         .cache_directory = *options.cache_directory};
  for (const std::size_t rows : {1, 130, 600}) {
    traffic.work.push_back(withShares(arithmeticWorkload(rows, 4, rows, Precision::kF32, true)));
  }
  return traffic;
}

void runOn(std::size_t devices, std::size_t threads) {
  CacheVisitors visitors(2);
  FakeMachine machine(manyDevices(devices));
  TrafficOptions options = trafficOf(
      machine, {.device = firstDevices(devices), .math = Math::kStrict, .cache_directory = visitors.directory()});
  options.threads = threads;
  Traffic(std::move(options)).run(secondsOfTraffic());
  visitors.expectSoundEnd();
}

TEST(Traffic, ManyThreadsGetTheBitsOfOne) { runOn(1, 64); }
TEST(Traffic, SoTheyDoOnSeveralDevices) { runOn(3, 24); }

}  // namespace
}  // namespace srjit

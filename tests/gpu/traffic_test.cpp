// One engine, many threads, and other processes on the same file of kernels: the bits are those of a single thread.
// SRJIT_TRAFFIC_SECONDS is how long each mode takes (default 2).
#include "tests/generators/traffic.h"
#include "tests/gpu/machine.h"
#include "tests/runtime/cache/visitors.h"

namespace srjit {
namespace {

TEST(CacheVisit, OfAnotherProcess) { CacheVisitors::visitIfAsked(); }

class GpuTraffic : public GpuInMode {};

TEST_P(GpuTraffic, ManyThreadsGetTheBitsOfOne) {
  const EngineOptions options = engine().options();
  CacheVisitors visitors(2);
  TrafficOptions traffic{.make_engine =
                             [&] {
                               EngineOptions own = options;
                               own.cache_directory = visitors.directory();
                               return Engine::create(own).value();
                             },
                         .cache_directory = visitors.directory()};
  for (const std::size_t rows : {1, 1000, 50'000}) {
    Workload w = Workload::random(generatorOf(rows, 40), 20, rows, Spread::kTame, mode().precision);
    w.weights = quarterWeights(rows);
    traffic.work.push_back(withShares(std::move(w)));
  }
  Traffic(std::move(traffic)).run(secondsOfTraffic());
  visitors.expectSoundEnd();
}

INSTANTIATE_TEST_SUITE_P(Modes, GpuTraffic, testing::ValuesIn(allModes()), modeName);

}  // namespace
}  // namespace srjit

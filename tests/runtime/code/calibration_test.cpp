// The costs by which tiers are chosen.
#include "runtime/code/calibration.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/code/kernel_store.h"
#include "tests/generators/scratch.h"
#include "tests/gpu_model/fake_cuda.h"

namespace srjit {
namespace {

constexpr DeviceCosts kMeasuredCosts = {
    .interpret = 2e-12, .direct = 1.5e-12, .compiled = 1e-12, .write = 1e-6, .compile = 1e-4};

TEST(CompileSeconds, AreThoseOfTheBusiestCore) {
  EXPECT_EQ(compileSeconds(kMeasuredCosts, 0, 0, 4), 0);
  EXPECT_DOUBLE_EQ(compileSeconds(kMeasuredCosts, 1000, 1, 4), 0.1) << "one kernel is made by one core";
  EXPECT_DOUBLE_EQ(compileSeconds(kMeasuredCosts, 1000, 4, 4), 0.025);
  EXPECT_DOUBLE_EQ(compileSeconds(kMeasuredCosts, 1000, 5, 4), 0.04) << "a second round for the fifth";
}

TEST(MakingPays, WhenItTakesLessTimeThanItSaves) {
  EXPECT_TRUE(makingPays(kMeasuredCosts.interpret, kMeasuredCosts.compiled, 100, 1e9, 0.1)) << "0.2 s of interpreting";
  EXPECT_FALSE(makingPays(kMeasuredCosts.interpret, kMeasuredCosts.compiled, 100, 1e9, 0.3));
  EXPECT_FALSE(makingPays(kMeasuredCosts.interpret, kMeasuredCosts.compiled, 1, 1e9, 0.1));
  EXPECT_FALSE(makingPays(kMeasuredCosts.direct, kMeasuredCosts.compiled, 100, 1e9, 0.18))
      << "what serves is faster already";
  EXPECT_FALSE(makingPays(kMeasuredCosts.interpret, 0.95 * kMeasuredCosts.interpret, 1e9, 1e9, 0.1))
      << "it would hardly be faster";
}

TEST(MakingPays, WithTypicalCosts) {
  // 10,000 expressions of 30 nodes on 10,860 rows, 16 cores.
  constexpr DeviceCosts kTypical = kTypicalCosts;
  const double nodes = 3e5, node_rows = nodes * 10'860;
  const double compiling = compileSeconds(kTypical, nodes, 157, 16), writing = kTypical.write * nodes / 16;
  EXPECT_FALSE(makingPays(kTypical.interpret, kTypical.compiled, 100, node_rows, compiling));
  EXPECT_TRUE(makingPays(kTypical.interpret, kTypical.compiled, 10'000, node_rows, compiling));
  EXPECT_TRUE(makingPays(kTypical.interpret, kTypical.direct, 100, node_rows, writing));
  EXPECT_FALSE(makingPays(kTypical.interpret, kTypical.direct, 1, node_rows, writing));
}

std::shared_ptr<KernelCache> cacheIn(const std::filesystem::path& directory) {
  return KernelCache::open({.directory = directory});
}

TEST(Calibration, AveragesMeasurements) {
  Calibration calibration(cacheIn({}), "a device");
  EXPECT_EQ(calibration.costs().interpret, kTypicalCosts.interpret);
  double last = kTypicalCosts.interpret;
  for (int i = 0; i < 40; ++i) {
    calibration.addRun(&DeviceCosts::interpret, 1e10, 1e10 * 1e-11);
    EXPECT_GT(calibration.costs().interpret, last);
    EXPECT_LE(calibration.costs().interpret, 1e-11);
    last = calibration.costs().interpret;
  }
  EXPECT_NEAR(last, 1e-11, 1e-13);
  EXPECT_EQ(calibration.costs().compiled, kTypicalCosts.compiled);
  calibration.addRun(&DeviceCosts::compiled, 1e10, 1);
  EXPECT_GT(calibration.costs().compiled, kTypicalCosts.compiled);
  calibration.addMaking(&DeviceCosts::compile, 1000, 1000 * kTypicalCosts.compile / 16);
  EXPECT_DOUBLE_EQ(calibration.costs().compile, kTypicalCosts.compile / 2) << "a quarter of the way, in powers";
  calibration.addMaking(&DeviceCosts::write, 1000, 1000 * kTypicalCosts.write / 16);
  EXPECT_DOUBLE_EQ(calibration.costs().write, kTypicalCosts.write / 2);
  EXPECT_EQ(calibration.costs().direct, kTypicalCosts.direct);
  calibration.addRun(&DeviceCosts::direct, 1e10, 1);
  EXPECT_GT(calibration.costs().direct, kTypicalCosts.direct);
}

TEST(Calibration, IgnoresSmallMeasurements) {
  Calibration calibration(cacheIn({}), "a device");
  calibration.addRun(&DeviceCosts::interpret, 1e6, 1);
  calibration.addRun(&DeviceCosts::interpret, 1e10, 0);
  calibration.addRun(&DeviceCosts::interpret, 1e10, std::numeric_limits<double>::infinity());
  calibration.addMaking(&DeviceCosts::compile, 0, 1);
  calibration.addMaking(&DeviceCosts::compile, 0, 0);
  EXPECT_EQ(calibration.costs().interpret, kTypicalCosts.interpret);
  EXPECT_EQ(calibration.costs().compile, kTypicalCosts.compile);
}

TEST(Calibration, IsKeptForTheNextProcessByName) {
  const Scratch directory;
  {
    Calibration calibration(cacheIn(directory.path("")), "a device");
    EXPECT_FALSE(calibration.hasChanged());
    calibration.addRun(&DeviceCosts::compiled, 1e10, 1);
    EXPECT_TRUE(calibration.hasChanged());
    EXPECT_EQ(Calibration(cacheIn(directory.path("")), "a device").costs().compiled, kTypicalCosts.compiled);
    calibration.write();
    EXPECT_FALSE(calibration.hasChanged());
    calibration.addRun(&DeviceCosts::compiled, 1e10, calibration.costs().compiled * 1e10 * 1.1);
    EXPECT_FALSE(calibration.hasChanged()) << "too little to be written";
  }
  const auto cache = cacheIn(directory.path(""));
  EXPECT_GT(Calibration(cache, "a device").costs().compiled, 2 * kTypicalCosts.compiled);
  EXPECT_EQ(Calibration(cache, "another").costs().compiled, kTypicalCosts.compiled);
  for (const char* const text : {"nonsense", "[]", R"({"compiled": -1})", R"({"compiled": "fast"})", ""}) {
    cache->writeFact("costs of a device", text);
    EXPECT_EQ(Calibration(cache, "a device").costs().compiled, kTypicalCosts.compiled) << text;
  }
}

TEST(Calibration, ChangesDuringAWriteStayPending) {
  const Scratch directory;
  Calibration calibration(cacheIn(directory.path("")), "a device");
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    while (!is_over) calibration.write();
  });
  for (int round = 0; round < 100; ++round) {
    const double seconds = round % 2 == 0 ? 1 : 10;
    calibration.addRun(&DeviceCosts::compiled, 1e10, seconds);
    while (calibration.hasChanged()) std::this_thread::yield();
    calibration.addRun(&DeviceCosts::interpret, 1e10, seconds);  // while the writer writes
  }
  is_over = true;
  writer.join();
  calibration.write();
  EXPECT_FALSE(calibration.hasChanged());
  const DeviceCosts written = Calibration(cacheIn(directory.path("")), "a device").costs();
  EXPECT_EQ(written.compiled, calibration.costs().compiled);
  EXPECT_EQ(written.interpret, calibration.costs().interpret);
}

TEST(Calibration, CountsOnlyCompilationByTheCaller) {
  Device device;
  const auto cache = cacheIn({});
  const auto images = std::make_shared<FakeImageMaker>();
  const CurrentContext current(*device.cuda);
  const auto queue = std::make_shared<DeviceQueue>(device.cuda);
  KernelStore first(queue, images, cache, Precision::kF32, Math::kStrict);
  KernelStore second(queue, images, cache, Precision::kF32, Math::kStrict);
  Dag dag(Precision::kF32);
  dag.addRoot(dag.variable(0));
  double made = -1, found = -1;
  const KernelKey key = first.keyOf({&dag, 1}, {}, 4, 1);
  EXPECT_EQ(key, second.keyOf({&dag, 1}, {}, 4, 1));
  const auto kept = first.rows(key, {&dag, 1}, {}, 4, 1, made);
  ASSERT_TRUE(kept.ok());
  ASSERT_TRUE(second.rows(key, {&dag, 1}, {}, 4, 1, found).ok());
  EXPECT_EQ(made, images->seconds);
  EXPECT_EQ(found, 0) << "another engine made it, in the same cache";
  EXPECT_EQ(images->count("rows"), 1U);
}

}  // namespace
}  // namespace srjit

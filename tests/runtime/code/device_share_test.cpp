// Which share of a population a device encodes: by costs, and by what was measured.
#include "runtime/code/interpreted/device_share.h"

#include <limits>

#include <gtest/gtest.h>

namespace srjit {
namespace {

constexpr unsigned kThreads = 16, kMultiprocessors = 132;

TEST(DeviceShare, IsByCostsAtFirst) {
  const DeviceShare share;
  EXPECT_DOUBLE_EQ(share.of(kThreads, kMultiprocessors), shareOfDevice(kThreads, kMultiprocessors));
  EXPECT_NEAR(share.of(kThreads, kMultiprocessors), 0.79, 0.01);
  EXPECT_LT(share.of(64, kMultiprocessors), share.of(16, kMultiprocessors));
  EXPECT_LT(share.of(16, 20), share.of(16, 132));
}

TEST(DeviceShare, IsByWhatWasMeasured) {
  DeviceShare share;
  // Three times as many in half the time.
  share.record({3000, 0.5}, {1000, 1.0});
  EXPECT_DOUBLE_EQ(share.of(kThreads, kMultiprocessors), 6.0 / 7.0);
  EXPECT_DOUBLE_EQ(share.of(1, 1), 6.0 / 7.0) << "costs count no more";
}

TEST(DeviceShare, EndsWhereBothEndAtOnce) {
  DeviceShare share;
  constexpr double kDeviceRate = 4e7, kHostRate = 1e7, kExpressions = 250'000;
  for (int population = 0; population < 20; ++population) {
    const double on_device = kExpressions * share.of(kThreads, kMultiprocessors), on_host = kExpressions - on_device;
    share.record({static_cast<std::size_t>(on_device), on_device / kDeviceRate},
                 {static_cast<std::size_t>(on_host), on_host / kHostRate});
  }
  EXPECT_NEAR(share.of(kThreads, kMultiprocessors), 0.8, 1e-4);
}

TEST(DeviceShare, OnePopulationOutOfTheOrdinaryDoesNotDecide) {
  DeviceShare share;
  for (int population = 0; population < 10; ++population) share.record({4000, 1}, {1000, 1});
  share.record({4000, 100}, {1000, 1});
  EXPECT_NEAR(share.of(kThreads, kMultiprocessors), 0.4 / 1.4, 1e-9) << "a tenth of the ratio, not a hundredth";
  for (int population = 0; population < 20; ++population) share.record({4000, 1}, {1000, 1});
  EXPECT_NEAR(share.of(kThreads, kMultiprocessors), 0.8, 1e-4);
}

TEST(DeviceShare, BothHaveSomethingToShow) {
  DeviceShare share;
  share.record({1, 1e3}, {1'000'000, 1e-3});
  EXPECT_EQ(share.of(kThreads, kMultiprocessors), DeviceShare::kLeastOfDevice);
  DeviceShare other;
  other.record({1'000'000, 1e-3}, {1, 1e3});
  EXPECT_EQ(other.of(kThreads, kMultiprocessors), DeviceShare::kMostOfDevice);
}

TEST(DeviceShare, WhatIsNotMeasuredDoesNotCount) {
  DeviceShare share;
  const double before = share.of(kThreads, kMultiprocessors);
  const double no_time[] = {0, -1, std::numeric_limits<double>::quiet_NaN()};
  for (const double seconds : no_time) {
    share.record({1000, seconds}, {1000, 1});
    share.record({1000, 1}, {1000, seconds});
  }
  share.record({0, 1}, {1000, 1});
  share.record({1000, 1}, {0, 1});
  EXPECT_EQ(share.of(kThreads, kMultiprocessors), before);
}

}  // namespace
}  // namespace srjit

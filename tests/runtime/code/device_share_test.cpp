// Which share of a population a device encodes: by costs, and by measured times.
#include "runtime/code/kernel_store.h"

#include <cstddef>
#include <limits>

#include <gtest/gtest.h>

#include "runtime/code/costs.h"

namespace srjit {
namespace {

constexpr double kByCosts = 0.8;

TEST(ShareByCosts, IsThatOfMeasuredMachines) {
  EXPECT_NEAR(shareOfDevice(16, 132), 0.79, 0.01);
  EXPECT_LT(shareOfDevice(64, 132), shareOfDevice(16, 132));
  EXPECT_LT(shareOfDevice(16, 20), shareOfDevice(16, 132));
}

TEST(DeviceShare, IsByCostsAtFirst) {
  const DeviceShare share;
  for (const double by_costs : {0.01, 0.3, 0.79, 0.99}) EXPECT_NEAR(share.of(by_costs), by_costs, 1e-12);
}

/// What both take of a population at such rates, divided by what is known.
void encodeAt(DeviceShare& share, double device_rate, double host_rate) {
  constexpr double kExpressions = 250'000;
  const double on_device = kExpressions * share.of(kByCosts), on_host = kExpressions - on_device;
  share.record(kByCosts, {static_cast<std::size_t>(on_device), on_device / device_rate},
               {static_cast<std::size_t>(on_host), on_host / host_rate});
}

TEST(DeviceShare, EndsWhereBothEndAtOnce) {
  DeviceShare share;
  for (int population = 0; population < 20; ++population) encodeAt(share, 2e7, 1e7);
  EXPECT_NEAR(share.of(kByCosts), 2.0 / 3.0, 1e-4);
  for (int population = 0; population < 20; ++population) encodeAt(share, 9e7, 1e7);
  EXPECT_NEAR(share.of(kByCosts), 0.9, 1e-4);
}

TEST(DeviceShare, OnePopulationOutOfTheOrdinaryDoesNotDecide) {
  for (const int before : {0, 10}) {
    DeviceShare share;
    for (int population = 0; population < before; ++population) encodeAt(share, 4e7, 1e7);
    encodeAt(share, 4e6, 1e7);
    // The geometric mean of 4 and 0.4.
    EXPECT_NEAR(share.of(kByCosts), 1.2649 / 2.2649, 1e-3) << before;
    for (int population = 0; population < 20; ++population) encodeAt(share, 4e7, 1e7);
    EXPECT_NEAR(share.of(kByCosts), 0.8, 1e-4);
  }
}

TEST(DeviceShare, BothHaveSomethingToShow) {
  DeviceShare slow, fast;
  for (int population = 0; population < 20; ++population) {
    encodeAt(slow, 1, 1e7);
    encodeAt(fast, 1e12, 1e7);
  }
  EXPECT_DOUBLE_EQ(slow.of(kByCosts), kByCosts / 4);
  EXPECT_DOUBLE_EQ(slow.of(0.02), 0.005) << "few multiprocessors beside many threads";
  EXPECT_DOUBLE_EQ(fast.of(kByCosts), DeviceShare::kMost);
  EXPECT_DOUBLE_EQ(fast.of(0.99), 0.99) << "many multiprocessors beside few threads";
}

TEST(DeviceShare, WhatIsNotMeasuredDoesNotCount) {
  DeviceShare share;
  const double no_time[] = {0, -1, std::numeric_limits<double>::quiet_NaN()};
  for (const double seconds : no_time) {
    share.record(kByCosts, {1000, seconds}, {1000, 1});
    share.record(kByCosts, {1000, 1}, {1000, seconds});
  }
  share.record(kByCosts, {0, 1}, {1000, 1});
  share.record(kByCosts, {1000, 1}, {0, 1});
  EXPECT_DOUBLE_EQ(share.of(kByCosts), kByCosts);
}

}  // namespace
}  // namespace srjit

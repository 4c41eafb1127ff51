#include "tools/search/timekeeper.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>

namespace srjit::search {
namespace {

using Clock = Timekeeper::Clock;

/// Waits until it is requested, half a minute at most. Gives the seconds.
double waitFor(const std::stop_token& token) {
  const Clock::time_point begun = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begun).count(); };
  while (!token.stop_requested() && seconds() < 30) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(token.stop_requested());
  return seconds();
}

TEST(Timekeeper, CallsBackOnTheThreadThatRuns) {
  std::thread::id working, called, asked;
  Timekeeper timekeeper([&] { return asked = std::this_thread::get_id(), false; }, Clock::now(), 0);
  timekeeper.run([&] {
    working = std::this_thread::get_id();
    timekeeper.onCaller([&] { called = std::this_thread::get_id(); });
  });
  EXPECT_EQ(called, std::this_thread::get_id());
  EXPECT_EQ(asked, std::this_thread::get_id());
  EXPECT_NE(working, std::this_thread::get_id());
  EXPECT_FALSE(timekeeper.cause());
}

TEST(Timekeeper, EndsWorkAtItsTimeAndClosesLater) {
  Timekeeper timekeeper({}, Clock::now(), 0.2);
  timekeeper.run([&] {
    waitFor(timekeeper.ended());
    EXPECT_EQ(timekeeper.cause(), SearchEnd::kTime);
    EXPECT_FALSE(timekeeper.fitted().stop_requested());
    timekeeper.close();
    EXPECT_GT(waitFor(timekeeper.fitted()), 0.1);
    EXPECT_GT(waitFor(timekeeper.closed()), 0.1) << "half of the time is for rounding";
  });
}

TEST(Timekeeper, TimeThatPassedBeforeCounts) {
  Timekeeper timekeeper({}, Clock::now() - std::chrono::seconds(100), 100);
  timekeeper.run([&] { EXPECT_LT(waitFor(timekeeper.ended()), 20); });
}

TEST(Timekeeper, EndsWhenTheCallerSaysSo) {
  std::atomic<bool> stop = false;
  Timekeeper timekeeper([&] { return stop.load(); }, Clock::now(), 0);
  timekeeper.run([&] {
    EXPECT_FALSE(timekeeper.ended().stop_requested());
    timekeeper.close();  // without a limit of time it may last
    stop = true;
    timekeeper.onCaller([] {});
    EXPECT_EQ(timekeeper.cause(), SearchEnd::kStopped);
    EXPECT_TRUE(timekeeper.ended().stop_requested());
    EXPECT_LT(waitFor(timekeeper.closed()), 20);
  });
}

TEST(Timekeeper, WhatACallbackThrowsEndsAll) {
  Timekeeper timekeeper({}, Clock::now(), 0);
  bool is_called = false;
  const auto run = [&] {
    timekeeper.run([&] {
      timekeeper.onCaller([] { throw std::runtime_error("no more"); });
      waitFor(timekeeper.ended());
      waitFor(timekeeper.fitted());
      waitFor(timekeeper.closed());
      timekeeper.onCaller([&] { is_called = true; });
    });
  };
  EXPECT_THROW(run(), std::runtime_error);
  EXPECT_FALSE(is_called);
}

TEST(Timekeeper, ThrowsWhatTheWorkThrows) {
  Timekeeper timekeeper({}, Clock::now(), 0);
  EXPECT_THROW(timekeeper.run([] { throw std::runtime_error("no work"); }), std::runtime_error);
}

}  // namespace
}  // namespace srjit::search

#include "runtime/platform/deadline.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include <gmock/gmock.h>

namespace srjit {
namespace {

using testing::HasSubstr;

std::string whyOver(const Deadline& deadline) {
  try {
    deadline.check();
  } catch (const ErrorException& failure) {
    EXPECT_EQ(failure.error().code, Errc::kLimit);
    return failure.error().message;
  }
  return "";
}

TEST(Deadline, IsOverWhenTheCallerStops) {
  std::stop_source source;
  const Deadline deadline(0, source.get_token()), longer(1000, source.get_token());
  EXPECT_TRUE(deadline.canEnd());
  EXPECT_FALSE(Deadline().canEnd());
  EXPECT_EQ(whyOver(deadline), "");
  source.request_stop();
  EXPECT_TRUE(deadline.isOver());
  EXPECT_THAT(whyOver(deadline), HasSubstr("stopped by the caller"));
  EXPECT_THAT(whyOver(longer), HasSubstr("stopped by the caller"));
}

TEST(Deadline, EndsTheWaitForALock) {
  std::timed_mutex mutex;
  const std::lock_guard held(mutex);
  std::stop_source source;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    source.request_stop();
  });
  // Not on the thread that holds it.
  std::jthread waiter([&] { EXPECT_THROW((void)lockUntil(Deadline(0, source.get_token()), mutex), ErrorException); });
}

TEST(Deadline, RingsAnAlarmWhenTheCallerStops) {
  std::stop_source source;
  std::atomic<int> rings = 0;
  {
    const Alarm alarm(Deadline(0, source.get_token()), [&] { ++rings; });
    EXPECT_EQ(rings, 0);
    source.request_stop();
    EXPECT_EQ(rings, 1);
  }
  std::stop_source later;
  {
    const Alarm alarm(Deadline(1000, later.get_token()), [&] { ++rings; });
  }
  later.request_stop();
  EXPECT_EQ(rings, 1) << "it was destroyed before";
}

}  // namespace
}  // namespace srjit

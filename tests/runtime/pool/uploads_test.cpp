// Uploads to several devices: once to each, at the same time.
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include <gmock/gmock.h>

#include <tbb/task_arena.h>

#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

/// Where each of several devices waits until all others have come, too.
class Meeting {
 public:
  explicit Meeting(std::size_t devices) : devices_(devices) {}
  /// Half a minute at most, so that a test ends that fails.
  void join(int device) {
    std::unique_lock lock(mutex_);
    come_.insert(device);
    all_came_.notify_all();
    if (is_missed_) return;
    is_missed_ = !all_came_.wait_for(lock, std::chrono::seconds(30), [&] { return come_.size() == devices_; });
  }
  bool isComplete() {
    const std::lock_guard lock(mutex_);
    return come_.size() == devices_ && !is_missed_;
  }

 private:
  const std::size_t devices_;
  std::mutex mutex_;
  std::condition_variable all_came_;
  std::set<int> come_;
  bool is_missed_ = false;
};

/// Bytes of numbers that were copied from the host to the device by streams: of each, the copies.
std::map<std::uint64_t, std::vector<std::size_t>> uploadsOf(const FakeDriver& driver) {
  std::map<std::uint64_t, std::vector<std::size_t>> uploads;
  for (const FakeCall& call : driver.calls()) {
    if (call.entry == "cuMemcpy2DAsync" && call.detail == "in") uploads[call.stream].push_back(call.bytes);
  }
  return uploads;
}

TEST(ManyUploads, ReachEachDeviceOnce) {
  constexpr std::size_t kDevices = 8;
  const Workload w = arithmeticWorkload(31, 40, 300, Precision::kF32, true);
  FakeMachine machine(manyDevices(kDevices));
  const Engine engine = machine.engine({.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret});
  machine.driver.forgetCalls();
  const Dataset data = engine.upload(w.view()).value();
  const auto uploads = uploadsOf(machine.driver);
  EXPECT_EQ(uploads.size(), kDevices);
  const std::size_t fields = w.view().columns.size() + 2;  // with target and weights
  for (const auto& [stream, copies] : uploads) {
    ASSERT_EQ(copies.size(), 1U) << "stream " << stream;
    EXPECT_GE(copies[0], fields * w.rows() * sizeof(float));
    EXPECT_LT(copies[0], 2 * fields * w.rows() * sizeof(float));
  }
  // Evaluations find the data there.
  machine.driver.forgetCalls();
  const Program program = engine.compile(w.expressions);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engine.loss(program, data, w.parameters).ok());
  EXPECT_TRUE(engine.gradient(program, data, w.parameters).ok());
  EXPECT_TRUE(uploadsOf(machine.driver).empty());
}

// Neither device's numbers are copied before the copy to the other has begun. An engine takes no more threads than the
// machine has, so there are only two devices.
TEST(ManyUploads, GoToBothDevicesAtOnce) {
  if (tbb::this_task_arena::max_concurrency() < 2) GTEST_SKIP() << "one processor";
  const Workload w = arithmeticWorkload(31, 40, 300, Precision::kF32, true);
  FakeMachine machine(manyDevices(2));
  const Engine engine = machine.engine({.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret});
  Meeting meeting(2);
  machine.driver.beforeCalls("cuMemcpy2DAsync", [&](int device) { meeting.join(device); });
  const Dataset data = engine.upload(w.view()).value();
  machine.driver.beforeCalls({}, {});
  EXPECT_TRUE(meeting.isComplete());
  expectSameLosses(engine.loss(engine.compile(w.expressions), data, w.parameters).value(),
                   lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {}), "of both devices");
}

}  // namespace
}  // namespace srjit

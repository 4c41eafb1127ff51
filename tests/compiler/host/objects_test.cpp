// Objects of handlers and losses: kept from one compiler to the next, told apart by their titles, linked side by side.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <semaphore>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <tbb/task_arena.h>

#include "compiler/host/jit.h"
#include "compiler/host/program.h"
#include "ir/losses.h"
#include "ir/ops.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

/// Keeps objects in memory.
class Kept {
 public:
  HostObjects store() {
    return [this](const std::string& title, const MakeHostObject& make) -> Result<HostObject> {
      const std::lock_guard lock(mutex_);
      HostObject& object = objects[title];
      if (object == nullptr) {
        made.push_back(title);
        object = std::make_shared<const std::vector<std::byte>>(make().value());
      }
      return object;
    };
  }

  std::map<std::string, HostObject> objects;
  std::vector<std::string> made;

 private:
  std::mutex mutex_;
};

HandlerKey keyOf(Op op, std::uint8_t scalar_mask = 0) { return {static_cast<std::int16_t>(op), scalar_mask}; }

std::vector<HandlerKey> allKeys() {
  std::vector<HandlerKey> keys = {{-1, 0}, {-1, 1}};
  for (const Op op : allOperators()) {
    for (unsigned mask = 0; mask < 1U << arityOf(op); ++mask)
      keys.push_back(keyOf(op, static_cast<std::uint8_t>(mask)));
  }
  return keys;
}

const std::array kSome = {keyOf(Op::kAdd), keyOf(Op::kAdd, 2), keyOf(Op::kSin), keyOf(Op::kFma, 5)};

/// What the handlers and a loss of a compiler compute.
std::vector<float> valuesBy(HostJit& jit) {
  const std::vector<HostHandler> handlers = jit.handlers(kSome).value();
  std::vector<float> x(kGroupRows), y(kGroupRows, 3.5F), z(kGroupRows, 0.75F), values;
  for (std::size_t r = 0; r < x.size(); ++r) x[r] = 0.37F * static_cast<float>(r) - 9;
  std::vector<float> out(kGroupRows);
  for (const HostHandler handler : handlers) {
    handler(out.data(), x.data(), y.data(), z.data(), kGroupRows);
    values.insert(values.end(), out.begin(), out.end());
  }
  float sum = 0;
  jit.loss({.term = LossTerm::kAbsolute}).value()(x.data(), y.data(), nullptr, nullptr, &sum, 1, kGroupRows);
  values.push_back(sum);
  return values;
}

TEST(HostObjects, AreMadeOnceForAllCompilers) {
  Kept kept;
  HostJit first(Precision::kF32, Math::kPrecise, detectHost(), kept.store());
  const std::vector<float> values = valuesBy(first);
  EXPECT_EQ(kept.made.size(), kSome.size() + 1);
  EXPECT_EQ(valuesBy(first), values);
  HostJit second(Precision::kF32, Math::kPrecise, detectHost(), kept.store());
  EXPECT_EQ(valuesBy(second), values);
  EXPECT_EQ(kept.made.size(), kSome.size() + 1);
  HostJit alone(Precision::kF32, Math::kPrecise);
  EXPECT_EQ(valuesBy(alone), values);
}

TEST(HostObjects, AreTheSameHoweverManyAreMadeTogether) {
  Kept together, apart;
  HostJit(Precision::kF64, Math::kFast, detectHost(), together.store()).handlers(kSome).value();
  for (const HandlerKey& key : kSome) {
    HostJit(Precision::kF64, Math::kFast, detectHost(), apart.store()).handlers({&key, 1}).value();
  }
  ASSERT_EQ(together.objects.size(), apart.objects.size());
  for (const auto& [title, object] : together.objects) EXPECT_EQ(*object, *apart.objects.at(title)) << title;
}

TEST(HostObjects, HaveTitlesOfTheirOwn) {
  std::mutex mutex;
  std::set<std::string> titles;
  const HostObjects refuse = [&](const std::string& title, const MakeHostObject&) -> Result<HostObject> {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(titles.insert(title).second) << title;
    return Error{Errc::kMachine, "nothing is kept", {}};
  };
  const std::vector<HandlerKey> keys = allKeys();
  std::size_t count = 0;
  for (const Precision precision : kPrecisions) {
    for (const Math math : kMathModes) {
      HostJit jit(precision, math, detectHost(), refuse);
      const auto refused = jit.handlers(keys);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().message, "nothing is kept");
      count += keys.size();
      for (const LossTermInfo& info : kernelLossTerms()) {
        for (const bool weighted : {false, true}) {
          for (const bool skip_invalid : {false, true}) {
            EXPECT_FALSE(jit.loss({info.term, weighted, skip_invalid}).ok());
            ++count;
          }
        }
      }
    }
  }
  EXPECT_EQ(titles.size(), count);
  EXPECT_TRUE(titles.contains("handler add(rows, value) f32 precise"));
}

TEST(HostObjects, AreMadeAgainAfterAFailure) {
  Kept kept;
  bool fails = true;
  HostJit jit(Precision::kF32, Math::kPrecise, detectHost(),
              [&, store = kept.store()](const std::string& title, const MakeHostObject& make) -> Result<HostObject> {
                if (fails && title.starts_with("handler sin")) return Error{Errc::kMachine, "no sine today", {}};
                return store(title, make);
              });
  EXPECT_EQ(jit.handlers(kSome).error().message, "no sine today");
  fails = false;
  EXPECT_TRUE(jit.handlers(kSome).ok());
  EXPECT_EQ(kept.made.size(), kSome.size());
}

TEST(HostObjects, ThatAreNoneAreErrors) {
  for (const std::string text : {"", "no object",
                                 "\x7f"
                                 "ELF"}) {
    const auto bytes = std::as_bytes(std::span(text));
    HostJit jit(Precision::kF32, Math::kPrecise, detectHost(), [&](const std::string&, const MakeHostObject&) {
      return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
    });
    const auto refused = jit.handlers(kSome);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kCompile);
    EXPECT_THAT(refused.error().message, testing::StartsWith("cannot link: "));
  }
}

TEST(LinkedCode, LiesSideBySide) {
  Kept kept;
  HostJit jit(Precision::kF32, Math::kPrecise, detectHost(), kept.store());
  std::vector<HostHandler> handlers = jit.handlers(allKeys()).value();
  std::size_t bytes = 0;
  for (const auto& [title, object] : kept.objects) bytes += object->size();
  const auto [first, last] =
      std::ranges::minmax(handlers, {}, [](HostHandler handler) { return reinterpret_cast<std::uintptr_t>(handler); });
  EXPECT_LE(reinterpret_cast<std::uintptr_t>(last) - reinterpret_cast<std::uintptr_t>(first), bytes);
  std::ranges::sort(handlers);
  EXPECT_EQ(std::ranges::adjacent_find(handlers), handlers.end());
}

// A thread that waits for objects must not begin another call of handlers(), which would wait for that thread.
TEST(HostObjects, AreWaitedForWithoutOtherTasks) {
  Kept kept;
  HostJit(Precision::kF32, Math::kStrict, detectHost(), kept.store()).handlers({kSome.data(), 1}).value();
  const HostObject any = kept.objects.begin()->second;
  const std::vector<HandlerKey> keys = allKeys();
  tbb::task_arena arena(2);
  std::atomic<bool> has_begun = false;
  std::binary_semaphore has_ended(0);
  std::optional<HostJit> jit;
  const auto caller = std::this_thread::get_id();
  jit.emplace(Precision::kF32, Math::kStrict, detectHost(), [&](const std::string&, const MakeHostObject&) {
    if (std::this_thread::get_id() != caller && !has_begun.exchange(true)) {
      arena.enqueue([&] {
        EXPECT_TRUE(jit->handlers({keys.data(), 1}).ok());
        has_ended.release();
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until the caller has nothing else to do
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return any;
  });
  arena.execute([&] { EXPECT_TRUE(jit->handlers(std::span(keys).first(40)).ok()); });
  if (has_begun) has_ended.acquire();
}

}  // namespace
}  // namespace srjit

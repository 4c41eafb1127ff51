// What a trace tells, of the model of a GPU and of the processor.
#include "runtime/platform/trace_events.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "runtime/platform/trace.h"
#include "tests/generators/scratch.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

/// An event with strings and numbers of its own.
struct Told {
  TraceKind kind;
  std::string what, device;
  double begin, seconds;
  std::uint32_t thread;
  std::map<std::string, double> numbers;
};

double secondsSince(TraceClock::time_point begin) {
  return std::chrono::duration<double>(TraceClock::now() - begin).count();
}

/// Collects events while it exists.
class Listener {
 public:
  Listener() {
    startTrace([this](const TraceEvent& event) {
      Told told{
          event.kind, std::string(event.what), std::string(event.device), event.begin, event.seconds, event.thread, {}};
      for (const TraceNumber& number : event.numbers) told.numbers[std::string(number.name)] = number.value;
      const std::scoped_lock lock(mutex_);
      told_.push_back(std::move(told));
    });
  }
  ~Listener() { EXPECT_TRUE(endTrace().ok()); }

  std::vector<Told> told() const {
    const std::scoped_lock lock(mutex_);
    return told_;
  }
  std::vector<Told> of(TraceKind kind, std::string_view what) const {
    std::vector<Told> some;
    for (const Told& event : told()) {
      if (event.kind == kind && event.what == what) some.push_back(event);
    }
    return some;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Told> told_;
};

TEST(Trace, TellsOfAnEvaluationOnAGpu) {
  const Listener listener;
  FakeMachine machine;
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = arithmeticWorkload(41, 30, 500, Precision::kF32);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
  std::vector<float> out(w.expressions.size() * w.rows());
  ASSERT_TRUE(gpu.evaluate(program, data, w.parameters, std::span<float>(out)).ok());
  const double end = secondsSince(traceBegin());

  using enum TraceKind;
  const auto uploads = listener.of(kTransfer, "upload");
  ASSERT_EQ(uploads.size(), 1U);
  EXPECT_GE(uploads[0].numbers.at("bytes"), 500 * 4 * 2);
  const auto compiled = listener.of(kCompile, "interpreter");
  ASSERT_EQ(compiled.size(), 1U);
  EXPECT_EQ(compiled[0].numbers.at("expressions"), 30);
  EXPECT_EQ(compiled[0].device, "cuda:0");
  const auto kernels = listener.of(kKernel, "interpreter");
  ASSERT_EQ(kernels.size(), 2U);
  for (const Told& kernel : kernels) {
    EXPECT_EQ(kernel.thread, 0U) << "the device's stream";
    EXPECT_EQ(kernel.numbers.at("outputs"), 30);
    EXPECT_EQ(kernel.numbers.at("rows"), 500);
  }
  const auto tiers = listener.of(kTier, "served by");
  ASSERT_EQ(tiers.size(), 1U) << "told once, not of every evaluation";
  EXPECT_EQ(tiers[0].numbers.at("interpreted"), 30);
  const auto downloads = listener.of(kTransfer, "download");
  ASSERT_EQ(downloads.size(), 1U);
  EXPECT_EQ(downloads[0].numbers.at("bytes"), static_cast<double>(out.size() * sizeof(float)));
  EXPECT_FALSE(listener.of(kCache, "missing").empty()) << "the interpreter's kernel";
  EXPECT_EQ(listener.of(kCache, "missing").size(), listener.of(kCompile, "kernel").size());
  for (const Told& event : listener.told()) {
    EXPECT_GE(event.seconds, 0) << event.what;
    EXPECT_GE(event.begin, 0) << event.what;
    // The model's device has a clock of its own, by which a kernel takes a millisecond.
    EXPECT_LE(event.begin + event.seconds, event.thread == 0 ? end + 1 : end) << event.what;
  }
}

// The clocks are compared anew.
TEST(Trace, TellsOfAnEngineThatAnotherTraceSaw) {
  FakeMachine machine;
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = arithmeticWorkload(44, 30, 500, Precision::kF32);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
  for (int trace = 0; trace < 2; ++trace) {
    const Listener listener;
    ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
    const auto kernels = listener.of(TraceKind::kKernel, "interpreter");
    ASSERT_EQ(kernels.size(), 1U);
    EXPECT_GT(kernels[0].begin, 0);
    EXPECT_LT(kernels[0].begin, secondsSince(traceBegin()) + 1);
    EXPECT_GT(kernels[0].seconds, 0);
    EXPECT_NEAR(kernels[0].seconds, 1e-3, 5e-3);
  }
}

TEST(Trace, TellsWhereTheCacheFoundKernels) {
  const Scratch scratch;
  FakeMachine machine;
  const Workload w = arithmeticWorkload(42, 30, 500, Precision::kF32);
  const auto evaluate = [&] {
    const Engine gpu = machine.engine({.math = Math::kStrict, .cache_directory = scratch.path("cache")});
    const Dataset data = gpu.upload(w.view()).value();
    ASSERT_TRUE(gpu.loss(gpu.compile(w.expressions, {.tier = Tier::kInterpret}), data, w.parameters).ok());
  };
  evaluate();
  const Listener listener;
  evaluate();
  using enum TraceKind;
  EXPECT_TRUE(listener.of(kCache, "missing").empty());
  EXPECT_FALSE(listener.of(kCache, "on disk").empty());
  EXPECT_TRUE(listener.of(kCompile, "kernel").empty());
}

TEST(Trace, TellsOfTheProcessor) {
  const Listener listener;
  const Workload w = arithmeticWorkload(43, 30, 500, Precision::kF32);
  const Engine cpu = cpuEngine(Precision::kF32);
  const Dataset data = cpu.upload(w.view()).value();
  ASSERT_TRUE(cpu.loss(cpu.compile(w.expressions, {.tier = Tier::kInterpret}), data, w.parameters).ok());
  const auto kernels = listener.of(TraceKind::kKernel, "interpreter");
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels[0].device, "cpu");
  EXPECT_EQ(kernels[0].numbers.at("rows"), 500);
  EXPECT_EQ(listener.of(TraceKind::kCompile, "interpreter").size(), 1U);
}

TEST(Trace, EndsAndIsReplaced) {
  int first = 0, second = 0;
  startTrace([&](const TraceEvent&) { ++first; });
  {
    const TraceSpan span(TraceKind::kCompile, "a", {});
  }
  startTrace([&](const TraceEvent&) { ++second; });
  {
    const TraceSpan span(TraceKind::kCompile, "b", {});
  }
  EXPECT_TRUE(endTrace().ok());
  EXPECT_FALSE(isTracing());
  {
    const TraceSpan span(TraceKind::kCompile, "c", {});
  }
  EXPECT_TRUE(endTrace().ok()) << "without a trace";
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
}

TEST(Trace, DoesNotTellWhatBeganBeforeIt) {
  int told = 0;
  startTrace([](const TraceEvent&) {});
  {
    const TraceSpan span(TraceKind::kCompile, "a", {});
    startTrace([&](const TraceEvent&) { ++told; });
  }
  EXPECT_TRUE(endTrace().ok());
  EXPECT_EQ(told, 0);
}

// The lock of the parent may be taken at the fork, for good.
TEST(Trace, EndsAChildWithoutWaiting) {
  std::atomic<bool> stop = false;
  startTrace([](const TraceEvent&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  std::jthread teller([&] {
    while (!stop) const TraceSpan span(TraceKind::kCompile, "work", {});
  });
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // which kills it
      {
        const TraceSpan span(TraceKind::kCompile, "of the child", {});
      }
      startTrace([](const TraceEvent&) { _exit(2); });
      {
        const TraceSpan span(TraceKind::kCompile, "of the child", {});
      }
      _exit(endTrace().ok() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  teller.join();
  EXPECT_TRUE(endTrace().ok());
}

// The callback of a trace that ended may be gone.
TEST(Trace, EndsWhileThreadsTell) {
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!stop) const TraceSpan span(TraceKind::kCompile, "work", {});
    });
  }
  for (int i = 0; i < 200; ++i) {
    auto count = std::make_unique<std::atomic<int>>(0);
    startTrace([&](const TraceEvent&) { ++*count; });
    std::this_thread::yield();
    EXPECT_TRUE(endTrace().ok());
  }
  stop = true;
}

nlohmann::json linesOf(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

TEST(Trace, FileIsChromes) {
  const Scratch scratch;
  const std::string path = scratch.path("trace.json");
  ASSERT_TRUE(traceToFile(path).ok());
  FakeMachine machine;
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = arithmeticWorkload(41, 30, 500, Precision::kF32);
  const Dataset data = gpu.upload(w.view()).value();
  ASSERT_TRUE(gpu.loss(gpu.compile(w.expressions, {.tier = Tier::kInterpret}), data, w.parameters).ok());
  ASSERT_TRUE(endTrace().ok());

  std::set<std::string> categories, names_of_rows;
  for (const nlohmann::json& event : linesOf(path)) {
    const std::string phase = event.at("ph");
    if (phase == "M") {
      if (event.contains("args")) names_of_rows.insert(event.at("args").at("name"));
      continue;
    }
    EXPECT_TRUE(event.at("ts").is_number() && event.at("tid").is_number() && event.at("pid").is_number()) << event;
    EXPECT_EQ(phase == "X", event.contains("dur")) << event;
    categories.insert(event.at("cat"));
  }
  EXPECT_EQ(categories, (std::set<std::string>{"cache", "compile", "kernel", "tier", "transfer"}));
  EXPECT_EQ(names_of_rows, std::set<std::string>{"cuda:0 stream"});
}

TEST(Trace, FileIsEndedByTheNextTrace) {
  const Scratch scratch;
  ASSERT_TRUE(traceToFile(scratch.path("%p.json")).ok());
  {
    const TraceSpan span(TraceKind::kCompile, "work", {});
  }
  ASSERT_TRUE(traceToFile(scratch.path("second.json")).ok());
  EXPECT_TRUE(endTrace().ok());
  EXPECT_EQ(linesOf(scratch.path(std::to_string(getpid()) + ".json")).size(), 2U) << "the event, and the end";
  EXPECT_EQ(linesOf(scratch.path("second.json")).size(), 1U);
}

// Lines are written one by one, so nothing of a process that ends suddenly is lost.
TEST(Trace, FileOfAKilledProcessHasAllLines) {
  const Scratch scratch;
  const std::string path = scratch.path("trace.json");
  ASSERT_TRUE(traceToFile(path).ok());
  for (int i = 0; i < 3; ++i) const TraceSpan span(TraceKind::kCompile, "work", "cpu");
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_TRUE(endTrace().ok());
  ASSERT_TRUE(text.ends_with(",\n"));
  text.replace(text.size() - 2, 2, "]");
  EXPECT_EQ(nlohmann::json::parse(text).size(), 3U);
}

TEST(Trace, TellsWhyAFileCannotBeWritten) {
  const Scratch scratch;
  const Status missing = traceToFile(scratch.path("no/such/folder.json"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Errc::kMachine);
  EXPECT_NE(missing.error().message.find("No such file"), std::string::npos) << missing.error().message;
  EXPECT_FALSE(isTracing());
  const Status full = traceToFile("/dev/full");
  ASSERT_FALSE(full.ok());
  EXPECT_NE(full.error().message.find("No space left"), std::string::npos) << full.error().message;
}

}  // namespace
}  // namespace srjit

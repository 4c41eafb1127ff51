// The direct tier's self-test: what it finds, what the cache keeps of it, and processes that crash in it.
#include <csignal>
#include <future>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "tests/gpu_model/direct_machine.h"
#include "tests/runtime/cache/images.h"

namespace srjit {
namespace {

/// Every sum becomes a difference.
void negateSums(std::vector<sass::Instruction>& code, unsigned) {
  for (sass::Instruction& i : code) {
    if (i.form == sass::Form::kFAddRR || i.form == sass::Form::kDAddRR) i.negated ^= 2;
  }
}

class DirectSelfTestOf : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(, DirectSelfTestOf, testing::Values(Precision::kF32, Precision::kF64),
                         [](const auto& made) { return std::string(nameOf(made.param)); });

TEST_P(DirectSelfTestOf, RunsOnceAndStoresItsResult) {
  DirectMachine machine({}, "open", GetParam());
  const Workload w = directWorkload(40, 20, 100, false, GetParam());
  const std::vector<double> expected = predict(cpuEngine(GetParam()), w, Tier::kInterpret);
  {
    const Engine gpu = machine.engine(machine.strict());
    expectSameBits(predict(gpu, w, Tier::kDirect), expected, 100, "first");
    EXPECT_EQ(machine.launches(), kSelfTestLaunches + 1);
    expectSameBits(predict(gpu, w, Tier::kDirect), expected, 100, "second");
    EXPECT_EQ(machine.launches(), kSelfTestLaunches + 2);
  }
  const Engine later = machine.engine(machine.strict());
  expectSameBits(predict(later, w, Tier::kDirect), expected, 100, "later");
  EXPECT_EQ(machine.launches(), kSelfTestLaunches + 3);
  SelfTesting tested(machine, machine.directory.path(""), GetParam());
  EXPECT_EQ(tested.cache->readFact(tested.self_test.fact()), "proved");
  EXPECT_FALSE(tested.self_test.failure());
  const Precision other = GetParam() == Precision::kF32 ? Precision::kF64 : Precision::kF32;
  EXPECT_TRUE(SelfTesting(machine, machine.directory.path(""), other).self_test.isOpen())
      << "each precision has its self-test";
}

TEST_P(DirectSelfTestOf, WrongCodeTurnsTheTierOff) {
  DirectMachine machine({}, "open", GetParam());
  machine.driver.alterCode(negateSums);
  const Workload w = directWorkload(41, 20, 100, false, GetParam());
  const std::vector<double> expected = predict(cpuEngine(GetParam()), w, Tier::kInterpret);
  for (int process = 0; process < 2; ++process) {
    const Engine gpu = machine.engine(machine.strict());
    const auto [data, program] = prepared(gpu, w, {.tier = Tier::kDirect});
    expectSameBits(predict(gpu, program, data, w.parameters), expected, 100, "interpreted");
    EXPECT_EQ(machine.launches(), 1U) << "the first comparison, and nothing afterwards";
    const ProgramStatus status = program.status();
    EXPECT_EQ(status.tier, Tier::kInterpret);
    ASSERT_TRUE(status.error);
    EXPECT_THAT(status.error->message, testing::StartsWith("the direct tier is off"));
    EXPECT_THAT(status.error->message, testing::HasSubstr("probe"));
    const Program often = gpu.compile(w.expressions, {.expected_evaluations = 1e5, .expected_rows = 100});
    expectSameBits(predict(gpu, often, data, w.parameters), expected, 100, "auto");
    EXPECT_EQ(machine.launches(), 1U);
  }
}

TEST(DirectSelfTest, ARejectedImageTurnsTheTierOff) {
  DirectMachine machine({}, "open");
  machine.driver.failAt("cuModuleLoadDataEx", 3, CUDA_ERROR_INVALID_IMAGE);  // after the interpreter and the totals
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(42, 20, 100);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kDirect});
  expectSameLosses(gpu.loss(program, data, w.parameters).value(),
                   lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {}), "interpreted");
  EXPECT_EQ(machine.launches(), 0U);
  ASSERT_TRUE(program.status().error);
  EXPECT_THAT(program.status().error->message, testing::HasSubstr("cuModuleLoadDataEx"));
}

TEST(DirectSelfTest, CodeThatLosesTheDeviceIsTriedOnce) {
  const Workload w = directWorkload(43, 20, 100);
  const Scratch directory;
  const EngineOptions options{
      .precision = Precision::kF32, .math = Math::kStrict, .cache_directory = directory.path("")};
  {
    FakeMachine machine;
    machine.driver.failKernel(3, CUDA_ERROR_ILLEGAL_INSTRUCTION);  // the interpreter's come before, in two parts
    const Engine gpu = machine.engine(options);
    const Dataset data = gpu.upload(w.view()).value();
    const auto lost = gpu.loss(gpu.compile(w.expressions, {.tier = Tier::kDirect}), data, w.parameters);
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.error().code, Errc::kMachine);
  }
  FakeMachine machine;
  const Engine gpu = machine.engine(options);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kDirect});
  expectSameLosses(gpu.loss(program, data, w.parameters).value(),
                   lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {}), "the next process");
  EXPECT_EQ(machine.driver.count("cuModuleLoadDataEx"), 2U) << "the interpreter and the totals";
  ASSERT_TRUE(program.status().error);
  EXPECT_THAT(program.status().error->message, testing::HasSubstr("715"));
}

TEST(DirectSelfTest, LostDeviceLeavesTheStateOpen) {
  const Scratch directory;
  {
    FakeMachine machine;
    SelfTesting tested(machine, directory.path(""));
    machine.driver.failKernel(1, CUDA_ERROR_ILLEGAL_INSTRUCTION);
    EXPECT_THROW(static_cast<void>(tested.ensure()), CudaFailure);
    EXPECT_TRUE(tested.self_test.isOpen());
  }
  FakeMachine machine;
  EXPECT_FALSE(SelfTesting(machine, directory.path("")).ensure());
}

TEST(DirectSelfTest, UnrelatedFailuresLeaveTheStateOpen) {
  FakeMachine machine;
  const Scratch directory;
  {
    SelfTesting tested(machine, directory.path(""));
    machine.images->before = [](const FakeImageMaker::Request&) -> Status {
      return Error{Errc::kCompile, "assembler failure", {}};
    };
    const auto fault = tested.ensure();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->message, "assembler failure");
    machine.images->before = nullptr;
    for (const std::size_t image : {std::size_t{1}, std::size_t{3}}) {  // the interpreter's, then direct code
      for (const std::size_t attempt : {image, image + 1}) {
        machine.driver.failAt("cuModuleLoadDataEx", attempt, CUDA_ERROR_OUT_OF_MEMORY);
      }
      EXPECT_THROW(static_cast<void>(tested.ensure()), CudaFailure);
      EXPECT_TRUE(tested.self_test.isOpen());
      EXPECT_EQ(tested.cache->readFact(tested.self_test.fact()), "open");
    }
  }
  SelfTesting again(machine, directory.path(""));
  ASSERT_TRUE(again.self_test.isOpen());
  EXPECT_FALSE(again.ensure());
  EXPECT_EQ(again.cache->readFact(again.self_test.fact()), "proved");
}

TEST(DirectSelfTest, ALaunchWithoutMemoryLeavesTheStateOpen) {
  const FakeDevice little{.memory_bytes = std::size_t{60} << 20};
  std::size_t launches = 0;
  {
    FakeMachine machine({.devices = {little}});
    const Scratch directory;
    EXPECT_FALSE(SelfTesting(machine, directory.path("")).ensure());
    launches = machine.driver.count("cuLaunchKernel");
  }
  FakeMachine machine({.devices = {little}});
  const Scratch directory;
  SelfTesting tested(machine, directory.path(""));
  machine.driver.failAt("cuLaunchKernel", launches, CUDA_ERROR_UNKNOWN);  // the last one is of direct code
  EXPECT_THROW(static_cast<void>(tested.ensure()), CudaFailure);
  EXPECT_TRUE(tested.self_test.isOpen());
  EXPECT_FALSE(tested.ensure());
}

// The child is killed when it first runs direct code.
TEST(DirectSelfTest, RepeatedCrashesFailTheTest) {
  FakeMachine machine;
  const Scratch directory;
  const auto crash = [&] {
    machine.driver.alterCode([](std::vector<sass::Instruction>&, unsigned) { std::raise(SIGKILL); });
    static_cast<void>(SelfTesting(machine, directory.path("")).ensure());
  };
  EXPECT_EXIT(crash(), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(crash(), testing::KilledBySignal(SIGKILL), "") << "the first may have been killed for another reason";
  SelfTesting next(machine, directory.path(""));
  EXPECT_TRUE(next.isMarked(directory));
  const auto fault = next.ensure();
  ASSERT_TRUE(fault);
  EXPECT_THAT(fault->message, testing::HasSubstr("2 processes ended during the test"));
  EXPECT_FALSE(next.self_test.isOpen());
  EXPECT_EQ(machine.driver.count("cuModuleLoadDataEx"), 0U);
  EXPECT_TRUE(SelfTesting(machine, directory.path("")).self_test.failure());
}

TEST(DirectSelfTest, ClearingTheCacheForgetsCrashes) {
  FakeMachine machine;
  const Scratch directory;
  SelfTesting tested(machine, directory.path(""));
  {
    auto lock = tested.cache->lock(tested.self_test.fact(), [] { return true; });
    for (unsigned death = 0; death < DirectSelfTest::kMaxCrashes; ++death) lock->mark();
  }
  ASSERT_TRUE(tested.isMarked(directory));
  ASSERT_TRUE(tested.cache->clear());
  EXPECT_FALSE(tested.isMarked(directory));
  EXPECT_FALSE(tested.ensure());
}

// Where the result cannot be stored, as on a full disk, the next process runs the self-test again.
TEST(DirectSelfTest, UnstoredResultIsNotACrash) {
  FakeMachine machine;
  const Scratch directory;
  EXPECT_FALSE(SelfTesting(machine, directory.path("")).ensure());
  for (const std::string& fact : filesEndingIn(directory.path(""), ".fact")) std::filesystem::remove(fact);
  SelfTesting next(machine, directory.path(""));
  EXPECT_FALSE(next.ensure());
  EXPECT_GT(machine.driver.count("cuModuleLoadDataEx"), 2 * kSelfTestModules);
}

TEST(DirectSelfTest, CancellationLeavesTheStateOpen) {
  FakeMachine machine;
  const Scratch directory;
  SelfTesting tested(machine, directory.path(""));
  std::atomic<bool> cancelled = true;
  {
    const auto other = tested.cache->lock(tested.self_test.fact(), [] { return true; });
    ASSERT_TRUE(other && other->holds());
    EXPECT_TRUE(tested.self_test.ensure(cancelled));
    EXPECT_TRUE(tested.self_test.isOpen());
  }
  const auto fault = tested.self_test.ensure(cancelled);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, Errc::kCancelled);
  EXPECT_TRUE(tested.self_test.isOpen());
  machine.driver.alterCode([&](std::vector<sass::Instruction>&, unsigned) { cancelled = true; });
  cancelled = false;
  EXPECT_EQ(tested.self_test.ensure(cancelled)->code, Errc::kCancelled);
  EXPECT_TRUE(tested.self_test.isOpen());
  EXPECT_FALSE(tested.isMarked(directory));
  machine.driver.alterCode(nullptr);
  EXPECT_FALSE(tested.ensure());
}

TEST(DirectSelfTest, ReportsTheStoredResult) {
  FakeMachine machine;
  const Scratch directory;
  SelfTesting tested(machine, directory.path(""));
  const auto result = [&] {
    return DirectSelfTest::lastResult(*tested.cache, tested.cuda->limits(), Precision::kF32, Math::kStrict,
                                      tested.store->identity());
  };
  EXPECT_EQ(result().second, "not run yet");
  EXPECT_FALSE(result().first);
  EXPECT_FALSE(tested.ensure());
  EXPECT_EQ(result().second, "passed");
  EXPECT_FALSE(result().first);
  tested.cache->writeFact(tested.self_test.fact(), "probe 3, row 4: 1 instead of 2");
  EXPECT_EQ(result().second, "probe 3, row 4: 1 instead of 2");
  EXPECT_TRUE(result().first);
}

/// Descriptors of this process that are open on lock files of the directory.
std::size_t openLocks(const Scratch& directory) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string file = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && file.starts_with(directory.path("")) && file.ends_with(".lock")) ++count;
  }
  return count;
}

TEST(DirectSelfTest, WaitsForTheSelfTestOfAnotherProcess) {
  FakeMachine machine;
  const Scratch directory;
  SelfTesting tested(machine, directory.path(""));
  auto other = tested.cache->lock(tested.self_test.fact(), [] { return true; });
  ASSERT_TRUE(other && other->holds());
  other->mark();
  std::atomic<bool> done = false;
  std::optional<Error> fault;
  std::thread waiting([&] {
    const CurrentContext current(*tested.cuda);
    fault = tested.ensure();
    done = true;
  });
  // The lock's file is open twice as soon as the thread waits for it.
  waitUntil([&] { return openLocks(directory) == 2; });
  EXPECT_FALSE(done);
  tested.cache->writeFact(tested.self_test.fact(), "proved");
  other->unmark();
  other.reset();
  waiting.join();
  EXPECT_FALSE(fault) << fault->message;
  EXPECT_EQ(machine.driver.count("cuModuleLoadDataEx"), 0U) << "another process has run it";
}

TEST(DirectSelfTestSlow, FindsWrongSumsOfEveryShape) {
  // All code but that of one loss in one shape is right, so one that is not compared would pass.
  for (std::size_t wrong = 0; wrong < kSelfTestLosses; ++wrong) {
    DirectMachine machine({}, "open");
    const std::size_t bad = 2 + 2 * wrong + wrong % 2;  // predictions come first
    std::size_t image = 0;
    machine.driver.alterCode([&](std::vector<sass::Instruction>& code, unsigned capability) {
      if (image++ == bad) negateSums(code, capability);
    });
    SelfTesting tested(machine, machine.directory.path(""));
    const auto fault = tested.ensure();
    ASSERT_TRUE(fault) << wrong;
    EXPECT_THAT(fault->message, testing::HasSubstr("loss " + std::to_string(wrong) + " of sum"));
  }
}

TEST(DirectSelfTest, MarksItsLockOnlyWhileItsCodeIsLoaded) {
  FakeMachine machine;
  const Scratch directory;
  SelfTesting tested(machine, directory.path(""));
  std::set<bool> while_making, while_loading;
  machine.images->before = [&](const FakeImageMaker::Request&) -> Status {
    while_making.insert(tested.isMarked(directory));
    return okStatus();
  };
  machine.driver.alterCode(
      [&](std::vector<sass::Instruction>&, unsigned) { while_loading.insert(tested.isMarked(directory)); });
  EXPECT_FALSE(tested.ensure());
  EXPECT_EQ(while_making, std::set<bool>{false});
  EXPECT_EQ(while_loading, std::set<bool>{true});
  EXPECT_FALSE(tested.isMarked(directory));
}

TEST(DirectSelfTest, ConcurrentCallersShareOneRun) {
  DirectMachine machine({}, "open");
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(44, 20, 100);
  const std::vector<double> expected = predict(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  std::vector<std::vector<double>> results(5);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = predict(gpu, w, Tier::kDirect); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) expectSameBits(result, expected, 100, "threads");
  EXPECT_EQ(machine.launches(), kSelfTestLaunches + results.size());
}

TEST(DirectSelfTest, RunsInTheBackgroundForAuto) {
  DirectMachine machine({}, "open");
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(45, 20, 100);
  const auto [data, program] = prepared(gpu, w, {.expected_evaluations = 1e15, .expected_rows = 100});
  const Losses expected = gpu.loss(program, data, w.parameters).value();
  while (program.status().compiling) std::this_thread::yield();
  EXPECT_EQ(machine.launches(), kSelfTestLaunches);
  expectSameLosses(gpu.loss(program, data, w.parameters).value(), expected, "auto");
  expectDirect(program, w.expressions.size());
  const Program next = gpu.compile(w.expressions, {.tier = Tier::kDirect});
  expectSameLosses(gpu.loss(next, data, w.parameters).value(), expected, "direct");
  expectDirect(next, w.expressions.size());
  EXPECT_EQ(machine.launches(), kSelfTestLaunches + 2) << "it has passed already";
}

TEST(DirectSelfTest, SurvivesDestructionOfItsProgram) {
  DirectMachine machine({}, "open");
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(46, 20, 100);
  const Dataset data = gpu.upload(w.view()).value();
  std::weak_ptr<const ProgramSource> source;
  std::atomic<bool> is_first = true;
  std::promise<void> tested, died;
  {
    const Program program = gpu.compile(w.expressions, {.expected_evaluations = 1e15, .expected_rows = 100});
    ASSERT_TRUE(gpu.prepare(program, data, LossOptions{}).ok());
    // The program's interpreter is there, so the next one is the self-test's.
    machine.images->before = [&](const FakeImageMaker::Request& request) -> Status {
      if (request.kind == "interpreter" && is_first.exchange(false)) {
        tested.set_value();
        died.get_future().wait();
      }
      return okStatus();
    };
    ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
    tested.get_future().wait();
    EXPECT_TRUE(program.status().compiling);
    source = program.state().source;
  }
  EXPECT_EQ(machine.known(), "open");
  const std::size_t compiled = machine.images->count("rows");
  died.set_value();
  waitForEnd(source);
  EXPECT_EQ(machine.known(), "proved") << "the self-test is the engine's";
  EXPECT_EQ(machine.launches(), kSelfTestLaunches);
  EXPECT_EQ(machine.modules(), kSelfTestModules) << "no code of the program";
  EXPECT_EQ(machine.images->count("rows"), compiled);
}

}  // namespace
}  // namespace srjit

// With which code a program is evaluated on a model of a GPU, when code is made, and what happens if the program or the
// engine is destroyed before, or making the code fails.
#include <atomic>
#include <thread>
#include <utility>

#include "ir/numbers/rounding.h"
#include "ir/ops.h"
#include "runtime/code/calibration.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/tiers/device_program.h"
#include "tests/generators/scratch.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

Status refuseRows(const FakeImageMaker::Request& request) {
  return request.kind != "rows" ? okStatus() : Error{Errc::kCompile, "assembler failure", {}};
}

/// Its engines compile programs with many expected evaluations.
FakeMachine machineWithoutDirectCode() { return FakeMachine({.devices = {FakeDevice{.capability = 75}}}); }

/// Expects that a model of a GPU interprets the workload with the bits of the CPU engine.
void expectInterpreted(const Workload& w, Precision precision, FakeOptions options = {}) {
  FakeMachine machine(std::move(options));
  const Engine gpu = machine.engine({.precision = precision, .math = Math::kStrict}), cpu = cpuEngine(precision);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  EXPECT_TRUE(program.failures().empty());
  expectSameBits(predict(gpu, program, data, w.parameters), predict(cpu, w, Tier::kInterpret), w.rows(), "predictions");
  if (w.target.empty()) return;
  expectSameLosses(gpu.loss(program, data, w.parameters).value(), lossesOf(cpu, w, Tier::kInterpret, {}), "losses");
}

TEST(DeviceEngineTiers, BackgroundCodeGivesTheSameBits) {
  FakeMachine machine = machineWithoutDirectCode();
  const Workload w = arithmeticWorkload(21, 50, 2000, Precision::kF32);
  {
    const Engine gpu = machine.engine({.math = Math::kStrict});
    const auto [data, program] = prepared(gpu, w, {.tier = Tier::kAuto, .expected_evaluations = 1e9});
    const Losses first = gpu.loss(program, data, w.parameters).value();
    EXPECT_EQ(program.status().served.interpreted, 50U);
    waitUntil([&] { return program.status().tier == Tier::kCompile || program.status().error; });
    const ProgramStatus status = program.status();
    EXPECT_EQ(status.tier, Tier::kCompile);
    EXPECT_EQ(status.compiled, 50U);
    EXPECT_FALSE(status.error);
    EXPECT_EQ(status.served.interpreted, 50U) << "the compiled code has not served yet";
    machine.driver.forgetCalls();
    expectSameLosses(gpu.loss(program, data, w.parameters).value(), first, "after the take-over");
    EXPECT_EQ(machine.driver.count("cuGraphLaunch"), 1U);
    EXPECT_EQ(program.status().served.compiled, 50U);
    EXPECT_EQ(program.status().served.interpreted, 0U);
  }
}

TEST(DeviceEngineTiers, TwoEnginesEvaluateOneProgram) {
  FakeMachine machine;
  const Workload w = arithmeticWorkload(27, 30, 300, Precision::kF32);
  std::optional<Engine> first = machine.engine({.math = Math::kStrict});
  const Engine second = machine.engine({.math = Math::kStrict});
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    if (!first) first = machine.engine({.math = Math::kStrict});
    const Dataset data = first->upload(w.view()).value();
    const Program program = first->compile(w.expressions, {.tier = tier});
    const Losses expected = first->loss(program, data, w.parameters).value();
    expectSameLosses(second.loss(program, data, w.parameters).value(), expected, "of the other engine");
    first.reset();
    expectSameLosses(second.loss(program, data, w.parameters).value(), expected, "of the one that is left");
  }
}

// Compilation that the end of an engine cancels is started again by another engine.
TEST(DeviceEngineTiers, CancelledCompilationIsRestartedByAnotherEngine) {
  FakeMachine machine = machineWithoutDirectCode();
  const Workload w = arithmeticWorkload(29, 30, 300, Precision::kF32);
  std::optional<Engine> first = machine.engine({.math = Math::kStrict});
  const Engine second = machine.engine({.math = Math::kStrict});
  const Dataset data = second.upload(w.view()).value();
  const Program program = first->compile(w.expressions, {.expected_evaluations = 1e15, .expected_rows = 300});
  ASSERT_TRUE(first->prepare(program, data, LossOptions{})) << "the interpreter is not held";
  machine.images->hold();
  const Losses expected = first->loss(program, data, w.parameters).value();
  ASSERT_TRUE(program.status().compiling);
  const KernelKind kind{.loss = lossSpec({}, data.state().has_weights), .strided_columns = false};
  const auto job = deviceProgramOf(program.state()).job(kind, CodeKind::kCompiled);
  std::thread ending([&] { first.reset(); });
  waitUntil([&] { return job->isCancelled(); });
  machine.images->release();
  ending.join();
  ASSERT_NE(program.status().tier, Tier::kCompile);
  while (program.status().tier != Tier::kCompile) {
    expectSameLosses(second.loss(program, data, w.parameters).value(), expected, "of the other engine");
    ASSERT_TRUE(!program.status().error || program.status().compiling) << program.status().error->message;
    std::this_thread::yield();
  }
}

TEST(DeviceEngineTiers, StreamedTargetsWithoutColumns) {
  FakeMachine machine;
  const Workload w{.expressions = infixes({"p0"}), .target = std::vector(5000, 1.25), .parameters = {0.5}};
  const Engine gpu = machine.engine({.math = Math::kStrict, .device_bytes = 1});
  expectSameLosses(lossesOf(gpu, w, Tier::kInterpret, {}),
                   lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {}), "a target alone");
}

TEST(DeviceEngineTiers, AdjacentLongProgramsWithManyColumnsAreLaunched) {
  Random random(29);
  Workload w{.columns = randomColumns(random, 20, 40, Spread::kTame, Precision::kF64)};
  for (int program = 0; program < 5; ++program) {
    w.expressions.push_back(chainOf(
        4000, [&](std::uint32_t) { return static_cast<std::uint32_t>(random.below(20)); },
        [&](std::uint32_t) { return random.chance(0.5) ? Op::kMul : Op::kSub; }));
  }
  expectInterpreted(w, Precision::kF64);
}

/// A chain, an expression of random operators, and short ones around them.
Workload longWorkload(Precision precision, std::size_t rows) {
  Workload w = arithmeticWorkload(30, 6, rows, precision);
  const GeneratorOptions options{
      .seed = 30, .min_nodes = 100'000, .max_nodes = 100'000, .variables = 5, .ops = arithmeticOps()};
  w.expressions.insert(w.expressions.begin() + 3,
                       chainOf(
                           50'000, [](std::uint32_t i) { return i % 3; },
                           [](std::uint32_t i) { return i % 2 == 0 ? Op::kMul : Op::kSub; }));
  w.expressions.insert(w.expressions.begin() + 5, ExpressionGenerator(options).next());
  return w;
}

// One block of rows in each precision, and more than one.
TEST(LongPrograms, OfAHundredThousandTokensAreInterpreted) {
  expectInterpreted(longWorkload(Precision::kF32, 40), Precision::kF32);
  expectInterpreted(longWorkload(Precision::kF32, 600), Precision::kF32);
  expectInterpreted(longWorkload(Precision::kF64, 40), Precision::kF64);
}

TEST(LongPrograms, AreInterpretedInSmallWindowsOnSmallDevices) {
  expectInterpreted(longWorkload(Precision::kF32, 300), Precision::kF32,
                    {.devices = {FakeDevice{.capability = 75,
                                            .shared_bytes_per_multiprocessor = std::size_t{64} << 10,
                                            .shared_bytes_per_block = std::size_t{64} << 10}}});
}

/// One expression of more columns than a block has room for, among others.
Workload wideWorkload() {
  Workload w = arithmeticWorkload(30, 3, 40, Precision::kF32);
  Random random(30);
  w.columns = randomColumns(random, 300, 40, Spread::kTame, Precision::kF32);
  w.expressions.insert(w.expressions.begin() + 1,
                       chainOf(299, [](std::uint32_t i) { return i; }, [](std::uint32_t) { return Op::kAdd; }));
  return w;
}

TEST(DeviceEngineTiers, TooManyColumnsFailOneExpression) {
  FakeMachine machine;
  const Workload w = wideWorkload();
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kInterpret});
  ASSERT_EQ(program.failures().size(), 1U);
  EXPECT_EQ(program.failures()[0].expression, 1U);
  EXPECT_EQ(program.failures()[0].error.code, Errc::kUnsupported);
  EXPECT_EQ(program.failures()[0].error.message, "300 columns, but the interpreter takes at most 194 on this device");
  const Losses losses = gpu.loss(program, gpu.upload(w.view()).value(), w.parameters).value();
  ASSERT_EQ(losses.failures.size(), 1U);
  EXPECT_TRUE(std::isnan(losses.values[1]));
  Workload narrow = w;
  narrow.expressions.erase(narrow.expressions.begin() + 1);
  std::vector<double> others = losses.values;
  others.erase(others.begin() + 1);
  expectSameBits(others, lossesOf(cpuEngine(Precision::kF32), narrow, Tier::kInterpret, {}).values, 1, "the others");
}

TEST(DeviceEngineTiers, AutoCompilesAtOnceOnlyWhatTheInterpreterRefuses) {
  FakeMachine machine;
  const Workload w = wideWorkload();
  std::atomic<std::size_t> roots = 0;
  machine.images->before = [&](const FakeImageMaker::Request& request) -> Status {
    for (const Dag& dag : request.dags) roots += dag.roots().size();
    return okStatus();
  };
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Engine cpu = cpuEngine(Precision::kF32);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kAuto});
  EXPECT_TRUE(program.failures().empty());
  EXPECT_EQ(program.info().tier, Tier::kAuto);
  const Losses expected = lossesOf(cpu, w, Tier::kInterpret, {});
  expectSameLosses(gpu.loss(program, data, w.parameters).value(), expected, "one compiled, the others interpreted");
  EXPECT_EQ(roots, 1U);
  expectSameLosses(gpu.loss(program, data, w.parameters).value(), expected, "again");
  EXPECT_EQ(roots, 1U);
  expectSameBits(predict(gpu, program, data, w.parameters), predict(cpu, w, Tier::kInterpret), 40, "predictions");
  EXPECT_EQ(roots, 2U) << "another kind of kernel";
  EXPECT_EQ(program.status().tier, Tier::kInterpret);
}

TEST(DeviceEngineTiers, ErrorsOfWhatTheInterpreterRefusesAreInTheStatus) {
  FakeMachine machine;
  const Workload w = wideWorkload();
  machine.images->before = refuseRows;
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kAuto});
  EXPECT_FALSE(program.status().error);
  const Losses losses = gpu.loss(program, data, w.parameters).value();
  ASSERT_EQ(losses.failures.size(), 1U);
  EXPECT_EQ(losses.failures[0].expression, 1U);
  const ProgramStatus status = program.status();
  EXPECT_EQ(status.tier, Tier::kInterpret);
  EXPECT_EQ(status.compiled, 0U);
  ASSERT_TRUE(status.error);
  EXPECT_EQ(status.error->message, "assembler failure");
}

TEST(DeviceEngineTiers, CostsAreStoredAtDestruction) {
  const Scratch directory;
  const Workload w = arithmeticWorkload(38, 40, 300, Precision::kF32);
  {
    FakeMachine machine;
    machine.images->seconds = 10;
    const Engine gpu = machine.engine({.math = Math::kStrict, .cache_directory = directory.path("")});
    const auto [data, program] = prepared(gpu, w, {.tier = Tier::kCompile});
    ASSERT_TRUE(gpu.prepare(program, data, LossOptions{}).ok());
  }
  const auto cache = KernelCache::open({.directory = directory.path("")});
  EXPECT_GT(Calibration(cache, "Fake H200 (13000) f32 strict").costs().compile, 2 * kTypicalCosts.compile);
}

TEST(DeviceEngineTiers, LongProgramsAmongManyColumns) {
  Random random(31);
  Workload w{.columns = randomColumns(random, 150, 40, Spread::kTame, Precision::kF32)};
  for (std::uint32_t program = 0; program < 9; ++program) {
    const bool is_long = program % 3 == 1;
    w.expressions.push_back(chainOf(
        is_long ? 5000 : 60, [&](std::uint32_t i) { return is_long ? i % 40 : (program * 60 + i) % 150; },
        [](std::uint32_t i) { return i % 2 == 0 ? Op::kAdd : Op::kSub; }));
  }
  expectInterpreted(w, Precision::kF32);
}

// The same program is compiled for if many evaluations are expected.
TEST(DeviceEngineTiers, FewEvaluationsStartNoCompilation) {
  FakeMachine machine = machineWithoutDirectCode();
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = arithmeticWorkload(22, 50, 200, Precision::kF32);
  const Dataset data = gpu.upload(w.view()).value();
  const Program few = gpu.compile(w.expressions, {.tier = Tier::kAuto, .expected_evaluations = 3});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(gpu.loss(few, data, w.parameters).ok());
    EXPECT_FALSE(few.status().compiling);
  }
  EXPECT_EQ(few.status().served.interpreted, 50U);
  EXPECT_EQ(machine.images->count("rows"), 0U);
  const Program many = gpu.compile(w.expressions, {.tier = Tier::kAuto, .expected_evaluations = 1e9});
  ASSERT_TRUE(gpu.loss(many, data, w.parameters).ok());
  waitUntil([&] { return !many.status().compiling; });
  EXPECT_EQ(many.status().tier, Tier::kCompile);
  EXPECT_GT(machine.images->count("rows"), 0U);
}

TEST(DeviceEngineTiers, DestroyedProgramCancelsItsCompilation) {
  FakeMachine machine = machineWithoutDirectCode();
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = arithmeticWorkload(23, 2000, 50, Precision::kF32);
  const Dataset data = gpu.upload(w.view()).value();
  std::shared_ptr<CodeJob> job;
  {
    const Program program = gpu.compile(w.expressions, {.tier = Tier::kAuto, .expected_evaluations = 1e12});
    ASSERT_TRUE(gpu.prepare(program, data, LossOptions{}).ok());
    machine.images->hold();
    ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
    waitUntil([&] { return machine.images->held() > 0; });
    EXPECT_TRUE(program.status().compiling);
    EXPECT_EQ(machine.images->count("rows"), 1U) << "an engine of two threads compiles on one";
    const KernelKind kind{.loss = lossSpec({}, data.state().has_weights), .strided_columns = false};
    job = deviceProgramOf(program.state()).job(kind, CodeKind::kCompiled);
    EXPECT_EQ(job->view().state, CodeState::kRunning);
    EXPECT_FALSE(job->isCancelled());
  }
  EXPECT_TRUE(job->isCancelled());
  machine.images->release();
  waitUntil([&] { return job->view().state != CodeState::kRunning; });
  EXPECT_EQ(job->view().state, CodeState::kOpen);
  EXPECT_EQ(machine.images->count("rows"), 1U) << "of four modules or more; those that had not begun are not made";
}

TEST(DeviceEngineTiers, TheInterpreterServesAfterABackgroundError) {
  FakeMachine machine = machineWithoutDirectCode();
  machine.images->before = refuseRows;
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = arithmeticWorkload(24, 40, 300, Precision::kF32);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kAuto, .expected_evaluations = 1e12});
  const Losses first = gpu.loss(program, data, w.parameters).value();
  waitUntil([&] { return program.status().error.has_value(); });
  EXPECT_EQ(program.status().error->message, "assembler failure");
  EXPECT_EQ(program.status().compiled, 0U);
  expectSameLosses(gpu.loss(program, data, w.parameters).value(), first, "after the error");
}

TEST(DeviceEngineTiers, KernelsThatSpillAreSplit) {
  FakeMachine machine;
  machine.images->facts = [](const Dag& dag) {
    KernelFacts facts{.name = "", .registers = 255};
    if (dag.roots().size() > 5) facts.stack_bytes = 512;
    return facts;
  };
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Engine cpu = cpuEngine(Precision::kF32);
  const Workload w = arithmeticWorkload(25, 64, 300, Precision::kF32);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kCompile});
  expectSameLosses(gpu.loss(program, data, w.parameters).value(), lossesOf(cpu, w, Tier::kInterpret, {}), "split");
  EXPECT_EQ(program.status().compiled, 64U);
  EXPECT_GT(machine.images->count("rows"), 16U);
}

TEST(DeviceEngineTiers, KernelsWithFewSpillsAreNotSplit) {
  FakeMachine machine;
  machine.images->facts = [](const Dag&) { return KernelFacts{.name = "", .registers = 255, .stack_bytes = 8}; };
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = arithmeticWorkload(25, 64, 300, Precision::kF32);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kCompile});
  ASSERT_TRUE(gpu.loss(program, data, w.parameters));
  EXPECT_EQ(program.status().compiled, 64U);
  EXPECT_LE(machine.images->count("rows"), 2U);
}

// Kernels that spill get modules of their own in halves; the other kernels of their module are used.
TEST(DeviceEngineTiers, ManyKernelsShareModules) {
  for (const bool spilling : {false, true}) {
    FakeMachine machine;
    std::atomic<std::size_t> kernels = 0, spilled = 0;
    machine.images->facts = [&](const Dag& dag) {
      ++kernels;
      const bool spills = spilling && dag.roots().size() > 10 && dag.size() % 2 == 0;
      spilled += spills ? 1 : 0;
      return KernelFacts{.name = "", .registers = 255, .stack_bytes = spills ? 4096U : 0U};
    };
    const Engine gpu = machine.engine({.math = Math::kStrict, .threads = 1});
    const Workload w = arithmeticWorkload(27, 700, 150, Precision::kF32);
    const auto [data, program] = prepared(gpu, w, {.tier = Tier::kCompile});
    expectSameLosses(gpu.loss(program, data, w.parameters).value(),
                     lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {}), "modules");
    EXPECT_EQ(program.status().compiled, 700U);
    EXPECT_EQ(spilled > 0, spilling);
    const std::size_t in_shared_modules = kernels - 2 * spilled;
    EXPECT_EQ(machine.images->count("rows") - 2 * spilled, ceilDivide(in_shared_modules, 8));
  }
}

TEST(DeviceEngineTiers, AFailingPassFailsOneExpression) {
  FakeMachine machine;
  const auto run = [](const Dag& dag, const PassContext&) -> Dag {
    if (dag.variableCount() == 8) throw std::runtime_error("pass failure");
    return dag;
  };
  ASSERT_TRUE(registerPass({"throws-for-x7", run, Exactness::kExact, "a pass of a test"}).ok());
  const Engine gpu = machine.engine({.math = Math::kStrict});
  Workload w = arithmeticWorkload(26, 50, 100, Precision::kF32);
  w.columns.resize(8, w.columns[0]);
  w.expressions.insert(w.expressions.begin() + 20, build({Token::variable(7)}));
  const Dataset data = gpu.upload(w.view()).value();
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    const Program program = gpu.compile(
        w.expressions,
        {.tier = tier, .pipeline = Pipeline::parse("standard,throws-for-x7,schedule", Math::kStrict).value()});
    const Losses losses = gpu.loss(program, data, w.parameters).value();
    ASSERT_EQ(losses.failures.size(), 1U);
    ASSERT_EQ(program.failures().size(), 1U);
    EXPECT_EQ(program.failures()[0].expression, 20U);
    EXPECT_EQ(losses.failures[0].expression, 20U);
    EXPECT_EQ(losses.failures[0].error.message, "pass throws-for-x7: pass failure");
    EXPECT_TRUE(std::isnan(losses.values[20]));
  }
}

}  // namespace
}  // namespace srjit

// The direct tier end to end: machine code written into cubins, loaded by a model of the driver and run instruction by
// instruction on a model of a warp. That its bits are the interpreter's, tests/runtime/machines tests.
#include <atomic>
#include <thread>

#include <gmock/gmock.h>

#include "ir/ops.h"
#include "runtime/code/makers.h"
#include "runtime/platform/aligned_buffer.h"
#include "tests/gpu_model/direct_machine.h"
#include "tests/runtime/tiers/held_pass.h"

namespace srjit {
namespace {

class DirectTierOf : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(, DirectTierOf, testing::Values(Precision::kF32, Precision::kF64),
                         [](const auto& made) { return std::string(nameOf(made.param)); });

TEST_P(DirectTierOf, NewParametersNeedNoNewCode) {
  DirectMachine machine({}, "proved", GetParam());
  const Engine gpu = machine.engine(machine.strict());
  const Engine cpu = cpuEngine(GetParam());
  Workload w = directWorkload(6, 30, 300, false, GetParam());
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kDirect});
  ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
  expectDirect(program, w.expressions.size());
  for (double& p : w.parameters) p = 2 * p + 1;
  machine.driver.forgetCalls();
  expectSameLosses(gpu.loss(program, data, w.parameters).value(), lossesOf(cpu, w, Tier::kInterpret, {}), "new ones");
  EXPECT_EQ(machine.driver.count("cuModuleLoadDataEx"), 0U);
  EXPECT_EQ(machine.driver.count("cuMemcpyHtoDAsync"), 1U);
  EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 2U) << "the programs and their totals";
}

// Its kernel has 32 bits for strides: rows may not lie backwards, and columns not 4 GB apart.
TEST(DirectTier, ReportsUnsupportedStrides) {
  DirectMachine machine;
  const Engine gpu = machine.engine(machine.strict());
  const std::size_t rows = 300;
  Workload w = directWorkload(9, 0, rows);
  w.expressions = {build({Token::variable(0), Token::variable(0), Token::operation(Op::kMul)})};
  w.columns.resize(1);
  const std::vector<float> forwards(w.columns[0].begin(), w.columns[0].end());
  const std::vector<float> backwards(forwards.rbegin(), forwards.rend()), target(w.target.begin(), w.target.end());
  const auto place = [&](const std::vector<float>& values) {
    return machine.driver.allocateForeign(std::as_bytes(std::span(values)));
  };
  const CUdeviceptr addresses[] = {place(forwards), place(backwards), place(target)};
  const DeviceMatrix near{addresses[0], rows, 1, 4, 4 * rows, Precision::kF32};
  const DeviceMatrix far{addresses[0], rows, 1, 4, std::ptrdiff_t{1} << 40, Precision::kF32};
  const DeviceMatrix reversed{addresses[1] + 4 * (rows - 1), rows, 1, -4, 4 * rows, Precision::kF32};
  const DeviceMatrix target_view{addresses[2], rows, 1, 4, 0, Precision::kF32};
  const Losses expected = lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {});
  for (const Tier tier : {Tier::kDirect, Tier::kAuto}) {
    const Program program =
        gpu.compile(w.expressions, {.tier = tier, .expected_evaluations = 1e5, .expected_rows = rows});
    const auto lossOf = [&](const DeviceMatrix& columns) {
      const Dataset data = gpu.adopt({.columns = columns, .target = target_view}).value();
      return gpu.loss(program, data, w.parameters).value();
    };
    for (const auto& [columns, text] :
         {std::pair(far, "rows 1 and columns 274877906944 numbers apart, but direct code takes 0 to 1073741823"),
          std::pair(reversed, "rows -1 and columns 300 numbers apart, but direct code takes 0 to 1073741823")}) {
      const std::size_t launches = machine.launches();
      expectSameLosses(lossOf(columns), expected, text);
      EXPECT_EQ(machine.launches(), launches);
      const ProgramStatus status = program.status();
      EXPECT_NE(status.tier, Tier::kDirect);
      ASSERT_TRUE(status.error) << text;
      EXPECT_EQ(status.error->code, Errc::kUnsupported);
      EXPECT_EQ(status.error->message, text);
    }
    expectSameLosses(lossOf(near), expected, "afterwards");
    EXPECT_FALSE(program.status().error);
    if (tier == Tier::kDirect) expectDirect(program, 1);
  }
  for (const CUdeviceptr address : addresses) machine.driver.freeForeign(address);
}

/// x0 / x1 / x1 / ..., with more comparisons than the tier can number.
Expression tooLongQuotient() {
  std::string text = "x0";
  for (int i = 0; i < 10'922; ++i) text += " x1 /";
  return parse(text, Language::kPostfix).value();
}

TEST(DirectTier, InterpretsTooLongExpressions) {
  DirectMachine machine({}, "proved", Precision::kF64);
  const Engine gpu = machine.engine(machine.strict());
  Workload w = directWorkload(21, 20, 40, true, Precision::kF64);
  w.expressions.push_back(tooLongQuotient());
  w.expressions.push_back(build({Token::variable(0)}));
  const LossOptions loss{LossKind::kMae, NanPolicy::kSkip};
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kDirect});
  expectSameLosses(gpu.loss(program, data, w.parameters, loss).value(), lossesOf(gpu, w, Tier::kInterpret, loss),
                   "too long");
  expectSameBits(predict(gpu, program, data, w.parameters), predict(gpu, w, Tier::kInterpret), 40, "too long");
  expectDirect(program, w.expressions.size() - 1);
  ASSERT_TRUE(program.status().error);
  EXPECT_EQ(program.status().error->code, Errc::kUnsupported);
  EXPECT_EQ(program.status().error->message,
            "no direct code for 1 of 22 expressions; the first is expression 21, which is too long, or needs more than "
            "64 registers");
  EXPECT_EQ(program.status().served.interpreted, 1U);
}

TEST(DirectTier, InterpretsWithoutDirectExpressions) {
  DirectMachine machine({}, "proved", Precision::kF64);
  const Engine gpu = machine.engine(machine.strict());
  Workload w = directWorkload(22, 0, 50, false, Precision::kF64);
  w.expressions = {tooLongQuotient()};
  expectSameBits(predict(gpu, w, Tier::kDirect), predict(gpu, w, Tier::kInterpret), 50, "too long");
  EXPECT_EQ(machine.launches(), 0U);
  EXPECT_TRUE(predict(gpu, directWorkload(22, 0, 50, false, Precision::kF64), Tier::kDirect).empty());
}

TEST_P(DirectTierOf, IsOffOnUnsupportedDevices) {
  FakeMachine machine({.devices = {FakeDevice{.capability = 75}}});
  const Engine gpu = machine.engine({.precision = GetParam(), .math = Math::kStrict});
  const Workload w = directWorkload(3, 20, 100, false, GetParam());
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kDirect});
  expectSameBits(predict(gpu, program, data, w.parameters), predict(cpuEngine(GetParam()), w, Tier::kInterpret), 100,
                 "without the tier");
  const ProgramStatus status = program.status();
  EXPECT_EQ(status.tier, Tier::kInterpret);
  ASSERT_TRUE(status.error);
  EXPECT_EQ(status.error->code, Errc::kUnsupported);
  EXPECT_EQ(status.error->message, "no direct tier for sm_75");
}

TEST_P(DirectTierOf, AutoUsesItForManyExpectedEvaluations) {
  DirectMachine machine({}, "proved", GetParam());
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(30, 30, 200, false, GetParam());
  const Dataset data = gpu.upload(w.view()).value();
  const Program once = gpu.compile(w.expressions, {.expected_evaluations = 1, .expected_rows = 200});
  ASSERT_TRUE(gpu.loss(once, data, w.parameters).ok());
  EXPECT_EQ(once.status().tier, Tier::kInterpret);
  EXPECT_EQ(machine.launches(), 0U);
  // Enough that writing code pays, and too few for LLVM's.
  const Program often = gpu.compile(w.expressions, {.expected_evaluations = 1e5, .expected_rows = 200});
  // In strict the interpreter begins: the program's own evaluations decide which code is quicker.
  const Losses first = gpu.loss(often, data, w.parameters).value();
  EXPECT_EQ(machine.launches(), 0U);
  while (often.status().compiling) std::this_thread::yield();
  expectSameLosses(gpu.loss(often, data, w.parameters).value(), first, "auto");
  EXPECT_EQ(often.status().tier, Tier::kDirect);
  EXPECT_EQ(machine.launches(), 1U);
}

/// The second expression needs more registers in a weighted loss than direct code has, and more columns than the
/// interpreter takes.
Workload tooWideWorkload() {
  Workload w = directWorkload(32, 3, 200, true, Precision::kF64);
  Random random(32);
  w.columns = randomColumns(random, 300, 200, Spread::kTame, Precision::kF64);
  std::vector<Token> sum = {Token::variable(0), Token::operation(Op::kSin)};
  for (std::uint32_t i = 1; i < 300; ++i) {
    sum.push_back(Token::variable(i));
    if (i % 64 == 0) sum.push_back(Token::operation(Op::kSin));
    sum.push_back(Token::operation(Op::kAdd));
  }
  w.expressions.insert(w.expressions.begin() + 1, build(sum));
  return w;
}

/// The same for slots: a balanced tree over some sines.
Workload tooDeepWorkload() {
  Workload w = directWorkload(33, 3, 200, true, Precision::kF64);
  Random random(33);
  w.columns = randomColumns(random, 5, 200, Spread::kTame, Precision::kF64);
  std::vector<Token> tree;
  for (std::uint32_t leaf = 0; leaf < 512; ++leaf) {
    tree.push_back(Token::variable(leaf % 5));
    if (leaf % 64 == 0) tree.push_back(Token::operation(Op::kSin));
    tree.push_back(Token::variable((leaf / 5 + 1) % 5));
    tree.push_back(Token::operation(leaf % 3 == 0 ? Op::kMul : Op::kSub));
    for (std::uint32_t done = leaf; done % 2 == 1; done /= 2) tree.push_back(Token::operation(Op::kAdd));
  }
  w.expressions.insert(w.expressions.begin() + 1, build(tree));
  return w;
}

// LLVM's code does not pay for the expected evaluations. Beside all sums of a loss in f64, direct code has too few
// registers for a sine of a large expression.
TEST(DirectTier, AutoCompilesWhatItAndTheInterpreterRefuse) {
  struct Case {
    Workload workload;
    std::size_t shared_bytes;
    const char* refusal;
  };
  constexpr LossOptions kLoss{LossKind::kMse, NanPolicy::kSkip};
  for (const Case& c : {Case{tooWideWorkload(), std::size_t{227} << 10, "columns"},
                        Case{tooDeepWorkload(), std::size_t{24} << 10, "slots"}}) {
    DirectMachine machine({.devices = {FakeDevice{.shared_bytes_per_block = c.shared_bytes}}}, "proved",
                          Precision::kF64);
    std::atomic<std::size_t> compiled = 0;
    machine.images->before = [&](const FakeImageMaker::Request& request) -> Status {
      for (const Dag& dag : request.dags) compiled += dag.roots().size();
      return okStatus();
    };
    const Engine gpu = machine.engine(machine.strict());
    const Dataset data = gpu.upload(c.workload.view()).value();
    const Program direct = gpu.compile(c.workload.expressions, {.tier = Tier::kDirect});
    const Losses refused = gpu.loss(direct, data, c.workload.parameters, kLoss).value();
    ASSERT_EQ(refused.failures.size(), 1U) << c.refusal;
    EXPECT_EQ(refused.failures[0].expression, 1U);
    EXPECT_EQ(refused.failures[0].error.code, Errc::kUnsupported);
    EXPECT_THAT(refused.failures[0].error.message, testing::HasSubstr(c.refusal));
    EXPECT_EQ(compiled, 0U);

    const Program program = gpu.compile(c.workload.expressions, {.expected_evaluations = 2e4, .expected_rows = 200});
    const Losses losses = gpu.loss(program, data, c.workload.parameters, kLoss).value();
    EXPECT_EQ(compiled, 1U) << "what was refused, and that alone";
    EXPECT_TRUE(program.failures().empty());
    expectSameLosses(losses, lossesOf(gpu, c.workload, Tier::kCompile, kLoss), c.refusal);
    EXPECT_FALSE(std::isnan(losses.values[1])) << c.refusal;
  }
}

TEST(DirectTier, DestroyedProgramCancelsItsCode) {
  DirectMachine machine;
  HeldPass pass;
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(47, 20, 100);
  const Dataset data = gpu.upload(w.view()).value();
  const std::size_t bytes = machine.driver.usedBytes();
  std::weak_ptr<const ProgramSource> source;
  {
    // The number of rows is unknown, so the interpreter serves first.
    const Program program =
        gpu.compile(w.expressions, {.pipeline = pass.pipeline(Math::kStrict), .expected_evaluations = 1e5});
    ASSERT_TRUE(gpu.prepare(program, data, LossOptions{}).ok());
    pass.hold();
    ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
    pass.waitUntilHeld();
    EXPECT_TRUE(program.status().compiling);
    source = program.state().source;
  }
  EXPECT_FALSE(source.expired());
  pass.release();
  waitForEnd(source);
  EXPECT_EQ(machine.modules(), 0U);
  EXPECT_EQ(machine.launches(), 0U);
  EXPECT_EQ(machine.driver.usedBytes(), bytes);
}

TEST(DirectTier, DriverFailuresFailOneEvaluation) {
  DirectMachine machine;
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(31, 20, 100);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kDirect});
  for (const char* const entry : {"cuModuleLoadDataEx", "cuModuleGetFunction", "cuMemAllocFromPoolAsync"}) {
    machine.driver.failAt(entry, 1, CUDA_ERROR_UNKNOWN);
    const auto failed = gpu.loss(program, data, w.parameters);
    ASSERT_FALSE(failed.ok()) << entry;
    EXPECT_EQ(failed.error().code, Errc::kMachine) << failed.error().message;
  }
  expectSameLosses(gpu.loss(program, data, w.parameters).value(),
                   lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {}), "afterwards");
  expectDirect(program, w.expressions.size());
}

TEST(DirectGrid, HasLargeBlocksWhereGroupsAreMany) {
  EXPECT_EQ(directGrid(10'860, 313, 64, false, 132), (DirectGrid{.row_blocks = 6, .warps = 16}));
  EXPECT_EQ(directGrid(10'860, 32, 64, false, 132), (DirectGrid{.row_blocks = 11, .warps = 8}));
  for (const std::size_t rows : {1, 128, 129, 362, 10'860, 1'000'000}) {
    for (const std::size_t groups : {1, 131, 132, 133, 100'000}) {
      const DirectGrid grid = directGrid(rows, groups, 64, false, 132);
      ASSERT_GE(grid.row_blocks, 1U);
      EXPECT_LE(grid.row_blocks, ceilDivide(rows, kGroupRows * grid.warps)) << rows << " rows, " << groups << " groups";
      EXPECT_EQ(grid.warps, groups > 132 ? 16U : 8U);
    }
  }
}

TEST(DirectGrid, HasOneBlockPerMultiprocessorWhereManyGroupsHaveSubroutines) {
  EXPECT_EQ(directGrid(10'860, 313, 64, true, 132), (DirectGrid{.row_blocks = 3, .warps = kDirectMostWarps}));
  EXPECT_EQ(directGrid(10'860, 32, 64, true, 132).warps, 8U);
}

TEST(DirectGrid, HasAtLeastOneRowBlock) {
  EXPECT_EQ(directGrid(0, 1, 40, false, 132), (DirectGrid{.row_blocks = 1, .warps = 8}));
  // Fewer registers leave room for more blocks, so rows are divided further.
  EXPECT_GT(directGrid(1'000'000, 100, 40, false, 132).row_blocks,
            directGrid(1'000'000, 100, 64, false, 132).row_blocks);
}

TEST(DirectShape, HasSmallScheduledGroupsWhereTheyMakeFewBlocks) {
  const auto shape = [](std::size_t expressions, std::size_t rows) {
    const DirectOptions made = directShape(expressions, rows, 132);
    return std::pair(made.roots, made.window > 1);
  };
  EXPECT_EQ(shape(1, 1), std::pair(8U, true));
  EXPECT_EQ(shape(100, 10'860), std::pair(8U, true));
  EXPECT_EQ(shape(1000, 10'860), std::pair(16U, false));
  EXPECT_EQ(shape(2000, 10'860), std::pair(kDirectRoots, false));
  EXPECT_EQ(shape(256, 1'000'000), std::pair(kDirectRoots, false));
  EXPECT_EQ(shape(1'000'000, 362), std::pair(kDirectRoots, false));
}

}  // namespace
}  // namespace srjit

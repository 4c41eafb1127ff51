// The direct tier end to end: machine code of our own, written into cubins, loaded by a model of the driver and run
// instruction by instruction on a model of a warp, gives the bits of the CPU engine and of the interpreter.
#include <atomic>
#include <csignal>
#include <filesystem>
#include <future>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "compiler/direct.h"
#include "runtime/direct_proof.h"
#include "tests/runtime/device_engine.h"
#include "tests/runtime/held_pass.h"
#include "tests/tools/scratch.h"

namespace srjit {
namespace {

constexpr LossKind kLossKinds[] = {LossKind::kSse, LossKind::kMse,  LossKind::kRmse,
                                   LossKind::kMae, LossKind::kNmse, LossKind::kR2};
constexpr NanPolicy kNanPolicies[] = {NanPolicy::kPropagate, NanPolicy::kSkip, NanPolicy::kReject};

/// Images of direct code that a proof loads: one for predictions, and one for each shape of losses.
constexpr std::size_t kProofLosses = 8, kProofModules = 1 + kProofLosses;
/// Its launches: predictions with the rows in two parts, then strided in one; losses in two and in one.
constexpr std::size_t kProofLaunches = 2 + 2 * kProofLosses;

/// The proof of a machine's first device, as an engine of two threads makes it.
struct Proving {
  explicit Proving(FakeMachine& machine, const std::string& directory, Precision precision = Precision::kF32)
      : cuda(Cuda::open(machine.driver.load().value(), 0).value()),
        current(*cuda),
        cache(KernelCache::open({.directory = directory})),
        queue(std::make_shared<DeviceQueue>(cuda)),
        store(std::make_shared<KernelStore>(cuda, machine.images, cache, precision, Math::kStrict)),
        proof(queue, store, cache, 2) {}
  std::optional<Error> fault() { return proof.fault(never); }
  /// Whether the proof's lock is marked, as one who does not hold it sees it.
  bool isMarked(const Scratch& directory) const {
    const auto names = directory.list();
    return std::ranges::any_of(names, [&](const std::string& name) {
      return name.ends_with(".lock") && std::filesystem::file_size(directory.path(name)) > 0;
    });
  }

  std::shared_ptr<const Cuda> cuda;
  CurrentContext current;
  std::shared_ptr<KernelCache> cache;
  std::shared_ptr<DeviceQueue> queue;
  std::shared_ptr<KernelStore> store;
  std::atomic<bool> never = false;
  DirectProof proof;
};

/// A machine whose cache says that the tier was proved, or another fact.
struct DirectMachine : FakeMachine {
  explicit DirectMachine(FakeOptions options = {}, const char* fact = "proved") : FakeMachine(std::move(options)) {
    Proving proving(*this, directory.path(""));
    fact_name = proving.proof.fact();
    proving.cache->writeFact(fact_name, fact);
  }
  EngineOptions strict() const {
    return {.precision = Precision::kF32, .math = Math::kStrict, .cache_directory = directory.path("")};
  }
  /// Calls that launch, or load, direct code.
  std::size_t launches() const { return callsOf("cuLaunchKernel"); }
  std::size_t modules() const { return callsOf("cuModuleLoadDataEx"); }
  std::string known() const {
    return KernelCache::open({.directory = directory.path("")})->readFact(fact_name).value_or("nothing");
  }
  Scratch directory;
  std::string fact_name;

 private:
  std::size_t callsOf(std::string_view entry) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        driver.calls(), [&](const FakeCall& call) { return call.entry == entry && call.detail == kDirectKernel; }));
  }
};

Workload directWorkload(std::uint64_t seed, std::size_t count, std::size_t rows, bool weighted = false) {
  return arithmeticWorkload(seed, count, rows, Precision::kF32, weighted);
}

/// Whether the code of a program serves, for all of `expressions`.
void expectDirect(const Program& program, std::size_t expressions) {
  const ProgramStatus status = program.status();
  EXPECT_EQ(status.tier, Tier::kDirect);
  EXPECT_EQ(status.compiled, expressions);
  EXPECT_FALSE(status.error) << status.error->message;
}

/// Every sum becomes a difference.
void negateSums(std::vector<sass::Instruction>& code, unsigned) {
  for (sass::Instruction& i : code) {
    if (i.form == sass::Form::kFAddRR) i.negated ^= 2;
  }
}

TEST(DirectTier, PredictsAsTheCpuDoes) {
  DirectMachine machine({.lag = true});
  const Engine gpu = machine.engine(machine.strict());
  const Engine cpu = cpuEngine(Precision::kF32);
  for (const std::size_t rows : {1, 3, 127, 128, 129, 1300}) {
    const Workload w = directWorkload(rows, 40, rows);
    expectSameBits(predict(gpu, w, Tier::kDirect), predict(cpu, w, Tier::kInterpret), rows, "direct");
  }
  EXPECT_EQ(machine.launches(), 6U);
}

TEST(DirectTier, SumsLossesAsTheCpuDoes) {
  DirectMachine machine({.lag = true});
  const Engine gpu = machine.engine(machine.strict());
  const Engine cpu = cpuEngine(Precision::kF32);
  for (const std::size_t rows : {1, 129, 1300}) {
    for (const bool weighted : {false, true}) {
      const Workload w = directWorkload(rows, 12, rows, weighted);
      for (const LossKind kind : kLossKinds) {
        for (const NanPolicy nan : kNanPolicies) {
          const LossOptions options{kind, nan};
          expectSameLosses(lossesOf(gpu, w, Tier::kDirect, options), lossesOf(cpu, w, Tier::kInterpret, options),
                           "direct");
        }
      }
    }
  }
}

TEST(DirectTier, NewParametersNeedNoNewCode) {
  DirectMachine machine;
  const Engine gpu = machine.engine(machine.strict());
  const Engine cpu = cpuEngine(Precision::kF32);
  Workload w = directWorkload(6, 30, 300);
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kDirect});
  ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
  expectDirect(program, w.expressions.size());
  for (double& p : w.parameters) p = 2 * p + 1;
  machine.driver.forgetCalls();
  expectSameLosses(gpu.loss(program, data, w.parameters).value(), lossesOf(cpu, w, Tier::kInterpret, {}), "new ones");
  EXPECT_EQ(machine.driver.count("cuModuleLoadDataEx"), 0U);
  EXPECT_EQ(machine.driver.count("cuMemcpyHtoDAsync"), 1U);
  EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 2U) << "the programs and their totals";
}

TEST(DirectTier, StreamsWhatDoesNotFit) {
  DirectMachine machine({.lag = true});
  EngineOptions options = machine.strict();
  options.device_bytes = 300'000;
  const Engine gpu = machine.engine(options);
  const Engine cpu = cpuEngine(Precision::kF32);
  const std::size_t rows = 3 * 4096 + 1777;
  const Workload w = directWorkload(5, 4, rows, true);
  const LossOptions loss{LossKind::kMse, NanPolicy::kSkip};
  expectSameLosses(lossesOf(gpu, w, Tier::kDirect, loss), lossesOf(cpu, w, Tier::kInterpret, loss), "losses");
  EXPECT_GT(machine.launches(), 2U) << "several chunks";
  expectSameBits(predict(gpu, w, Tier::kDirect), predict(cpu, w, Tier::kInterpret), rows, "predictions");
}

TEST(DirectTier, TakesColumnsWhereTheyAre) {
  DirectMachine machine({.lag = true});
  const Engine gpu = machine.engine(machine.strict());
  const Engine cpu = cpuEngine(Precision::kF32);
  const std::size_t rows = 300, columns = 5;
  const Workload w = directWorkload(9, 20, rows);
  std::vector<float> by_column, by_row, target(w.target.begin(), w.target.end());
  for (std::size_t i = 0; i < rows * columns; ++i) {
    by_column.push_back(static_cast<float>(w.columns[i / rows][i % rows]));
    by_row.push_back(static_cast<float>(w.columns[i % columns][i / columns]));
  }
  const auto place = [&](const std::vector<float>& values) {
    return machine.driver.allocateForeign(std::as_bytes(std::span(values)));
  };
  const CUdeviceptr addresses[] = {place(by_column), place(by_row), place(target)};
  const DeviceMatrix layouts[] = {{addresses[0], rows, columns, 4, 4 * rows, Precision::kF32},
                                  {addresses[1], rows, columns, 4 * columns, 4, Precision::kF32}};
  const DeviceMatrix target_view{addresses[2], rows, 1, 4, 0, Precision::kF32};
  for (const DeviceMatrix& layout : layouts) {
    const Dataset data = gpu.adopt({.columns = layout, .target = target_view}).value();
    const Program program = gpu.compile(w.expressions, {.tier = Tier::kDirect});
    expectSameLosses(gpu.loss(program, data, w.parameters).value(), lossesOf(cpu, w, Tier::kInterpret, {}), "adopted");
    expectSameBits(predict(gpu, program, data, w.parameters), predict(cpu, w, Tier::kInterpret), rows, "adopted");
    expectDirect(program, w.expressions.size());
  }
  for (const CUdeviceptr address : addresses) machine.driver.freeForeign(address);
}

// Its kernel has 32 bits for strides: rows may not lie backwards, and columns not 4 GB apart.
TEST(DirectTier, SaysWhichColumnsItCannotRead) {
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
    const Program program = gpu.compile(w.expressions, {.tier = tier, .expected_passes = 1e5, .expected_rows = rows});
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

TEST(DirectTier, InterpretsWhatItHasNoCodeFor) {
  ASSERT_FALSE(isDirect(Op::kSin, Math::kStrict));
  DirectMachine machine;
  const Engine gpu = machine.engine(machine.strict());
  Workload w = directWorkload(21, 60, 200, true);
  // Subtrees in common, too, of which one expression is direct.
  std::size_t added = 0;
  for (std::size_t e = 0; e < 50; e += 3) {
    std::vector<Token> tokens(w.expressions[e].tokens().begin(), w.expressions[e].tokens().end());
    tokens.push_back(Token::operation(Op::kSin));
    w.expressions.push_back(build(tokens));
    for (std::uint32_t i = 0; i < w.expressions.back().parameterCount(); ++i) w.parameters.push_back(0.5 + i);
    ++added;
  }
  const LossOptions loss{LossKind::kMae, NanPolicy::kSkip};
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kDirect});
  expectSameLosses(gpu.loss(program, data, w.parameters, loss).value(), lossesOf(gpu, w, Tier::kInterpret, loss),
                   "sin");
  expectSameBits(predict(gpu, program, data, w.parameters), predict(gpu, w, Tier::kInterpret), 200, "sin");
  expectDirect(program, w.expressions.size() - added);
}

TEST(DirectTier, NothingDirectAtAllIsInterpreted) {
  DirectMachine machine;
  const Engine gpu = machine.engine(machine.strict());
  Workload w = directWorkload(22, 0, 50);
  w.expressions = {build({Token::variable(0), Token::operation(Op::kSin)})};
  expectSameBits(predict(gpu, w, Tier::kDirect), predict(gpu, w, Tier::kInterpret), 50, "sin");
  EXPECT_EQ(machine.launches(), 0U);
  EXPECT_TRUE(predict(gpu, directWorkload(22, 0, 50), Tier::kDirect).empty());
}

TEST(DirectTier, KnowsItsDevicesAndPrecisions) {
  struct Case {
    unsigned capability;
    Precision precision;
    const char* message;
  };
  for (const Case& c : {Case{90, Precision::kF64, "the direct tier computes in f32 alone"},
                        Case{75, Precision::kF32, "no direct tier for sm_75"}}) {
    FakeMachine machine({.devices = {FakeDevice{.capability = c.capability}}});
    const Engine gpu = machine.engine({.precision = c.precision, .math = Math::kStrict});
    const Workload w = arithmeticWorkload(3, 20, 100, c.precision);
    const Dataset data = gpu.upload(w.view()).value();
    const Program program = gpu.compile(w.expressions, {.tier = Tier::kDirect});
    expectSameBits(predict(gpu, program, data, w.parameters), predict(cpuEngine(c.precision), w, Tier::kInterpret), 100,
                   c.message);
    const ProgramStatus status = program.status();
    EXPECT_EQ(status.tier, Tier::kInterpret);
    ASSERT_TRUE(status.error);
    EXPECT_EQ(status.error->code, Errc::kUnsupported);
    EXPECT_EQ(status.error->message, c.message);
  }
}

TEST(DirectTier, AutoTakesItWhereManyPassesAreAnnounced) {
  DirectMachine machine;
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(30, 30, 200);
  const Dataset data = gpu.upload(w.view()).value();
  const Program once = gpu.compile(w.expressions, {.expected_passes = 1, .expected_rows = 200});
  ASSERT_TRUE(gpu.loss(once, data, w.parameters).ok());
  EXPECT_EQ(once.status().tier, Tier::kInterpret);
  EXPECT_EQ(machine.launches(), 0U);
  // Enough that writing code pays, and too few for LLVM's.
  const Program often = gpu.compile(w.expressions, {.expected_passes = 1e5, .expected_rows = 200});
  expectSameLosses(gpu.loss(often, data, w.parameters).value(), gpu.loss(once, data, w.parameters).value(), "auto");
  EXPECT_EQ(often.status().tier, Tier::kDirect);
  EXPECT_EQ(machine.launches(), 1U);
}

/// Expressions of which the second needs what direct code does not have, and more columns than the interpreter takes.
Workload tooWideWorkload() {
  Workload w = directWorkload(32, 3, 200);
  Random random(32);
  w.columns = randomColumns(random, 300, 200, Spread::kTame, Precision::kF32);
  std::vector<Token> sum = {Token::variable(0), Token::operation(Op::kSin)};
  for (std::uint32_t i = 1; i < 300; ++i) {
    sum.push_back(Token::variable(i));
    sum.push_back(Token::operation(Op::kAdd));
  }
  w.expressions.insert(w.expressions.begin() + 1, build(sum));
  return w;
}

/// The same for slots: a balanced tree over some sines.
Workload tooDeepWorkload() {
  Workload w = directWorkload(33, 3, 200);
  Random random(33);
  w.columns = randomColumns(random, 5, 200, Spread::kTame, Precision::kF32);
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

// Announced passes repay direct code, and not LLVM's.
TEST(DirectTier, AutoCompilesWhatNeitherItNorTheInterpreterCanRun) {
  struct Case {
    Workload workload;
    std::size_t shared_bytes;
    const char* refusal;
  };
  for (const Case& c : {Case{tooWideWorkload(), std::size_t{227} << 10, "columns"},
                        Case{tooDeepWorkload(), std::size_t{24} << 10, "slots"}}) {
    DirectMachine machine({.devices = {FakeDevice{.shared_bytes_per_block = c.shared_bytes}}});
    std::atomic<std::size_t> compiled = 0;
    machine.images->before = [&](const FakeImageMaker::Request& request) -> Status {
      for (const Dag& dag : request.dags) compiled += dag.roots().size();
      return okStatus();
    };
    const Engine gpu = machine.engine(machine.strict());
    const Dataset data = gpu.upload(c.workload.view()).value();
    const Program direct = gpu.compile(c.workload.expressions, {.tier = Tier::kDirect});
    const Losses refused = gpu.loss(direct, data, c.workload.parameters).value();
    ASSERT_EQ(refused.failures.size(), 1U) << c.refusal;
    EXPECT_EQ(refused.failures[0].expression, 1U);
    EXPECT_EQ(refused.failures[0].error.code, Errc::kUnsupported);
    EXPECT_THAT(refused.failures[0].error.message, testing::HasSubstr(c.refusal));
    EXPECT_EQ(compiled, 0U);

    const Program program = gpu.compile(c.workload.expressions, {.expected_passes = 3e5, .expected_rows = 200});
    const Losses losses = gpu.loss(program, data, c.workload.parameters).value();
    EXPECT_GT(machine.modules(), 1U) << "direct code was made for the announced passes";
    EXPECT_EQ(compiled, 1U) << "what was refused, and that alone";
    EXPECT_TRUE(program.failures().empty());
    expectSameLosses(losses, lossesOf(gpu, c.workload, Tier::kCompile, {}), c.refusal);
    EXPECT_FALSE(std::isnan(losses.values[1])) << c.refusal;
  }
}

TEST(DirectTier, ProgramsMayDieMeanwhile) {
  DirectMachine machine;
  HeldPass pass;
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(47, 20, 100);
  const Dataset data = gpu.upload(w.view()).value();
  const std::size_t bytes = machine.driver.usedBytes();
  std::weak_ptr<const ProgramSource> source;
  {
    // Nothing is said of the rows, so the interpreter serves first.
    const Program program =
        gpu.compile(w.expressions, {.pipeline = pass.pipeline(Math::kStrict), .expected_passes = 1e5});
    ASSERT_TRUE(gpu.prepare(program, data, LossOptions{}).ok());
    pass.hold();
    ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
    pass.waitUntilHeld();
    EXPECT_TRUE(program.status().compiling);
    source = program.state().source;
  }
  EXPECT_FALSE(source.expired());
  pass.release();
  ASSERT_TRUE(endsSoon(source));
  EXPECT_EQ(machine.modules(), 0U);
  EXPECT_EQ(machine.launches(), 0U);
  EXPECT_EQ(machine.driver.usedBytes(), bytes);
}

TEST(DirectTier, FailuresOfTheDriverAreErrorsOfTheEvaluationAlone) {
  DirectMachine machine;
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(31, 20, 100);
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kDirect});
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

TEST(DirectProof, RunsOnceAndIsRemembered) {
  DirectMachine machine({}, "open");
  const Workload w = directWorkload(40, 20, 100);
  const std::vector<double> expected = predict(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  {
    const Engine gpu = machine.engine(machine.strict());
    expectSameBits(predict(gpu, w, Tier::kDirect), expected, 100, "first");
    EXPECT_EQ(machine.launches(), kProofLaunches + 1);
    expectSameBits(predict(gpu, w, Tier::kDirect), expected, 100, "second");
    EXPECT_EQ(machine.launches(), kProofLaunches + 2);
  }
  const Engine later = machine.engine(machine.strict());
  expectSameBits(predict(later, w, Tier::kDirect), expected, 100, "later");
  EXPECT_EQ(machine.launches(), kProofLaunches + 3);
  Proving proving(machine, machine.directory.path(""));
  EXPECT_EQ(proving.cache->readFact(proving.proof.fact()), "proved");
  EXPECT_FALSE(proving.proof.known());
}

TEST(DirectProof, WrongCodeTurnsTheTierOff) {
  DirectMachine machine({}, "open");
  machine.driver.alterCode(negateSums);
  const Workload w = directWorkload(41, 20, 100);
  const std::vector<double> expected = predict(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  for (int process = 0; process < 2; ++process) {
    const Engine gpu = machine.engine(machine.strict());
    const Dataset data = gpu.upload(w.view()).value();
    const Program program = gpu.compile(w.expressions, {.tier = Tier::kDirect});
    expectSameBits(predict(gpu, program, data, w.parameters), expected, 100, "interpreted");
    EXPECT_EQ(machine.launches(), 1U) << "the first comparison, and nothing afterwards";
    const ProgramStatus status = program.status();
    EXPECT_EQ(status.tier, Tier::kInterpret);
    ASSERT_TRUE(status.error);
    EXPECT_THAT(status.error->message, testing::StartsWith("the direct tier is off"));
    EXPECT_THAT(status.error->message, testing::HasSubstr("probe"));
    const Program often = gpu.compile(w.expressions, {.expected_passes = 1e5, .expected_rows = 100});
    expectSameBits(predict(gpu, often, data, w.parameters), expected, 100, "auto");
    EXPECT_EQ(machine.launches(), 1U);
  }
}

TEST(DirectProof, AnImageThatTheDriverRefusesTurnsTheTierOff) {
  DirectMachine machine({}, "open");
  machine.driver.failAt("cuModuleLoadDataEx", 3, CUDA_ERROR_INVALID_IMAGE);  // after the interpreter and the totals
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(42, 20, 100);
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kDirect});
  expectSameLosses(gpu.loss(program, data, w.parameters).value(),
                   lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {}), "interpreted");
  EXPECT_EQ(machine.launches(), 0U);
  ASSERT_TRUE(program.status().error);
  EXPECT_THAT(program.status().error->message, testing::HasSubstr("cuModuleLoadDataEx"));
}

TEST(DirectProof, CodeThatLosesTheDeviceIsTriedOnce) {
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
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kDirect});
  expectSameLosses(gpu.loss(program, data, w.parameters).value(),
                   lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {}), "the next process");
  EXPECT_EQ(machine.driver.count("cuModuleLoadDataEx"), 2U) << "the interpreter and the totals";
  ASSERT_TRUE(program.status().error);
  EXPECT_THAT(program.status().error->message, testing::HasSubstr("715"));
}

TEST(DirectProof, ADeviceThatWasLostBeforeSaysNothing) {
  const Scratch directory;
  {
    FakeMachine machine;
    Proving proving(machine, directory.path(""));
    machine.driver.failKernel(1, CUDA_ERROR_ILLEGAL_INSTRUCTION);
    EXPECT_THROW(static_cast<void>(proving.fault()), CudaFailure);
    EXPECT_TRUE(proving.proof.isOpen());
  }
  FakeMachine machine;
  EXPECT_FALSE(Proving(machine, directory.path("")).fault());
}

TEST(DirectProof, FailuresThatSayNothingLeaveItOpen) {
  FakeMachine machine;
  const Scratch directory;
  {
    Proving proving(machine, directory.path(""));
    machine.images->before = [](const FakeImageMaker::Request&) -> Status {
      return Error{Errc::kCompile, "no assembler today", {}};
    };
    const auto fault = proving.fault();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->message, "no assembler today");
    machine.images->before = nullptr;
    for (const std::size_t image : {1, 3}) {  // the interpreter's, then direct code
      machine.driver.failAt("cuModuleLoadDataEx", image, CUDA_ERROR_OUT_OF_MEMORY);
      EXPECT_THROW(static_cast<void>(proving.fault()), CudaFailure);
      EXPECT_TRUE(proving.proof.isOpen());
      EXPECT_EQ(proving.cache->readFact(proving.proof.fact()), "open");
    }
  }
  Proving again(machine, directory.path(""));
  ASSERT_TRUE(again.proof.isOpen());
  EXPECT_FALSE(again.fault());
  EXPECT_EQ(again.cache->readFact(again.proof.fact()), "proved");
}

// The child is killed when it first runs direct code.
TEST(DirectProof, OneThatKillsItsProcessIsNotTriedAgain) {
  FakeMachine machine;
  const Scratch directory;
  const auto dies = [&] {
    machine.driver.alterCode([](std::vector<sass::Instruction>&, unsigned) { std::raise(SIGKILL); });
    static_cast<void>(Proving(machine, directory.path("")).fault());
  };
  EXPECT_EXIT(dies(), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(dies(), testing::KilledBySignal(SIGKILL), "") << "the first may have been killed by chance";
  Proving next(machine, directory.path(""));
  EXPECT_TRUE(next.isMarked(directory));
  const auto fault = next.fault();
  ASSERT_TRUE(fault);
  EXPECT_THAT(fault->message, testing::HasSubstr("2 processes did not survive"));
  EXPECT_FALSE(next.proof.isOpen());
  EXPECT_EQ(machine.driver.count("cuModuleLoadDataEx"), 0U);
  EXPECT_TRUE(Proving(machine, directory.path("")).proof.known());
}

TEST(DirectProof, ClearingTheCacheForgetsWhoDied) {
  FakeMachine machine;
  const Scratch directory;
  Proving proving(machine, directory.path(""));
  {
    auto lock = proving.cache->lock(proving.proof.fact(), [] { return true; });
    for (unsigned death = 0; death < DirectProof::kMostDeaths; ++death) lock->mark();
  }
  ASSERT_TRUE(proving.isMarked(directory));
  ASSERT_TRUE(proving.cache->clear());
  EXPECT_FALSE(proving.isMarked(directory));
  EXPECT_FALSE(proving.fault());
}

// Where the outcome of a proof cannot be kept, as on a full disk, the next process proves again.
TEST(DirectProof, AnOutcomeThatWasNotKeptIsNoCrash) {
  FakeMachine machine;
  const Scratch directory;
  EXPECT_FALSE(Proving(machine, directory.path("")).fault());
  std::filesystem::remove(directory.path(DiskStore::kFileName));
  Proving next(machine, directory.path(""));
  EXPECT_FALSE(next.fault());
  EXPECT_GT(machine.driver.count("cuModuleLoadDataEx"), 2 * kProofModules);
}

TEST(DirectProof, CancelledWhileItWaitsOrComparesSaysNothing) {
  FakeMachine machine;
  const Scratch directory;
  Proving proving(machine, directory.path(""));
  std::atomic<bool> cancelled = true;
  {
    const auto other = proving.cache->lock(proving.proof.fact(), [] { return true; });
    ASSERT_TRUE(other && other->holds());
    EXPECT_TRUE(proving.proof.fault(cancelled));
    EXPECT_TRUE(proving.proof.isOpen());
  }
  const auto fault = proving.proof.fault(cancelled);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, Errc::kCancelled);
  EXPECT_TRUE(proving.proof.isOpen());
  machine.driver.alterCode([&](std::vector<sass::Instruction>&, unsigned) { cancelled = true; });
  cancelled = false;
  EXPECT_EQ(proving.proof.fault(cancelled)->code, Errc::kCancelled);
  EXPECT_TRUE(proving.proof.isOpen());
  EXPECT_FALSE(proving.isMarked(directory));
  machine.driver.alterCode(nullptr);
  EXPECT_FALSE(proving.fault());
}

TEST(DirectProof, SaysWhatIsKnown) {
  FakeMachine machine;
  const Scratch directory;
  Proving proving(machine, directory.path(""));
  const auto standing = [&] {
    return DirectProof::standing(*proving.cache, proving.cuda->limits(), Math::kStrict, proving.store->identity());
  };
  EXPECT_EQ(standing().text, "not compared yet");
  EXPECT_FALSE(standing().refuted);
  EXPECT_FALSE(proving.fault());
  EXPECT_EQ(standing().text, "proved");
  EXPECT_FALSE(standing().refuted);
  proving.cache->writeFact(proving.proof.fact(), "probe 3, row 4: 1 instead of 2");
  EXPECT_EQ(standing().text, "probe 3, row 4: 1 instead of 2");
  EXPECT_TRUE(standing().refuted);
}

TEST(DirectProof, WaitsForTheProofOfAnotherProcess) {
  FakeMachine machine;
  const Scratch directory;
  Proving proving(machine, directory.path(""));
  auto other = proving.cache->lock(proving.proof.fact(), [] { return true; });
  ASSERT_TRUE(other && other->holds());
  other->mark();
  std::atomic<bool> done = false;
  std::optional<Error> fault;
  std::thread waiting([&] {
    const CurrentContext current(*proving.cuda);
    fault = proving.fault();
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(done);
  proving.cache->writeFact(proving.proof.fact(), "proved");
  other->unmark();
  other.reset();
  waiting.join();
  EXPECT_FALSE(fault) << fault->message;
  EXPECT_EQ(machine.driver.count("cuModuleLoadDataEx"), 0U) << "nothing to prove any more";
}

TEST(DirectProofSlow, FindsWrongSumsOfEveryShape) {
  // Every loss but the one is right, so a shape that is not compared would pass.
  for (std::size_t wrong = 0; wrong < kProofLosses; ++wrong) {
    DirectMachine machine({}, "open");
    std::size_t image = 0;  // that of predictions comes first
    machine.driver.alterCode([&](std::vector<sass::Instruction>& code, unsigned capability) {
      if (image++ == 1 + wrong) negateSums(code, capability);
    });
    Proving proving(machine, machine.directory.path(""));
    const auto fault = proving.fault();
    ASSERT_TRUE(fault) << wrong;
    EXPECT_THAT(fault->message, testing::HasSubstr("loss " + std::to_string(wrong) + " of sum"));
  }
}

TEST(DirectProof, MarksItsLockWhileItsCodeIsLoadedAndNotBefore) {
  FakeMachine machine;
  const Scratch directory;
  Proving proving(machine, directory.path(""));
  std::set<bool> while_making, while_loading;
  machine.images->before = [&](const FakeImageMaker::Request&) -> Status {
    while_making.insert(proving.isMarked(directory));
    return okStatus();
  };
  machine.driver.alterCode(
      [&](std::vector<sass::Instruction>&, unsigned) { while_loading.insert(proving.isMarked(directory)); });
  EXPECT_FALSE(proving.fault());
  EXPECT_EQ(while_making, std::set<bool>{false});
  EXPECT_EQ(while_loading, std::set<bool>{true});
  EXPECT_FALSE(proving.isMarked(directory));
}

TEST(DirectProof, ThreadsThatNeedItAtOnceShareIt) {
  DirectMachine machine({}, "open");
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(44, 20, 100);
  const std::vector<double> expected = predict(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  std::vector<std::vector<double>> results(5);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = predict(gpu, w, Tier::kDirect); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) expectSameBits(result, expected, 100, "threads");
  EXPECT_EQ(machine.launches(), kProofLaunches + results.size());
}

TEST(DirectProof, RunsInTheBackgroundForAuto) {
  DirectMachine machine({}, "open");
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(45, 20, 100);
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.expected_passes = 1e15, .expected_rows = 100});
  const Losses expected = gpu.loss(program, data, w.parameters).value();
  while (program.status().compiling) std::this_thread::yield();
  EXPECT_EQ(machine.launches(), kProofLaunches);
  expectSameLosses(gpu.loss(program, data, w.parameters).value(), expected, "machine code");
  const Program next = gpu.compile(w.expressions, {.tier = Tier::kDirect});
  expectSameLosses(gpu.loss(next, data, w.parameters).value(), expected, "direct");
  expectDirect(next, w.expressions.size());
  EXPECT_EQ(machine.launches(), kProofLaunches + 1) << "proved already";
}

TEST(DirectProof, ProgramsMayDieMeanwhile) {
  DirectMachine machine({}, "open");
  const Engine gpu = machine.engine(machine.strict());
  const Workload w = directWorkload(46, 20, 100);
  const Dataset data = gpu.upload(w.view()).value();
  std::weak_ptr<const ProgramSource> source;
  std::atomic<bool> is_first = true;
  std::promise<void> proving, died;
  {
    const Program program = gpu.compile(w.expressions, {.expected_passes = 1e15, .expected_rows = 100});
    ASSERT_TRUE(gpu.prepare(program, data, LossOptions{}).ok());
    // The program's interpreter is there, so the next one is the proof's.
    machine.images->before = [&](const FakeImageMaker::Request& request) -> Status {
      if (request.kind == "interpreter" && is_first.exchange(false)) {
        proving.set_value();
        died.get_future().wait();
      }
      return okStatus();
    };
    ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
    proving.get_future().wait();
    EXPECT_TRUE(program.status().compiling);
    source = program.state().source;
  }
  EXPECT_EQ(machine.known(), "open");
  const std::size_t compiled = machine.images->count("rows");
  died.set_value();
  ASSERT_TRUE(endsSoon(source));
  EXPECT_EQ(machine.known(), "proved") << "the proof is the engine's";
  EXPECT_EQ(machine.launches(), kProofLaunches);
  EXPECT_EQ(machine.modules(), kProofModules) << "no code of the program";
  EXPECT_EQ(machine.images->count("rows"), compiled);
}

}  // namespace
}  // namespace srjit

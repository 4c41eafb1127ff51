// Values of subtrees that are kept from one generation to the next: the same bits as without, in all tiers and modes,
// within the budget, for any lifetimes and under failures.
#include "runtime/subtrees/kept.h"

#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "ir/ops.h"
#include "tests/gpu_model/slow_machine.h"

namespace srjit {
namespace {

constexpr std::size_t kKeptRows = 300, kKeptStride = 400;  // elements from one column to the next
constexpr std::uint64_t kKeptBudget = 1 << 20;

/// Generations of mutated expressions, with data.
struct Search {
  Search(std::uint64_t seed, std::vector<Op> ops, Precision precision, double parameters = 0.1, std::size_t count = 40)
      : random(seed),
        generator({.seed = seed,
                   .min_nodes = 9,
                   .max_nodes = 30,
                   .variables = 5,
                   .parameters = 2,
                   .ops = std::move(ops),
                   .parameter_probability = parameters}) {
    Random values(seed + 1);
    w.expressions = generator.batch(count);
    w.columns = randomColumns(values, 5, kKeptRows, Spread::kSpecial, precision);
    w.target = randomColumns(values, 1, kKeptRows, Spread::kTame, precision)[0];
    findParameters();
  }

  /// Mutates one variable or number of every other expression, and replaces one expression.
  void next() {
    for (std::size_t e = 0; e < w.expressions.size(); e += 2) {
      std::vector<Token> tokens(w.expressions[e].tokens().begin(), w.expressions[e].tokens().end());
      Token& token = tokens[random.below(tokens.size())];
      if (token.arity() == 0) token = Token::variable(static_cast<std::uint32_t>(random.below(5)));
      w.expressions[e] = build(std::move(tokens));
    }
    w.expressions[random.below(w.expressions.size())] = generator.next();
    findParameters();
  }

  void findParameters() {
    w.parameters.clear();
    for (const Expression& e : w.expressions) {
      for (std::uint32_t i = 0; i < e.parameterCount(); ++i) w.parameters.push_back(0.25 + 0.5 * i);
    }
  }

  Random random;
  ExpressionGenerator generator;
  Workload w;
};

struct Case {
  Precision precision;
  Math math;
  Tier tier;
};

class KeptSubtreesBits : public testing::TestWithParam<Case> {};

std::vector<Case> allCases() {
  std::vector<Case> cases;
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
      for (const Tier tier : {Tier::kInterpret, Tier::kCompile, Tier::kDirect, Tier::kAuto}) {
        cases.push_back({precision, math, tier});
      }
    }
  }
  return cases;
}

std::string caseName(const testing::TestParamInfo<Case>& info) {
  const char* const tiers[] = {"auto", "interpret", "compile", "direct"};
  return fmt::format("{}_{}_{}", nameOf(info.param.precision), nameOf(info.param.math),
                     tiers[static_cast<std::size_t>(info.param.tier)]);
}

INSTANTIATE_TEST_SUITE_P(, KeptSubtreesBits, testing::ValuesIn(allCases()), caseName);

TEST_P(KeptSubtreesBits, EqualComputedOnes) {
  const auto [precision, math, tier] = GetParam();
  SlowMachine machine(precision, math);
  const Engine engine = machine.keeping();
  // Direct code rounds as the model of the interpreter does, except in approximations.
  const bool exact = tier == Tier::kDirect || tier == Tier::kAuto;
  Search search(3, exact ? std::vector<Op>{Op::kAdd, Op::kSub, Op::kMul, Op::kNeg, Op::kAbs} : std::vector<Op>{},
                precision);
  const Dataset data = engine.upload(search.w.view()).value();
  EXPECT_EQ(data.subtrees().capacity, kMostSpareColumns);
  std::size_t read = 0;
  for (int generation = 0; generation < 5; ++generation, search.next()) {
    const Workload& w = search.w;
    // With a pipeline, so that nodes are counted in graphs of many expressions, as those that read subtrees are.
    const Program plain = engine.compile(w.expressions, {.tier = tier, .pipeline = Pipeline::standard(math)});
    const Program program = engine.compile(w.expressions, {.tier = tier, .data = &data});
    const ProgramInfo& info = program.info();
    EXPECT_EQ(info.subtrees_read > 0, generation >= 2) << generation;
    if (generation >= 2) {
      EXPECT_LT(info.nodes_after, plain.info().nodes_after);
    }
    EXPECT_EQ(info.nodes_spared, plain.info().nodes_after - info.nodes_after);
    read += info.subtrees_read;
    expectSameBits(predict(engine, program, data, w.parameters), predict(engine, plain, data, w.parameters), kKeptRows,
                   "predictions");
    for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
      const LossOptions loss{LossKind::kMse, nan};
      expectSameLosses(engine.loss(program, data, w.parameters, loss).value(),
                       engine.loss(plain, data, w.parameters, loss).value(), "losses");
    }
    if (tier == Tier::kDirect) {
      EXPECT_EQ(program.status().tier, Tier::kDirect) << program.status().error.value_or(Error{}).message;
      EXPECT_EQ(program.status().compiled, w.expressions.size());
    }
    if (tier == Tier::kCompile) {
      EXPECT_EQ(program.status().compiled, w.expressions.size());
    }
  }
  EXPECT_EQ(data.subtrees().reads, read);
  EXPECT_GT(data.subtrees().computed, 0U);
}

/// Compiles one generation for the data and checks its results against those without kept values.
Program evaluated(const Engine& engine, const Dataset& data, const Workload& w, Tier tier = Tier::kInterpret) {
  Program program = engine.compile(w.expressions, {.tier = tier, .data = &data});
  EXPECT_TRUE(program.failures().empty());
  const Program plain = engine.compile(w.expressions, {.tier = tier});
  expectSameBits(predict(engine, program, data, w.parameters), predict(engine, plain, data, w.parameters), kKeptRows,
                 "a generation");
  return program;
}

/// 256 programs with 12 of 18 operators in common, evaluated on ten million rows in three generations by a device of
/// these costs; returns the number of computed columns, and of columns that the last program reads.
std::pair<std::uint64_t, std::size_t> keptOf(Tier tier, const DeviceCosts& costs) {
  const auto kept = std::make_shared<KeptSubtrees>(Precision::kF32, Math::kStrict, 5, 8, 10'000'000);
  std::vector<Expression> expressions;
  for (std::uint32_t e = 0; e < 256; ++e) {
    std::vector<Token> tokens = {Token::variable(0)};
    for (std::uint32_t i = 0; i < 12; ++i) {
      tokens.insert(tokens.end(), {Token::variable(i % 5), Token::operation(i % 2 == 0 ? Op::kMul : Op::kAdd)});
    }
    for (std::uint32_t i = 0; i < 6; ++i) {
      tokens.insert(tokens.end(), {Token::constant(e + 0.5), Token::operation(i % 2 == 0 ? Op::kSub : Op::kMul)});
    }
    expressions.push_back(build(std::move(tokens)));
  }
  std::size_t read = 0;
  for (int generation = 0; generation < 3; ++generation) {
    const std::vector<SubtreeWrite> writes = kept->choose();
    kept->publish(writes, std::vector<bool>(writes.size(), true));
    const auto program = std::make_shared<ProgramSubtrees>(kept, tier, costs, expressions.size(), 2);
    program->pass(Dag::fromExpressions(expressions, Precision::kF32), tier, 37 * expressions.size());
    ProgramInfo info{};
    program->close(info);
    read = info.subtrees_read;
  }
  return {kept->stats().computed, read};
}

TEST(KeptSubtrees, AreKeptIfReadsAreFasterThanComputing) {
  const DeviceCosts costs{.interpret = 1 / 8e12, .direct = 1 / 34e12, .compiled = 1 / 28e12};
  EXPECT_EQ(keptOf(Tier::kInterpret, costs), std::pair(std::uint64_t{1}, std::size_t{1}));
  EXPECT_EQ(keptOf(Tier::kDirect, costs), std::pair(std::uint64_t{0}, std::size_t{0})) << "a group computes it once";
  EXPECT_EQ(keptOf(Tier::kCompile, costs), std::pair(std::uint64_t{0}, std::size_t{0}));
  const DeviceCosts slow{.interpret = 1 / 8e12, .direct = 1 / 0.5e12, .compiled = 1 / 0.5e12};
  EXPECT_GT(keptOf(Tier::kDirect, slow).second, 0U) << "computing is slow";
}

/// An engine that keeps subtrees, and generations with their data there.
struct Keeping {
  explicit Keeping(std::uint64_t seed = 9, std::uint64_t bytes = kKeptBudget)
      : search(seed, arithmeticOps(), Precision::kF32), engine(machine.keeping(bytes)) {}

  SlowMachine machine;
  Search search;
  const Engine engine;
  const Dataset data = engine.upload(search.w.view()).value();
};

TEST(KeptSubtrees, StayWithinTheirBudget) {
  SlowMachine machine;
  const std::uint64_t column = kKeptStride * sizeof(float);
  for (const std::uint64_t budget : {3 * column, 4 * column - 1, column - 1, std::uint64_t{0}}) {
    const std::size_t columns = budget / column;
    const Engine engine = machine.keeping(budget);
    Search search(5, arithmeticOps(), Precision::kF32);
    machine.driver.forgetCalls();
    const Dataset data = engine.upload(search.w.view()).value();
    const auto calls = machine.driver.calls();
    const auto taken = std::ranges::find(calls, "cuMemAllocFromPoolAsync", &FakeCall::entry);
    ASSERT_NE(taken, calls.end());
    EXPECT_EQ(taken->bytes, (6 + columns) * column);
    for (int generation = 0; generation < 6; ++generation, search.next()) {
      const Program program = evaluated(engine, data, search.w);
      EXPECT_LE(program.info().subtrees_read, columns);
    }
    const SubtreeStats stats = data.subtrees();
    EXPECT_EQ(stats.capacity, columns);
    EXPECT_EQ(stats.bytes, columns * column);
    EXPECT_EQ(stats.kept, columns) << "the budget is used up";
  }
}

TEST(KeptSubtrees, AreReplacedWhenNoProgramReadsThem) {
  Keeping keeping(7, 4 * kKeptStride * sizeof(float));
  auto& [machine, first, engine, data] = keeping;
  const Search second(8, {Op::kAdd, Op::kMul}, Precision::kF32);
  std::vector<Program> living;
  for (int generation = 0; generation < 4; ++generation) living.push_back(evaluated(engine, data, first.w));
  ASSERT_EQ(data.subtrees().kept, 4U);
  ASSERT_EQ(living.back().info().subtrees_read, 4U);
  const std::uint64_t computed = data.subtrees().computed;

  for (int generation = 0; generation < 6; ++generation) evaluated(engine, data, second.w);
  EXPECT_EQ(data.subtrees().computed, computed) << "live programs read all columns";
  const Program plain = engine.compile(first.w.expressions, {.tier = Tier::kInterpret});
  for (const Program& program : living) {
    expectSameBits(predict(engine, program, data, first.w.parameters), predict(engine, plain, data, first.w.parameters),
                   kKeptRows, "a program of before");
  }
  living.clear();
  for (int generation = 0; generation < 4; ++generation) living.push_back(evaluated(engine, data, second.w));
  EXPECT_EQ(data.subtrees().computed, computed + 4);
  EXPECT_EQ(data.subtrees().replaced, 4U);
  EXPECT_EQ(living.back().info().subtrees_read, 4U);
}

TEST(KeptSubtrees, OfAProgramInFlightAreNotReplaced) {
  Keeping keeping(7, 4 * kKeptStride * sizeof(float));
  auto& [machine, first, engine, data] = keeping;
  const Search second(8, {Op::kAdd, Op::kMul}, Precision::kF32);
  const Losses expected =
      engine.loss(engine.compile(first.w.expressions, {.tier = Tier::kInterpret}), data, first.w.parameters).value();
  for (int generation = 0; generation < 3; ++generation) evaluated(engine, data, first.w);
  std::optional<Program> program = engine.compile(first.w.expressions, {.tier = Tier::kInterpret, .data = &data});
  ASSERT_EQ(program->info().subtrees_read, 4U);
  Pending<Losses> pending = engine.submitLoss(*program, data, first.w.parameters).value();
  program.reset();
  for (int generation = 0; generation < 4; ++generation) {
    engine.compile(second.w.expressions, {.tier = Tier::kInterpret, .data = &data});
  }
  EXPECT_EQ(data.subtrees().replaced, 0U);
  expectSameLosses(std::move(pending).result().value(), expected, "in flight");
}

TEST(KeptSubtrees, HaveNoParameters) {
  Keeping keeping;
  auto& [machine, search, engine, data] = keeping;
  // Every operator depends on p0.
  const std::vector<Expression> expressions(
      20, build({Token::variable(0), Token::parameter(0), Token::operation(Op::kMul), Token::variable(1),
                 Token::operation(Op::kAdd)}));
  for (int generation = 0; generation < 5; ++generation) {
    const Program program = engine.compile(expressions, {.tier = Tier::kInterpret, .data = &data});
    EXPECT_EQ(program.info().subtrees_read, 0U);
    const Program plain = engine.compile(expressions, {.tier = Tier::kInterpret});
    const std::vector<double> parameters(20, 0.5 + generation);
    expectSameBits(predict(engine, program, data, parameters), predict(engine, plain, data, parameters), kKeptRows,
                   "p");
  }
  EXPECT_EQ(data.subtrees().computed, 0U);
}

TEST(KeptSubtrees, AreNotSearchedForInSmallWork) {
  FakeMachine machine;
  const Engine engine = machine.engine({.math = Math::kStrict, .subtree_bytes = kKeptBudget});
  Search search(9, arithmeticOps(), Precision::kF32);
  const Dataset data = engine.upload(search.w.view()).value();
  for (int generation = 0; generation < 4; ++generation) evaluated(engine, data, search.w);
  EXPECT_EQ(data.subtrees().computed, 0U) << "300 rows take a microsecond";
}

TEST(KeptSubtrees, ProgramsOfOneDataSetAreRejectedForOthers) {
  SlowMachine machine;
  Search search(9, arithmeticOps(), Precision::kF32);
  for (const Engine& engine : {machine.keeping(), cpuEngine(Precision::kF32)}) {
    const Dataset data = engine.upload(search.w.view()).value(), other = engine.upload(search.w.view()).value();
    const Program program = engine.compile(search.w.expressions, {.data = &data});
    EXPECT_TRUE(engine.loss(program, data, search.w.parameters).ok());
    const auto refused = engine.loss(program, other, search.w.parameters);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kInvalid);
    EXPECT_EQ(refused.error().message, "a program that was made for another data set (CompileOptions::data)");
  }
}

TEST(KeptSubtrees, BelongToOneEngine) {
  Keeping keeping;
  auto& [machine, search, engine, data] = keeping;
  const Engine other = machine.keeping();
  for (int generation = 0; generation < 3; ++generation) evaluated(engine, data, search.w);
  const Program reading = evaluated(engine, data, search.w);
  ASSERT_GT(reading.info().subtrees_read, 0U);
  EXPECT_EQ(evaluated(other, data, search.w).info().subtrees_read, 0U) << "another stream fills them";
  const auto refused = other.loss(reading, data, search.w.parameters);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "a program that reads kept subtrees, made by another engine");
}

TEST(KeptSubtrees, NeedResidentDeviceData) {
  SlowMachine machine;
  const Engine engine = machine.engine({.math = Math::kStrict,
                                        .cache_directory = machine.directory.path(""),
                                        .device_bytes = 1,
                                        .subtree_bytes = kKeptBudget});
  Search search(9, arithmeticOps(), Precision::kF32);
  const Dataset data = engine.upload(search.w.view()).value();
  const Engine cpu =
      Engine::create({.device = "cpu", .math = Math::kStrict, .threads = 2, .subtree_bytes = kKeptBudget}).value();
  const Dataset on_cpu = cpu.upload(search.w.view()).value();
  const auto expectNone = [&search](const Engine& on, const Dataset& rows, const char* why) {
    const ProgramInfo info = evaluated(on, rows, search.w).info();
    EXPECT_EQ(info.subtrees_read, 0U) << why;
    EXPECT_EQ(info.nodes_spared, 0U) << why;
    const SubtreeStats stats = rows.subtrees();
    EXPECT_EQ(stats.capacity + stats.kept + stats.bytes + stats.computed + stats.reads, 0U) << why;
  };
  for (int generation = 0; generation < 4; ++generation, search.next()) {
    expectNone(engine, data, "rows are streamed");
    expectNone(cpu, on_cpu, "there is no device");
    expectSameBits(predict(cpu, cpu.compile(search.w.expressions, {.data = &on_cpu}), on_cpu, search.w.parameters),
                   predict(engine, engine.compile(search.w.expressions, {.data = &data}), data, search.w.parameters),
                   kKeptRows, "streamed and on the processor");
  }
}

TEST(KeptSubtrees, AreOmittedWithoutMemory) {
  SlowMachine machine;
  Search search(11, arithmeticOps(), Precision::kF32);
  {
    const Engine engine = machine.keeping();
    // Fails the allocation with spare columns, and its retry after idle memory was released.
    machine.driver.failAt("cuMemAllocFromPoolAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
    machine.driver.failAt("cuMemAllocFromPoolAsync", 2, CUDA_ERROR_OUT_OF_MEMORY);
    const Dataset data = engine.upload(search.w.view()).value();
    EXPECT_EQ(data.subtrees().capacity, 0U);
    for (int generation = 0; generation < 4; ++generation) evaluated(engine, data, search.w);
  }
}

/// For a failure of any call while values are computed, the program computes them itself, and the next program tries
/// again.
TEST(KeptSubtrees, FailedComputationsAreNotKept) {
  std::size_t without = 0, refused = 0, cases = 0;
  for (const char* const entry : {"cuMemAllocFromPoolAsync", "cuMemHostAlloc", "cuMemcpyHtoDAsync", "cuLaunchKernel",
                                  "cuModuleLoadDataEx", "cuEventCreate", "cuEventRecord", "cuStreamSynchronize"}) {
    for (std::size_t n = 1; n <= 3; ++n) {
      Keeping keeping(11);
      auto& [machine, search, engine, data] = keeping;
      for (int generation = 0; generation < 2; ++generation, search.next()) {
        engine.compile(search.w.expressions, {.tier = Tier::kInterpret, .data = &data});
      }
      const Program plain = engine.compile(search.w.expressions, {.tier = Tier::kInterpret});
      const Losses expected = engine.loss(plain, data, search.w.parameters).value();
      machine.driver.forgetCalls();
      machine.driver.failAt(entry, n, CUDA_ERROR_LAUNCH_FAILED);
      const Program program = engine.compile(search.w.expressions, {.tier = Tier::kInterpret, .data = &data});
      ++cases;
      without += program.failures().empty() && program.info().subtrees_read == 0 ? 1 : 0;
      // Later failures are those of compilation or evaluation, and are reported.
      std::optional<Program> whole = program;
      if (!program.failures().empty()) {
        ++refused;
        EXPECT_EQ(program.failures().size(), search.w.expressions.size());
        EXPECT_NE(program.failures()[0].error.message.find(entry), std::string::npos) << entry << " " << n;
        whole = engine.compile(search.w.expressions, {.tier = Tier::kInterpret, .data = &data});
      }
      auto losses = engine.loss(*whole, data, search.w.parameters);
      if (!losses) {
        ++refused;
        EXPECT_NE(losses.error().message.find(entry), std::string::npos) << losses.error().message;
        losses = engine.loss(*whole, data, search.w.parameters);
      }
      ASSERT_TRUE(losses.ok()) << entry << " " << n << ": " << losses.error().message;
      expectSameLosses(*losses, expected, entry);
      search.next();
      // The entry was called fewer than n times, so the failure is still pending.
      if (machine.driver.count(entry) < n) continue;
      engine.compile(search.w.expressions, {.tier = Tier::kInterpret, .data = &data});
      search.next();
      EXPECT_GT(evaluated(engine, data, search.w).info().subtrees_read, 0U) << entry << " " << n;
    }
  }
  EXPECT_GT(without, 6U) << "some of these calls compute values";
  EXPECT_LT(refused, cases / 2) << "other calls are few";
}

// More rows than the smallest chunk of predictions: a transient lack of memory must not split a column.
TEST(KeptSubtrees, ColumnsAreWrittenWholeOrNotKept) {
  constexpr std::size_t kManyRows = 3000;
  std::size_t read = 0, compared = 0;
  for (const char* const entry : {"cuMemHostAlloc", "cuMemAllocFromPoolAsync"}) {
    for (std::size_t n = 1; n <= 6; ++n) {
      SlowMachine machine;
      const Engine engine = machine.keeping();
      Search search(11, arithmeticOps(), Precision::kF32);
      Random values(12);
      search.w.columns = randomColumns(values, 5, kManyRows, Spread::kTame, Precision::kF32);
      search.w.target = randomColumns(values, 1, kManyRows, Spread::kTame, Precision::kF32)[0];
      const Dataset data = engine.upload(search.w.view()).value();
      for (int generation = 0; generation < 2; ++generation, search.next()) {
        engine.compile(search.w.expressions, {.tier = Tier::kInterpret, .data = &data});
      }
      machine.driver.forgetCalls();
      for (const std::size_t call : {n, n + 1}) machine.driver.failAt(entry, call, CUDA_ERROR_OUT_OF_MEMORY);
      engine.compile(search.w.expressions, {.tier = Tier::kInterpret, .data = &data});
      search.next();
      const Program program = engine.compile(search.w.expressions, {.tier = Tier::kInterpret, .data = &data});
      const Program plain = engine.compile(search.w.expressions, {.tier = Tier::kInterpret});
      if (!program.failures().empty() || !plain.failures().empty()) continue;  // the failure is in one of these
      read += program.info().subtrees_read;
      const auto retried = [&](const Program& evaluated) {
        const auto losses = engine.loss(evaluated, data, search.w.parameters);
        return losses ? *losses : engine.loss(evaluated, data, search.w.parameters).value();
      };
      const Losses kept = retried(program);
      expectSameLosses(kept, retried(plain), entry);
      ++compared;
    }
  }
  EXPECT_GT(read, 0U);
  EXPECT_GT(compared, 8U);
}

TEST(KeptSubtrees, AreSharedByThreads) {
  SlowMachine machine;
  const Engine engine = machine.keeping(6 * kKeptStride * sizeof(float));
  Search common(13, arithmeticOps(), Precision::kF32);
  const Dataset data = engine.upload(common.w.view()).value();
  std::vector<std::thread> threads;
  std::atomic<std::size_t> read = 0;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Search search(13, arithmeticOps(), Precision::kF32);
      search.random = Random(t);
      for (int generation = 0; generation < 8; ++generation, search.next()) {
        read += evaluated(engine, data, search.w, t == 0 ? Tier::kDirect : Tier::kInterpret).info().subtrees_read;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(read.load(), 0U);
  EXPECT_EQ(data.subtrees().reads, read.load());
}

}  // namespace
}  // namespace srjit

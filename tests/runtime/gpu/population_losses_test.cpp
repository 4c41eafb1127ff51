// Losses of a population in one call: its parts give what the whole does, and the device works meanwhile.
#include <algorithm>

#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/device_engine.h"
#include "tests/runtime/gpu/failing_memory.h"

namespace srjit {
namespace {

TokenArrays arraysOf(std::span<const Expression> expressions) {
  TokenArrays arrays;
  for (const Expression& expression : expressions) arrays.addPostfix(expression);
  return arrays;
}

void expectSameFailures(const Losses& a, const Losses& b) {
  ASSERT_EQ(a.failures.size(), b.failures.size());
  for (std::size_t f = 0; f < a.failures.size(); ++f) {
    EXPECT_EQ(a.failures[f].expression, b.failures[f].expression);
    EXPECT_EQ(a.failures[f].error.message, b.failures[f].error.message);
    EXPECT_EQ(a.failures[f].error.code, b.failures[f].error.code);
  }
}

/// 200 expressions; at 50 one that is not valid, at 99 and at the end one of a column that the data lack.
struct Mixture {
  Workload w = arithmeticWorkload(61, 200, 150, Precision::kF32, true);
  TokenArrays arrays;

  Mixture() {
    for (std::size_t e = 0; e < w.expressions.size(); ++e) {
      arrays.addPostfix(w.expressions[e]);
      if (e == 49) arrays.add(Token::operation(Op::kNeg));
      if (e == 97 || e == 199) arrays.add(Token::variable(77));
      if (e == 49 || e == 97 || e == 199) arrays.end();
    }
  }
};

TEST(PopulationLosses, DoNotDependOnTheDivision) {
  const Mixture mixture;
  const Workload& w = mixture.w;
  const Engine cpu = cpuEngine(Precision::kF32);
  const Dataset on_cpu = cpu.upload(w.view()).value();
  for (const auto& [kind, nan] :
       {std::pair(LossKind::kRmse, NanPolicy::kPropagate), std::pair(LossKind::kRmse, NanPolicy::kSkip),
        std::pair(LossKind::kScaledMse, NanPolicy::kSkip), std::pair(LossKind::kHuber, NanPolicy::kPropagate)}) {
    const LossOptions options{.kind = kind, .nan = nan};
    const Losses expected = cpu.loss(cpu.compile(mixture.arrays.view()).value(), on_cpu, w.parameters, options).value();
    ASSERT_EQ(expected.failures.size(), 3U);
    for (const std::size_t parts : {0, 1, 2, 3, 7, 64, 1000}) {
      for (const Tier tier : {Tier::kInterpret, Tier::kCompile, Tier::kAuto}) {
        FakeMachine machine({.lag = true});
        machine.population_parts = parts;
        const Engine gpu = machine.engine({.math = Math::kStrict, .tier = tier});
        const Dataset data = gpu.upload(w.view()).value();
        const Result<Losses> losses = gpu.loss(mixture.arrays.view(), data, w.parameters, options);
        ASSERT_TRUE(losses.ok()) << losses.error().message;
        expectSameLosses(*losses, expected, "in parts");
        expectSameFailures(*losses, expected);
        if (parts > 7) break;  // one tier is enough for many launches
      }
    }
  }
}

TEST(PopulationLosses, PartsHaveDirectCodeOfTheirOwn) {
  const Workload w = arithmeticWorkload(61, 120, 150, Precision::kF32);
  const TokenArrays arrays = arraysOf(w.expressions);
  FakeMachine machine({.lag = true});
  machine.population_parts = 3;
  const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kDirect});
  const Dataset data = gpu.upload(w.view()).value();
  const Program whole = gpu.compile(arrays.view()).value();
  const Losses expected = gpu.loss(whole, data, w.parameters).value();
  ASSERT_GT(whole.status().served.direct, 100U);
  machine.driver.forgetCalls();
  expectSameLosses(gpu.loss(arrays.view(), data, w.parameters).value(), expected, "direct code");
  EXPECT_EQ(machine.driver.count("cuModuleLoadDataEx"), 3U);
}

TEST(PopulationLosses, AreThoseOfTheProcessorToo) {
  const Mixture mixture;
  const Engine cpu = cpuEngine(Precision::kF32);
  const Dataset data = cpu.upload(mixture.w.view()).value();
  const Losses expected = cpu.loss(cpu.compile(mixture.arrays.view()).value(), data, mixture.w.parameters).value();
  const Losses losses = cpu.loss(mixture.arrays.view(), data, mixture.w.parameters).value();
  expectSameLosses(losses, expected, "processor");
  expectSameFailures(losses, expected);
  EXPECT_TRUE(cpu.loss(PopulationView{}, data, {}).value().values.empty());
}

TEST(PopulationLosses, OfAnotherEnginesDataAreAnError) {
  const Workload w = arithmeticWorkload(64, 5, 80, Precision::kF32);
  const TokenArrays arrays = arraysOf(w.expressions);
  FakeMachine machine;
  const Engine gpu = machine.engine({.math = Math::kStrict}), cpu = cpuEngine(Precision::kF32);
  const Dataset on_cpu = cpu.upload(w.view()).value();
  for (const LossKind kind : {LossKind::kMse, LossKind::kHuber, LossKind::kScaledMse}) {
    const Result<Losses> losses = gpu.loss(arrays.view(), on_cpu, w.parameters, {.kind = kind});
    ASSERT_FALSE(losses.ok());
    EXPECT_EQ(losses.error().code, Errc::kInvalid);
  }
}

TEST(PopulationLosses, PrefixAndConstantsAreDividedToo) {
  const Workload w = arithmeticWorkload(62, 60, 80, Precision::kF32);
  TokenArrays prefix;
  for (const Expression& expression : w.expressions) prefix.addPrefix(expression);
  FakeMachine machine;
  machine.population_parts = 5;
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Dataset data = gpu.upload(w.view()).value();
  expectSameLosses(gpu.loss(prefix.view(Notation::kPrefix), data, w.parameters).value(),
                   lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {}), "prefix");
}

TEST(PopulationLosses, TheDeviceComputesWhileTheRestIsPrepared) {
  const Workload w = arithmeticWorkload(63, 90, 100, Precision::kF32);
  const TokenArrays arrays = arraysOf(w.expressions);
  for (const std::size_t parts : {1, 3}) {
    FakeMachine machine({.lag = true});
    machine.population_parts = parts;
    const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
    const Dataset data = gpu.upload(w.view()).value();
    const auto isCopy = [](const FakeCall& call) { return call.entry == "cuMemcpyHtoDAsync"; };
    const std::vector<FakeCall> before = machine.driver.calls();
    const std::uint64_t uploads = std::ranges::find_if(before, isCopy)->stream;
    machine.driver.forgetCalls();
    Pending<Losses> pending = gpu.submitLoss(arrays.view(), data, w.parameters).value();
    EXPECT_FALSE(pending.ready());
    const std::vector<FakeCall> calls = machine.driver.calls();
    const auto kernel = std::ranges::find(calls, std::string_view("cuLaunchKernel"), &FakeCall::entry);
    const bool overlaps =
        std::any_of(kernel, calls.end(), [&](const FakeCall& call) { return isCopy(call) && call.stream == uploads; });
    EXPECT_EQ(overlaps, parts == 3);
    pending.wait();
    EXPECT_TRUE(pending.ready());
    EXPECT_EQ(std::move(pending).result().value().values.size(), w.expressions.size());
  }
}

TEST(PopulationLosses, ArraysAndParametersMayGoAfterTheCall) {
  FakeMachine machine({.lag = true});
  machine.population_parts = 3;
  const Workload w = arithmeticWorkload(64, 90, 100, Precision::kF32);
  std::optional<Pending<Losses>> pending;
  {
    const Engine gpu = machine.engine({.math = Math::kStrict});
    const Dataset data = gpu.upload(w.view()).value();
    const TokenArrays arrays = arraysOf(w.expressions);
    const std::vector<double> parameters = w.parameters;
    pending = gpu.submitLoss(arrays.view(), data, parameters).value();
    const Pending<Losses> not_taken = gpu.submitLoss(arrays.view(), data, parameters).value();
  }
  expectSameLosses(std::move(*pending).result().value(), lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {}),
                   "after the engine");
}

TEST(PopulationLosses, ErrorsOfTheCallAreThoseOfTheWhole) {
  const Workload w = arithmeticWorkload(65, 40, 60, Precision::kF32);
  const TokenArrays arrays = arraysOf(w.expressions);
  for (const std::size_t parts : {1, 4}) {
    FakeMachine machine({.lag = true});
    machine.population_parts = parts;
    const Engine gpu = machine.engine({.math = Math::kStrict});
    const Dataset data = gpu.upload(w.view()).value();
    std::vector<double> parameters = w.parameters;
    parameters.push_back(1);
    const std::string all = std::to_string(w.parameters.size());
    const auto messageOf = [&](std::span<const double> given, const Dataset& of) {
      const Result<Losses> losses = gpu.loss(arrays.view(), of, given);
      return losses.ok() ? std::string() : losses.error().message;
    };
    EXPECT_EQ(messageOf(parameters, data),
              std::to_string(parameters.size()) + " parameters, but the program has " + all);
    EXPECT_EQ(messageOf(std::span(parameters).first(3), data), "3 parameters, but the program has " + all);
    EXPECT_EQ(messageOf(w.parameters, gpu.upload({.columns = w.view().columns}).value()),
              "a loss of data without a target");
    const std::vector<std::int64_t> wrong{0, 5, 3};
    EXPECT_FALSE(gpu.loss(PopulationView{arrays.codes, arrays.constants, wrong}, data, w.parameters).ok());
    EXPECT_EQ(messageOf(w.parameters, data), "") << "and the engine goes on";
  }
}

TEST(PopulationLosses, ALostDeviceIsAnErrorOfTheCall) {
  const Workload w = arithmeticWorkload(66, 60, 100, Precision::kF32);
  const TokenArrays arrays = arraysOf(w.expressions);
  for (const std::size_t kernel : {1, 3, 6}) {  // two of each part
    for (const bool lag : {false, true}) {
      FakeMachine machine({.lag = lag});
      machine.population_parts = 3;
      const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
      const Dataset data = gpu.upload(w.view()).value();
      machine.driver.failKernel(kernel, CUDA_ERROR_ILLEGAL_ADDRESS);
      const Result<Losses> losses = gpu.loss(arrays.view(), data, w.parameters);
      ASSERT_FALSE(losses.ok());
      EXPECT_EQ(losses.error().code, Errc::kMachine);
      EXPECT_NE(losses.error().message.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
    }
  }
}

TEST(PopulationLosses, NoMemoryForTheResultFailsOneCall) {
  if (!kMemoryCanFail) GTEST_SKIP() << "allocations belong to the sanitizer";
  constexpr std::size_t kExpressions = 1237;  // so that nothing else is as large
  FakeMachine machine({.lag = true});
  machine.population_parts = 3;
  const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
  const Workload w = arithmeticWorkload(67, kExpressions, 100, Precision::kF32);
  const TokenArrays arrays = arraysOf(w.expressions);
  const Dataset data = gpu.upload(w.view()).value();
  const Losses expected = gpu.loss(arrays.view(), data, w.parameters).value();
  auto pending = gpu.submitLoss(arrays.view(), data, w.parameters).value();
  {
    const FailingMemory failing(kExpressions * sizeof(double), 1);
    const Result<Losses> losses = std::move(pending).result();
    ASSERT_TRUE(failing.failed());
    ASSERT_FALSE(losses.ok());
    EXPECT_EQ(losses.error().code, Errc::kMachine);
  }
  expectSameLosses(gpu.loss(arrays.view(), data, w.parameters).value(), expected, "afterwards");
}

TEST(PopulationLosses, WithKeptSubtreesAPopulationIsOneGeneration) {
  const Workload w = arithmeticWorkload(68, 150, 300, Precision::kF32);
  const TokenArrays arrays = arraysOf(w.expressions);
  const Losses expected = lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {});
  for (const std::size_t parts : {0, 3}) {
    FakeMachine machine;
    machine.population_parts = parts;
    const Engine gpu = machine.engine({.math = Math::kStrict, .subtree_bytes = std::uint64_t{1} << 20});
    const Dataset data = gpu.upload(w.view()).value();
    for (int generation = 0; generation < 4; ++generation) {
      expectSameLosses(gpu.loss(arrays.view(), data, w.parameters).value(), expected, "kept subtrees");
    }
  }
}

TEST(PopulationLosses, ThePartsAreOneGenerationOfRecurringIndividuals) {
  GeneratorOptions options{.seed = 69, .min_nodes = 20, .max_nodes = 60, .variables = 5, .ops = arithmeticOps()};
  const Workload w = Workload::random(options, 900, 50, Spread::kTame, Precision::kF32);
  const TokenArrays arrays = arraysOf(w.expressions);
  FakeMachine machine;
  machine.population_parts = 4;
  const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
  const Dataset data = gpu.upload(w.view()).value();
  const Losses first = gpu.loss(arrays.view(), data, w.parameters).value();
  const Program second = gpu.compile(arrays.view()).value();
  EXPECT_EQ(second.info().recurring, w.expressions.size());
  expectSameLosses(gpu.loss(second, data, w.parameters).value(), first, "copies");
  expectSameLosses(gpu.loss(arrays.view(), data, w.parameters).value(), first, "copies in parts");
}

}  // namespace
}  // namespace srjit

// Results of engines on several devices: the bits of one device.
#include <gmock/gmock.h>

#include "runtime/pool/program.h"
#include "tests/generators/derivatives.h"
#include "tests/generators/scratch.h"
#include "tests/gpu_model/direct_machine.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

class ManyDevices : public testing::TestWithParam<std::size_t> {
 protected:
  ManyDevices() : machine_(manyDevices(GetParam())) {}
  EngineOptions strict(Precision precision = Precision::kF32, Tier tier = Tier::kAuto) const {
    return {.device = "cuda:all", .precision = precision, .math = Math::kStrict, .tier = tier};
  }
  Engine many(const EngineOptions& options) { return machine_.engine(options); }
  Engine one(EngineOptions options) {
    options.device = "cuda:0";
    return machine_.engine(options);
  }

  FakeMachine machine_;
};

INSTANTIATE_TEST_SUITE_P(, ManyDevices, testing::Values(1, 2, 3, 8),
                         [](const auto& tested) { return "Of" + std::to_string(tested.param); });

TEST_P(ManyDevices, LossesAndPredictions) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    const Workload w = arithmeticWorkload(GetParam(), 30, 300, precision, true);
    const Engine all = many(strict(precision)), single = one(strict(precision));
    expectSameBits(predict(all, w, Tier::kInterpret), predict(single, w, Tier::kInterpret), w.rows(), "predictions");
    for (const NanPolicy nan : kNanPolicies) {
      const LossOptions options{.kind = LossKind::kRmse, .nan = nan};
      expectSameLosses(lossesOf(all, w, Tier::kInterpret, options), lossesOf(single, w, Tier::kInterpret, options),
                       "losses");
    }
    const LossOptions scaled{.kind = LossKind::kScaledMse, .nan = NanPolicy::kSkip};
    expectSameLosses(lossesOf(all, w, Tier::kInterpret, scaled), lossesOf(single, w, Tier::kInterpret, scaled),
                     "losses of graphs");
  }
}

// Direct code is proved once for each kind of device: of four devices two are alike each. What a second engine launches
// is what the first one launches without the self-tests.
TEST(ManyDevicesTiersSlow, HaveTheSameBits) {
  FakeMachine machine(manyDevices(4));
  const Scratch directory;
  const Workload w = arithmeticWorkload(9, 24, 130, Precision::kF32);
  const Engine cpu = cpuEngine(Precision::kF32);
  const EngineOptions options{.device = "cuda:all", .math = Math::kStrict, .cache_directory = directory.path("")};
  const auto launches = [&](const Engine& engine) {
    machine.driver.forgetCalls();
    (void)lossesOf(engine, w, Tier::kDirect, {});
    return directCalls(machine.driver, "cuLaunchKernel");
  };
  const Engine all = machine.engine(options);
  const std::size_t first = launches(all), second = launches(machine.engine(options));
  EXPECT_GE(second, 4U) << "each device has a share";
  EXPECT_EQ(first, second + 2 * kSelfTestLaunches);
  const Dataset data = all.upload(w.view()).value();
  for (const Tier tier : {Tier::kDirect, Tier::kCompile}) {
    const Program program = all.compile(w.expressions, {.tier = tier});
    expectSameLosses(all.loss(program, data, w.parameters).value(), lossesOf(cpu, w, Tier::kInterpret, {}), "losses");
    expectSameBits(predict(all, program, data, w.parameters), predict(cpu, w, Tier::kInterpret), w.rows(),
                   "predictions");
    const ServedExpressions served = program.status().served;
    EXPECT_EQ(tier == Tier::kDirect ? served.direct : served.compiled, w.expressions.size());
    EXPECT_EQ(program.status().tier, tier);
  }
}

TEST_P(ManyDevices, EveryDeviceHasAShare) {
  const Engine all = many(strict());
  const Workload w = arithmeticWorkload(7, 64, 100, Precision::kF32);
  const Program program = all.compile(w.expressions);
  if (GetParam() == 1) return;
  const auto shares = poolProgramOf(program).shares();
  ASSERT_EQ(shares->size(), GetParam());
  for (std::size_t i = 0; i < shares->size(); ++i) {
    EXPECT_EQ((*shares)[i].device, i);
    EXPECT_TRUE((*shares)[i].program);
  }
  const Dataset data = all.upload(w.view()).value();
  EXPECT_TRUE(all.loss(program, data, w.parameters).ok());
  for (std::size_t i = 0; i < GetParam(); ++i) EXPECT_GT(machine_.driver.usedBytes(static_cast<int>(i)), 0U);
  const ProgramStatus status = program.status();
  EXPECT_EQ(status.evaluations, 1U);
  EXPECT_EQ(status.served.interpreted + status.served.direct + status.served.compiled, 64U);
  EXPECT_EQ(status.tier, Tier::kInterpret);
  EXPECT_GT(program.info().nodes_after, 64U);
}

TEST_P(ManyDevices, DerivativesAndFits) {
  const Engine all = many(strict()), single = one(strict());
  const Workload w = arithmeticWorkload(11, 20, 150, Precision::kF32, true);
  for (const DerivativesBy by : {DerivativesBy::kParameters, DerivativesBy::kVariables}) {
    expectSameBits(jacobianOf(all, w, Tier::kInterpret, by), jacobianOf(single, w, Tier::kInterpret, by), w.rows(),
                   "jacobian");
    for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
      const GradientOptions options{.loss = {.nan = nan}, .by = by};
      expectSameGradients(gradientsOf(all, w, Tier::kInterpret, options),
                          gradientsOf(single, w, Tier::kInterpret, options), "gradient");
    }
  }
  const auto fitsOn = [&](const Engine& engine, const FitOptions& options, std::span<const double> starts) {
    const Dataset data = engine.upload(w.view()).value();
    return engine.fit(engine.compile(w.expressions), data, starts, options).value();
  };
  std::vector<double> starts = w.parameters;
  for (const double parameter : w.parameters) starts.push_back(0.5 * parameter + 0.1);
  for (const LossKind kind : {LossKind::kMse, LossKind::kMae, LossKind::kScaledMse}) {
    const FitOptions options{.loss = {.kind = kind}, .iterations = 8};
    expectSameFits(fitsOn(all, options, starts), fitsOn(single, options, starts));
  }
}

TEST_P(ManyDevices, SubmittedEvaluations) {
  const Engine all = many(strict()), single = one(strict());
  const Workload w = arithmeticWorkload(13, 25, 200, Precision::kF32);
  const Program program = all.compile(w.expressions);
  const Dataset data = all.upload(w.view()).value();
  std::vector<Pending<Losses>> losses;
  for (int i = 0; i < 3; ++i) {
    std::vector<double> borrowed = w.parameters;
    losses.push_back(all.submitLoss(program, data, borrowed).value());
    std::ranges::fill(borrowed, 0.0);
  }
  std::vector<float> out(w.expressions.size() * w.rows());
  auto predictions = all.submitEvaluate(program, data, w.parameters, std::span<float>(out)).value();
  auto gradients = all.submitGradient(program, data, w.parameters).value();
  auto fits = all.submitFit(program, data, w.parameters, {.iterations = 4}).value();
  const Losses expected = lossesOf(single, w, Tier::kAuto, {});
  for (Pending<Losses>& pending : losses) {
    pending.wait();
    EXPECT_TRUE(pending.ready());
    expectSameLosses(std::move(pending).result().value(), expected, "submitted");
  }
  EXPECT_TRUE(std::move(predictions).result().value().empty());
  expectSameBits(std::vector<double>(out.begin(), out.end()), predict(single, w, Tier::kAuto), w.rows(), "submitted");
  expectSameGradients(std::move(gradients).result().value(), gradientsOf(single, w, Tier::kAuto, {}), "submitted");
  const Dataset on_one = single.upload(w.view()).value();
  expectSameFits(std::move(fits).result().value(),
                 single.fit(single.compile(w.expressions), on_one, w.parameters, {.iterations = 4}).value());
}

// Expressions that fail lie in different shares: one that is not valid, and some of a column that the data lack.
TEST_P(ManyDevices, PopulationsWithFailures) {
  const Workload w = arithmeticWorkload(61, 80, 150, Precision::kF32, true);
  TokenArrays arrays;
  for (std::size_t e = 0; e < w.expressions.size(); ++e) {
    arrays.addPostfix(w.expressions[e]);
    if (e == 9) arrays.add(Token::operation(Op::kNeg));
    if (e == 40 || e == 79) arrays.add(Token::variable(77));
    if (e == 9 || e == 40 || e == 79) arrays.end();
  }
  for (const std::size_t parts : {0, 1, 3}) {
    machine_.population_parts = parts;
    const Engine all = many(strict()), single = one(strict());
    const Dataset data = all.upload(w.view()).value(), on_one = single.upload(w.view()).value();
    for (const LossKind kind : {LossKind::kMse, LossKind::kCorrelation}) {
      const LossOptions options{.kind = kind, .nan = NanPolicy::kSkip};
      const Losses losses = all.loss(arrays.view(), data, w.parameters, options).value();
      const Losses expected = single.loss(arrays.view(), on_one, w.parameters, options).value();
      ASSERT_EQ(expected.failures.size(), 3U);
      expectSameLosses(losses, expected, "of a population");
      expectSameReasons(losses.failures, expected.failures);
    }
    const Program program = all.compile(arrays.view()).value(), of_one = single.compile(arrays.view()).value();
    std::vector<Failure> failures, expected;
    expectSameBits(predict(all, program, data, w.parameters, &failures),
                   predict(single, of_one, on_one, w.parameters, &expected), w.rows(), "with failures");
    expectSameReasons(failures, expected);
  }
}

TEST_P(ManyDevices, SeveralVectorsOfParameters) {
  const Engine all = many(strict()), single = one(strict());
  const Workload w = arithmeticWorkload(17, 20, 100, Precision::kF32);
  std::vector<double> vectors;
  for (int i = 0; i < 5; ++i) {
    for (const double parameter : w.parameters) vectors.push_back(parameter + 0.25 * i);
  }
  const auto lossesOn = [&](const Engine& engine) {
    const Dataset data = engine.upload(w.view()).value();
    return engine.loss(engine.compile(w.expressions), data, vectors).value();
  };
  expectSameLosses(lossesOn(all), lossesOn(single), "of vectors");
}

TEST_P(ManyDevices, FewExpressionsOrNone) {
  const Engine all = many(strict()), single = one(strict());
  for (const std::size_t count : {0, 1, 2, 5}) {
    const Workload w = arithmeticWorkload(19, count, 60, Precision::kF32);
    expectSameLosses(lossesOf(all, w, Tier::kAuto, {}), lossesOf(single, w, Tier::kAuto, {}), "few");
    expectSameBits(predict(all, w, Tier::kAuto), predict(single, w, Tier::kAuto), w.rows(), "few");
    const Dataset data = all.upload(w.view()).value();
    const Program program = all.compile(w.expressions);
    EXPECT_TRUE(all.prepare(program, data, LossOptions{}).ok());
    EXPECT_EQ(all.gradient(program, data, w.parameters).value().losses.values.size(), count);
  }
}

TEST_P(ManyDevices, SelectedData) {
  const Engine all = many(strict()), single = one(strict());
  const Workload w = arithmeticWorkload(23, 15, 700, Precision::kF32, true);
  const Dataset data = all.upload(w.view()).value(), on_one = single.upload(w.view()).value();
  EXPECT_EQ(data.rowGroups(), on_one.rowGroups());
  const Program program = all.compile(w.expressions), of_one = single.compile(w.expressions);
  const std::vector<double> heavy(w.rows(), 2.5);
  const auto expectSame = [&](const auto& select) {
    const Dataset some = select(all, data), expected = select(single, on_one);
    ASSERT_EQ(some.rows(), expected.rows());
    expectSameLosses(all.loss(program, some, w.parameters).value(), single.loss(of_one, expected, w.parameters).value(),
                     "selected");
  };
  expectSame([](const Engine& e, const Dataset& d) { return e.rows(d, 100, 317).value(); });
  expectSame([](const Engine& e, const Dataset& d) { return e.sample(d, 3, 42).value(); });
  expectSame([&](const Engine& e, const Dataset& d) { return e.withWeights(d, heavy).value(); });
  const std::vector<double> zeros(w.rows(), 0.0);
  EXPECT_EQ(all.withWeights(data, zeros).error().message, "the weights are all zero");
  EXPECT_EQ(all.rows(data, 699, 2).error().code, Errc::kInvalid);
}

TEST_P(ManyDevices, ErrorsOfArgumentsAreThoseOfOneDevice) {
  const Engine all = many(strict());
  Workload w = arithmeticWorkload(29, 6, 50, Precision::kF32);
  const Dataset data = all.upload(w.view()).value();
  const Program program = all.compile(w.expressions);
  EXPECT_EQ(all.loss(program, data, {}).error().code, Errc::kInvalid);
  w.target[7] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(all.upload(w.view()).error().message, testing::HasSubstr("target nan in row 8"));
  if (GetParam() == 1) return;
  const Engine single = one(strict());
  EXPECT_THAT(single.loss(program, data, w.parameters).error().message, testing::HasSubstr("the engine's device is"));
}

TEST_P(ManyDevices, StreamedDataHaveTheSameBits) {
  EngineOptions options = strict();
  options.device_bytes = 300'000;
  const Engine all = many(options), single = one(options);
  const Workload w = arithmeticWorkload(5, 6, 3 * 4096 + 1777, Precision::kF32, true);
  expectSameLosses(lossesOf(all, w, Tier::kInterpret, {}), lossesOf(single, w, Tier::kInterpret, {}), "streamed");
  expectSameBits(predict(all, w, Tier::kInterpret), predict(single, w, Tier::kInterpret), w.rows(), "streamed");
}

}  // namespace
}  // namespace srjit

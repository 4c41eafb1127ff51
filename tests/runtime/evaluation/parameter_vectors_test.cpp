// Evaluations with several vectors of parameters at once: those of each vector alone.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/generators/graphs.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

constexpr std::size_t kVectors = 5;

struct Vectors {
  Workload w = withShares(arithmeticWorkload(81, 20, 300, Precision::kF64, true));
  std::vector<double> all;  ///< kVectors of them

  Vectors() {
    w.expressions.insert(w.expressions.begin() + 3,
                         build({Token::variable(70), Token::parameter(0), Token::operation(Op::kMul)}));
    std::size_t count = 0;
    for (const Expression& expression : w.expressions) count += expression.parameterCount();
    Random random(4);
    for (std::size_t i = 0; i < kVectors * count; ++i) all.push_back(random.between(-2.0, 2.0));
  }
  std::span<const double> of(std::size_t vector) const {
    const std::size_t count = all.size() / kVectors;
    return std::span(all).subspan(vector * count, count);
  }
};

void append(std::vector<double>& all, const std::vector<double>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

void expectThoseOfEachVector(const Engine& engine, Tier tier) {
  const Vectors v;
  const Dataset data = engine.upload(v.w.view()).value();
  const Program program = engine.compile(v.w.expressions, {.tier = tier});
  for (const LossOptions& loss : {LossOptions{}, LossOptions{.kind = LossKind::kHuber, .nan = NanPolicy::kSkip},
                                  LossOptions{.kind = LossKind::kScaledMse}}) {
    std::vector<double> losses, derivatives;
    for (std::size_t i = 0; i < kVectors; ++i) {
      const Gradients one = engine.gradient(program, data, v.of(i), {.loss = loss}).value();
      append(derivatives, one.derivatives);
      append(losses, engine.loss(program, data, v.of(i), loss).value().values);
    }
    const Losses together = engine.loss(program, data, v.all, loss).value();
    expectSameBits(together.values, losses, 1, "losses");
    ASSERT_EQ(together.failures.size(), kVectors);
    for (std::size_t i = 0; i < kVectors; ++i) EXPECT_EQ(together.failures[i].expression, i * program.size() + 3);
    expectSameBits(std::move(engine.submitLoss(program, data, v.all, loss).value()).result().value().values, losses, 1,
                   "submitted losses");
    expectSameBits(engine.gradient(program, data, v.all, {.loss = loss}).value().derivatives, derivatives, 1,
                   "derivatives");
  }
  std::vector<double> predictions(kVectors * program.size() * 300), expected;
  std::vector<double> jacobian(v.all.size() * 300), expected_jacobian;
  for (std::size_t i = 0; i < kVectors; ++i) {
    std::vector<double> one(program.size() * 300), columns(v.of(i).size() * 300);
    ASSERT_TRUE(engine.evaluate(program, data, v.of(i), std::span(one)).ok());
    append(expected, one);
    ASSERT_TRUE(engine.jacobian(program, data, v.of(i), std::span(columns)).ok());
    append(expected_jacobian, columns);
  }
  ASSERT_TRUE(engine.evaluate(program, data, v.all, std::span(predictions)).ok());
  expectSameBits(predictions, expected, 300, "predictions");
  ASSERT_TRUE(engine.jacobian(program, data, v.all, std::span(jacobian)).ok());
  expectSameBits(jacobian, expected_jacobian, 300, "derivatives of predictions");
}

TEST(ParameterVectors, HaveTheResultsOfEachOnTheProcessor) {
  expectThoseOfEachVector(cpuEngine(Precision::kF64), Tier::kInterpret);
  expectThoseOfEachVector(cpuEngine(Precision::kF64), Tier::kCompile);
}

TEST(ParameterVectors, HaveTheResultsOfEachOnAGpu) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.precision = Precision::kF64, .math = Math::kStrict});
  expectThoseOfEachVector(gpu, Tier::kInterpret);
}

TEST(ParameterVectors, AreOneLaunch) {
  const Vectors v;
  FakeMachine machine;
  const Engine gpu = machine.engine({.precision = Precision::kF64, .math = Math::kStrict, .tier = Tier::kInterpret});
  const Dataset data = gpu.upload(v.w.view()).value();
  std::vector<Expression> expressions = v.w.expressions;
  expressions.erase(expressions.begin() + 3);
  const Program program = gpu.compile(expressions);
  const std::vector<double> parameters(program.parameterOffset(program.size()) * 7, 0.5);
  ASSERT_TRUE(gpu.loss(program, data, parameters).ok());
  machine.driver.forgetCalls();
  ASSERT_TRUE(gpu.loss(program, data, parameters).ok());
  EXPECT_EQ(machine.driver.count("cuMemcpyHtoDAsync"), 1U);
  EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 2U) << "the programs and their totals";
}

TEST(ParameterVectors, OfNoParametersAreOne) {
  const Engine engine = cpuEngine(Precision::kF64);
  const Vectors v;
  const Dataset data = engine.upload(v.w.view()).value();
  const Program program = engine.compile(std::vector{build({Token::variable(0)})});
  EXPECT_EQ(engine.loss(program, data, {}).value().values.size(), 1U);
  EXPECT_TRUE(engine.gradient(program, data, {}).value().derivatives.empty());
  const std::vector<double> three(3);
  EXPECT_EQ(engine.loss(program, data, three).error().message, "3 parameters, but the program has 0");
}

TEST(ParameterVectors, MustBeWhole) {
  const Engine engine = cpuEngine(Precision::kF64);
  const Vectors v;
  const Dataset data = engine.upload(v.w.view()).value();
  const Program program = engine.compile(v.w.expressions);
  std::vector<double> parameters = v.all;
  parameters.pop_back();
  const std::string expected = std::to_string(parameters.size()) + " parameters, but the program has " +
                               std::to_string(program.parameterOffset(program.size()));
  EXPECT_EQ(engine.loss(program, data, parameters).error().message, expected);
  EXPECT_EQ(engine.gradient(program, data, parameters).error().message, expected);
}

}  // namespace
}  // namespace srjit

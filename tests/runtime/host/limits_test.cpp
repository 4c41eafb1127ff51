// Limits of the engine (EngineOptions::limits) on the processor.
#include <chrono>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include <fmt/format.h>

#include "passes/pass.h"
#include "tests/generators/long_expressions.h"
#include "tests/generators/token_arrays.h"
#include "tests/generators/workload.h"

namespace srjit {
namespace {

using testing::HasSubstr;

Engine limitedEngine(const Limits& limits, Tier tier = Tier::kInterpret) {
  return Engine::create({.device = "cpu", .precision = Precision::kF64, .tier = tier, .threads = 2, .limits = limits})
      .value();
}

Workload limitedWorkload(std::initializer_list<std::string_view> texts) {
  return {
      .expressions = infixes(texts), .columns = {{1, 2, 3, 4}, {4, 3, 2, 1}, {1, 1, 2, 2}}, .target = {1, 4, 9, 16}};
}

TEST(Limits, ACustomLossIsAnExpression) {
  const Engine engine = limitedEngine({.max_nodes = 5});
  const Workload w = limitedWorkload({"x0 + p0"});
  const auto [data, program] = prepared(engine, w);
  const std::vector<double> parameters = {1};
  EXPECT_TRUE(engine.loss(program, data, parameters, lossBy("abs(f - y)")));
  const LossOptions longer = lossBy("abs(f - y)^1.5");
  EXPECT_EQ(engine.loss(program, data, parameters, longer).error().code, Errc::kLimit);
  EXPECT_EQ(engine.gradient(program, data, parameters, {.loss = longer}).error().code, Errc::kLimit);
  EXPECT_EQ(engine.fit(program, data, parameters, {.loss = longer}).error().code, Errc::kLimit);
  EXPECT_EQ(engine.loss(tokensOf(infixes({"x0"})).view(), data, {}, longer).error().code, Errc::kLimit);
}

TEST(Limits, VectorsOfParametersAndDerivativesCount) {
  const Engine engine = limitedEngine({.max_call_nodes = 10});
  const auto [data, program] = prepared(engine, limitedWorkload({"p0*x0 + p1*x1"}));
  const std::vector<double> one = {1, 2}, two = {1, 2, 3, 4};
  EXPECT_TRUE(engine.loss(program, data, one));
  EXPECT_EQ(engine.loss(program, data, two).error().code, Errc::kLimit);
  std::string text = "p0";
  for (int p = 1; p < 5; ++p) text += "+p" + std::to_string(p);
  const Program of_many = engine.compile(infixes({text}));
  const std::vector<double> start(5, 1.0);
  EXPECT_TRUE(engine.gradient(of_many, data, start));
  const Result<Fits> fits = engine.fit(of_many, data, start);
  ASSERT_FALSE(fits) << "15 products of derivatives, and more";
  EXPECT_THAT(fits.error().message, HasSubstr("max_call_nodes"));
}

TEST(Limits, StartsOfAFitCount) {
  const Engine engine = limitedEngine({.max_call_nodes = 50});
  const Workload w = limitedWorkload({"p0*x0*x1*x2*x0", "p0+p1+p2+p3+p4"});
  const Dataset data = engine.upload(w.view()).value();
  const auto errorOf = [&](std::size_t expression, std::size_t values) {
    const Program program = engine.compile(std::span(w.expressions).subspan(expression, 1));
    const Result<Fits> fits = engine.fit(program, data, std::vector<double>(values, 1.0));
    return fits ? std::string() : fits.error().message;
  };
  EXPECT_EQ(errorOf(0, 5), "");
  EXPECT_THAT(errorOf(0, 6), HasSubstr("54 nodes")) << "9 nodes, of which the fit needs 3 sums";
  EXPECT_EQ(errorOf(1, 10), "");
  EXPECT_THAT(errorOf(1, 15), HasSubstr("63 nodes")) << "21 sums of 9 nodes";
}

TEST(Limits, AStopOfTheCallerEndsCalls) {
  std::stop_source source;
  const Engine engine = limitedEngine({}), stopped = engine.withLimits({.stop = source.get_token()}).value();
  const Workload w = limitedWorkload({"p0*x0 + p1*x1"});
  const auto [data, program] = prepared(engine, w);
  const std::vector<double> start = {1, 2};
  EXPECT_TRUE(stopped.loss(program, data, start));
  source.request_stop();
  const Error error = stopped.loss(program, data, start).error();
  EXPECT_EQ(error.code, Errc::kLimit);
  EXPECT_THAT(error.message, HasSubstr("stopped by the caller"));
  EXPECT_EQ(stopped.fit(program, data, start).error().code, Errc::kLimit);
  EXPECT_EQ(std::move(*stopped.submitFit(program, data, start)).result().error().code, Errc::kLimit);
  EXPECT_EQ(std::move(*stopped.submitLoss(program, data, start)).result().error().code, Errc::kLimit);
  ASSERT_EQ(stopped.compile(w.expressions).failures().size(), 1U);
  EXPECT_TRUE(engine.loss(program, data, start)) << "other handles of the engine are not stopped";
}

TEST(Limits, AStopEndsACallThatRuns) {
  std::stop_source source;
  const Engine engine = limitedEngine({}).withLimits({.stop = source.get_token()}).value();
  Workload w = limitedWorkload({});
  for (int e = 0; e < 20'000; ++e) {
    w.expressions.push_back(infix(fmt::format("sin(x0*{}) + exp(cos(x1) - x2)", e)));
  }
  w.columns.assign(3, std::vector<double>(100'000, 1.5));
  w.target.assign(100'000, 1);
  const auto [data, program] = prepared(engine, w);
  const auto begun = std::chrono::steady_clock::now();
  Result<Pending<Losses>> pending = engine.submitLoss(program, data, {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  source.request_stop();
  EXPECT_EQ((*std::move(pending)).result().error().code, Errc::kLimit);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20)) << "of minutes";
}

TEST(Limits, WhatIsKeptDoesNotWidenThem) {
  const Engine engine = limitedEngine({});
  const Engine few = engine.withLimits({.max_call_nodes = 5}).value();
  const Engine more = engine.withLimits({.max_call_nodes = 10}).value();
  const Workload w = limitedWorkload({"p0+p1+p2+p3+p4"});
  const auto [data, program] = prepared(engine, w);
  const std::vector<double> start(5, 1.0);
  for (const char* const when : {"before something is kept", "afterwards"}) {
    EXPECT_EQ(few.gradient(program, data, start).error().code, Errc::kLimit) << when;
    EXPECT_EQ(more.fit(program, data, start).error().code, Errc::kLimit) << when;
    EXPECT_TRUE(engine.gradient(program, data, start)) << when;
    EXPECT_TRUE(engine.fit(program, data, start)) << when;
  }
}

TEST(Limits, TimeIsLookedAtBetweenGraphs) {
  const auto sleep = [](const Dag& dag, const PassContext&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return dag;
  };
  ASSERT_TRUE(registerPass({"sleeping", sleep, Exactness::kExact, "a pass of a test"}).ok());
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    const Engine engine = limitedEngine({.max_seconds = 0.01}, tier);
    const Workload w = limitedWorkload({"x0 + x1", "x0*x1"});
    const Pipeline pipeline = Pipeline::parse("standard,sleeping,schedule", engine.options().math).value();
    const Program program = engine.compile(w.expressions, {.pipeline = pipeline});
    ASSERT_EQ(program.failures().size(), 2U);
    EXPECT_EQ(program.failures()[1].error.code, Errc::kLimit);
  }
}

TEST(Limits, OfAHandleAreItsOwn) {
  const Engine engine = limitedEngine({.max_nodes = 1});
  const Engine other = engine.withLimits({.max_nodes = 2, .max_seconds = 1000}).value();
  EXPECT_EQ(engine.options().limits.max_nodes, 1U);
  EXPECT_EQ(other.options().limits.max_nodes, 2U);
  EXPECT_EQ(other.options().device, "cpu");
  EXPECT_FALSE(engine.withLimits({.max_seconds = -1}));
  EXPECT_FALSE(Engine::create({.device = "cpu", .limits = {.max_seconds = -1}}));
}

TEST(Limits, ExpressionsLongerThanKernelsAreInterpretedOnTheProcessor) {
  for (const LongExpression& some : longExpressions()) {
    Workload w = limitedWorkload({});
    w.expressions = {some.expression};
    for (std::uint32_t p = 0; p < some.expression.parameterCount(); ++p) w.parameters.push_back(0.5);
    const Engine engine = limitedEngine({});
    const Dataset data = engine.upload(w.view()).value();
    const std::vector<double> expected = predict(engine, w, Tier::kInterpret);
    for (const Tier tier : kTiers) {
      const Program program = engine.compile(w.expressions, {.tier = tier, .expected_evaluations = 1e6});
      expectSameBits(predict(engine, program, data, w.parameters), expected, 4, some.name.c_str());
      EXPECT_EQ(program.status().served.compiled, 0U) << some.name << " " << nameOf(tier);
      EXPECT_TRUE(engine.gradient(program, data, w.parameters, {.by = DerivativesBy::kVariables})) << some.name;
    }
  }
}

}  // namespace
}  // namespace srjit

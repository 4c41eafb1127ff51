// Populations that the device encodes: the same programs as the host's, and what becomes of those that it leaves.
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/code/interpreted/device_encoding.h"
#include "runtime/code/makers.h"
#include "tests/generators/scratch.h"
#include "tests/runtime/tiers/encoding_machine.h"

namespace srjit {
namespace {

using testing::HasSubstr;

class DeviceEncoded : public testing::TestWithParam<std::tuple<Precision, Math>> {};

TEST_P(DeviceEncoded, HasTheBitsOfTheHosts) {
  const auto [precision, math] = GetParam();
  EncodingMachine machine;
  const Engine engine = machine.engine({.precision = precision, .math = math});
  const Workload w = populationOf(kEncoded, precision, 33);
  const Dataset data = engine.upload(w.view()).value();
  const Program on_host = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  EXPECT_EQ(on_host.info().encoded_on_device, 0u) << "nothing waits for the kernels";
  machine.allow();
  const Program on_device = encodedOnDevice(engine, w.expressions);
  const std::size_t encoded = on_device.info().encoded_on_device;
  EXPECT_GT(encoded, w.expressions.size() / 4);
  EXPECT_LT(encoded, w.expressions.size()) << "the host encodes a share, and long expressions";
  EXPECT_EQ(on_device.info().nodes_after, on_host.info().nodes_after);
  expectSameLosses(engine.loss(on_device, data, w.parameters).value(), engine.loss(on_host, data, w.parameters).value(),
                   "device and host");
  expectSameBits(predict(engine, on_device, data, w.parameters), predict(engine, on_host, data, w.parameters), w.rows(),
                 "predictions");
}

INSTANTIATE_TEST_SUITE_P(Modes, DeviceEncoded,
                         testing::Combine(testing::Values(Precision::kF32, Precision::kF64),
                                          testing::Values(Math::kStrict, Math::kPrecise, Math::kFast)));

/// All tests share one, which takes longer to make than a test takes.
class OneEncoding : public testing::Test {
 protected:
  static void SetUpTestSuite() { shared_ = std::make_unique<Encoding>(); }
  static void TearDownTestSuite() { shared_.reset(); }
  Program compile() const { return shared_->compile(); }

  static std::unique_ptr<Encoding> shared_;
  EncodingMachine& machine_ = shared_->machine_;
  const Workload& w_ = shared_->w_;
  const Engine& engine_ = shared_->engine_;
  const Dataset& data_ = shared_->data_;
  const Program &on_host_ = shared_->on_host_, &on_device_ = shared_->on_device_;
};
std::unique_ptr<Encoding> OneEncoding::shared_;

TEST_F(OneEncoding, TakesOtherParameters) {
  ASSERT_FALSE(w_.parameters.empty());
  std::vector<double> parameters = w_.parameters;
  for (int round = 0; round < 3; ++round) {
    for (double& parameter : parameters) parameter = static_cast<float>(0.5 - parameter);
    if (round == 1) parameters[parameters.size() / 3] = std::numeric_limits<double>::quiet_NaN();
    expectSameLosses(engine_.loss(on_device_, data_, parameters).value(),
                     engine_.loss(on_host_, data_, parameters).value(), "other parameters");
  }
}

TEST_F(OneEncoding, TakesSeveralVectorsOfParameters) {
  std::vector<double> parameters = w_.parameters;
  for (const double parameter : w_.parameters) parameters.push_back(static_cast<float>(1.5 * parameter));
  expectSameLosses(engine_.loss(on_device_, data_, parameters).value(),
                   engine_.loss(on_host_, data_, parameters).value(), "two vectors");
}

TEST_F(OneEncoding, HasTheDerivativesOfTheHosts) {
  machine_.driver.forgetCalls();
  const Gradients on_device = engine_.gradient(on_device_, data_, w_.parameters).value();
  EXPECT_EQ(machine_.launchesOf(kEncodeKernel), 0U) << "derivatives are the host's";
  const Gradients on_host = engine_.gradient(on_host_, data_, w_.parameters).value();
  expectSameBits(on_device.derivatives, on_host.derivatives, 1, "derivatives");
}

TEST_F(OneEncoding, IsOfLargePopulationsOfShortExpressionsAlone) {
  const std::span<const Expression> all = w_.expressions;
  const auto encoded = [&](std::span<const Expression> expressions, std::optional<Pipeline> pipeline = {}) {
    return engine_.compile(expressions, {.tier = Tier::kInterpret, .pipeline = std::move(pipeline)})
        .info()
        .encoded_on_device;
  };
  EXPECT_GT(encoded(all.first(kLeastEncodedOnDevice)), 0U);
  EXPECT_EQ(encoded(all.first(kLeastEncodedOnDevice - 1)), 0U);
  EXPECT_EQ(encoded(all, Pipeline::standard(Math::kPrecise)), 0U);
  EXPECT_EQ(encoded({}), 0U);
  // Fifteen tokens each, and then one more.
  std::vector<Expression> longer(kLeastEncodedOnDevice, infix("x0*x1+x0*x1+x0*x1+x0*x1"));
  ASSERT_EQ(longer[0].tokens().size(), 15U);
  EXPECT_GT(encoded(longer), 0U);
  longer.assign(longer.size(), infix("-(x0*x1+x0*x1+x0*x1+x0*x1)"));
  ASSERT_EQ(longer[0].tokens().size(), 16U);
  EXPECT_EQ(encoded(longer), 0U);
}

// Destroying an engine ends the background work that its population began.
TEST(DeviceEncoding, AnEngineMayEndBeforeItsKernelsAreThere) {
  const Workload w = populationOf(kEncoded);
  for (const bool are_allowed : {false, true}) {
    EncodingMachine machine;
    std::optional<Engine> engine = machine.engine();
    engine->compile(w.expressions, {.tier = Tier::kInterpret});
    const Program program = engine->compile(w.expressions, {.tier = Tier::kInterpret});
    std::thread allowing;
    if (are_allowed) {
      machine.allow();
    } else {
      waitUntil([&] { return machine.images->count("front end") == 1; });
      allowing = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        machine.allow();
      });
    }
    engine.reset();
    if (allowing.joinable()) allowing.join();
    EXPECT_EQ(program.info().encoded_on_device, 0U);
  }
}

TEST_F(OneEncoding, OfEnginesAtOnce) {
  const Losses expected = engine_.loss(on_host_, data_, w_.parameters).value();
  constexpr std::size_t kEngines = 2;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kEngines; ++i) {
    threads.emplace_back([&] {
      const Engine engine = machine_.engine();
      const Dataset data = engine.upload(w_.view()).value();
      for (int round = 0; round < 2; ++round) {
        const Program program = encodedOnDevice(engine, w_.expressions);
        expectSameLosses(engine.loss(program, data, w_.parameters).value(), expected, "at once");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(OneEncoding, OfOneEngineByThreadsAtOnce) {
  const Losses expected = engine_.loss(on_host_, data_, w_.parameters).value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const Program program = compile();
      EXPECT_TRUE(program.failures().empty()) << program.failures()[0].error.message;
      EXPECT_GT(program.info().encoded_on_device, 0U);
      expectSameLosses(engine_.loss(program, data_, w_.parameters).value(), expected, "at once");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DeviceEncoding, LeavesOutTokensThatAreNotValid) {
  EncodingMachine machine;
  const Engine engine = machine.engine();
  const Workload w = populationOf(kEncoded);
  const std::int32_t no_operator = 1'000'000;
  TokenArrays arrays;
  std::vector<std::size_t> bad;
  std::vector<double> parameters;
  for (std::size_t e = 0; e < w.expressions.size(); ++e) {
    // Among those of the device, and of the host.
    if (e % 97 != 5) {
      arrays.addPostfix(w.expressions[e]);
      for (std::uint32_t p = 0; p < w.expressions[e].parameterCount(); ++p) parameters.push_back(0.75);
      continue;
    }
    bad.push_back(e);
    if (e % 2 == 0) arrays.add(Token::variable(0));
    arrays.add(Token::operation(Op::kAdd));
    if (e % 3 == 0) arrays.codes.back() = no_operator;
    arrays.end();
  }
  const Dataset data = engine.upload(w.view()).value();
  const auto compile = [&] { return engine.compile(arrays.view(), {.tier = Tier::kInterpret}).value(); };
  const Program on_host = compile();
  machine.allow();
  const Program on_device = encodedBy(compile);
  ASSERT_EQ(on_device.failures().size(), bad.size());
  for (std::size_t f = 0; f < bad.size(); ++f) EXPECT_EQ(on_device.failures()[f].expression, bad[f]);
  expectSameReasons(on_device.failures(), on_host.failures());
  const Losses losses = engine.loss(on_device, data, parameters).value();
  expectSameLosses(losses, engine.loss(on_host, data, parameters).value(), "device and host");
  for (const std::size_t e : bad) EXPECT_TRUE(std::isnan(losses.values[e])) << e;
}

/// A balanced tree of 63 tokens.
Expression deepTree() {
  std::vector<Token> tree;
  for (std::uint32_t leaf = 0; leaf < 32; ++leaf) {
    tree.push_back(Token::variable(leaf % 2));
    for (std::uint32_t done = leaf, level = 0; done % 2 == 1; done /= 2, ++level) {
      tree.push_back(Token::operation(level % 2 == 0 ? Op::kPow : Op::kDiv));
    }
  }
  return build(tree);
}

// This device has no slot.
TEST(DeviceEncoding, WhatTheInterpreterRefusesFailsAsOnTheHost) {
  EncodingMachine machine({.devices = {FakeDevice{.shared_bytes_per_block = std::size_t{6} << 10}}});
  const Engine engine = machine.engine();
  Workload w = populationOf(kEncoded);
  for (std::size_t e = 3; e < w.expressions.size(); e += 500) w.expressions[e] = deepTree();
  drawParameters(w, Precision::kF32);
  const Dataset data = engine.upload(w.view()).value();
  const Program on_host = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  ASSERT_FALSE(on_host.failures().empty());
  EXPECT_EQ(on_host.failures()[0].error.code, Errc::kUnsupported);
  machine.allow();
  const Program on_device = encodedOnDevice(engine, w.expressions);
  expectSameReasons(on_device.failures(), on_host.failures());
  expectSameLosses(engine.loss(on_device, data, w.parameters).value(), engine.loss(on_host, data, w.parameters).value(),
                   "device and host");
  // Under Tier::kAuto they are compiled.
  EXPECT_TRUE(engine.compile(w.expressions).failures().empty());
}

TEST(DeviceEncoding, StagesTheColumnsThatAreUsed) {
  EncodingMachine machine;
  const Engine engine = machine.engine();
  GeneratorOptions options = *findPopulation("small", 9);
  options.variables = 4;
  Workload w = Workload::random(options, kEncoded, 33, Spread::kSpecial, Precision::kF32);
  Random random(9);
  w.columns = randomColumns(random, 5, 33, Spread::kSpecial, Precision::kF32);
  // Nobody reads x1, and only the host reads x4, at the end.
  for (std::size_t e = 0; e < w.expressions.size(); ++e) {
    std::vector<Token> tokens(w.expressions[e].tokens().begin(), w.expressions[e].tokens().end());
    for (Token& token : tokens) {
      if (token.kind != Token::Kind::kVariable) continue;
      if (token.index == 1) token.index = e + 50 < w.expressions.size() ? 0 : 4;
    }
    w.expressions[e] = build(tokens);
  }
  const Dataset data = engine.upload(w.view()).value();
  const Program on_host = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  machine.allow();
  const Program on_device = encodedOnDevice(engine, w.expressions);
  expectSameBits(predict(engine, on_device, data, w.parameters), predict(engine, on_host, data, w.parameters), w.rows(),
                 "columns");
}

TEST(DeviceEncoding, OfConstantsAloneNeedsNoColumn) {
  EncodingMachine machine;
  const Engine engine = machine.engine();
  const Workload few = populationOf(10);
  const Dataset data = engine.upload(few.view()).value();
  std::vector<Expression> expressions;
  for (std::size_t e = 0; e < kEncoded; ++e) expressions.push_back(build({Token::constant(static_cast<double>(e))}));
  const Program on_host = engine.compile(expressions, {.tier = Tier::kInterpret});
  machine.allow();
  const Program on_device = encodedOnDevice(engine, expressions);
  const Losses losses = engine.loss(on_device, data, {}).value();
  expectSameLosses(losses, engine.loss(on_host, data, {}).value(), "constants");
  EXPECT_FALSE(std::isnan(losses.values[kEncoded / 3]));
}

TEST(DeviceEncoding, OfPartsOfAPopulation) {
  EncodingMachine machine({.lag = true});
  machine.population_parts = 3;
  const Engine engine = machine.engine({.tier = Tier::kInterpret});
  // Parts have about as many tokens each, not as many expressions.
  const Workload w = populationOf(13 * kEncoded / 4);
  const TokenArrays arrays = tokensOf(w.expressions);
  const Dataset data = engine.upload(w.view()).value();
  const Losses expected = engine.loss(arrays.view(), data, w.parameters).value();
  EXPECT_EQ(machine.launchesOf(kEncodeKernel), 0U);
  machine.allow();
  waitUntil([&] {
    machine.driver.forgetCalls();
    expectSameLosses(engine.loss(arrays.view(), data, w.parameters).value(), expected, "parts");
    return machine.launchesOf(kEncodeKernel) > 0;
  });
  machine.driver.forgetCalls();
  expectSameLosses(engine.loss(arrays.view(), data, w.parameters).value(), expected, "all parts");
  EXPECT_EQ(machine.launchesOf(kEncodeKernel), 3U);
  EXPECT_EQ(machine.launchesOf(kLinkKernel), 3U);
}

TEST(DeviceEncoding, ProgramsThatReadKeptSubtreesAreTheHosts) {
  SlowMachine machine;
  const Engine engine = machine.keeping();
  const Workload w = populationOf(kEncoded);
  const Dataset data = engine.upload(w.view()).value();
  const auto compile = [&] { return engine.compile(w.expressions, {.tier = Tier::kInterpret, .data = &data}); };
  const Losses expected = engine.loss(compile(), data, w.parameters).value();
  std::size_t reading = 0;
  for (int generation = 0; generation < 4; ++generation) {
    encodedOnDevice(engine, w.expressions);
    const Program program = compile();
    if (program.info().subtrees_read > 0) {
      ++reading;
      EXPECT_EQ(program.info().encoded_on_device, 0U);
    }
    expectSameLosses(engine.loss(program, data, w.parameters).value(), expected, "kept");
  }
  EXPECT_GT(reading, 0U);
}

TEST(DeviceEncoding, WithoutTheKernelsTheHostEncodesAndAsksOnce) {
  EncodingMachine machine;
  machine.fails = true;
  const Engine engine = machine.engine();
  const Workload w = populationOf(kEncoded);
  const Dataset data = engine.upload(w.view()).value();
  const Program first = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  const Losses expected = engine.loss(first, data, w.parameters).value();
  machine.allow();
  engine.compile(w.expressions, {.tier = Tier::kInterpret});
  waitUntil([&] { return machine.images->count("front end") == 1; });
  for (int round = 0; round < 3; ++round) {
    const Program program = engine.compile(w.expressions, {.tier = Tier::kInterpret});
    EXPECT_TRUE(program.failures().empty());
    EXPECT_EQ(program.info().encoded_on_device, 0U);
    expectSameLosses(engine.loss(program, data, w.parameters).value(), expected, "host");
  }
  EXPECT_EQ(machine.images->count("front end"), 1U);
  EXPECT_TRUE(engine.notices().empty());
}

// Nor does the first large one: the end of its engine would wait for them.
TEST(DeviceEncoding, SmallPopulationsAskForNoKernels) {
  EncodingMachine machine;
  machine.allow();
  const Workload w = populationOf(kEncoded);
  {
    const Engine engine = machine.engine();
    for (const std::size_t count : {std::size_t{500}, kLeastEncodedOnDevice - 1, kEncoded}) {
      const std::span<const Expression> some = std::span(w.expressions).first(count);
      EXPECT_TRUE(engine.compile(some, {.tier = Tier::kInterpret}).failures().empty());
    }
  }
  EXPECT_EQ(machine.images->count("front end"), 0U);
  {
    const Engine engine = machine.engine();
    for (int i = 0; i < 2; ++i) engine.compile(w.expressions, {.tier = Tier::kInterpret});
    waitUntil([&] { return machine.images->count("front end") == 1; });
  }
}

// A part of a population that begins with another part is no second population.
TEST(DeviceEncoding, PartsOfOnePopulationAskForNoKernels) {
  EncodingMachine machine({.lag = true});
  machine.allow();
  machine.population_parts = 3;
  const Workload w = populationOf(10);
  const TokenArrays arrays = tokensOf(std::vector<Expression>(3 * kEncoded, infix("x0 + x1")));
  {
    const Engine engine = machine.engine({.tier = Tier::kInterpret});
    EXPECT_TRUE(engine.loss(arrays.view(), engine.upload(w.view()).value(), {}).ok());
  }
  EXPECT_EQ(machine.images->count("front end"), 0U);
}

TEST(DeviceEncoding, CachedKernelsAreNotMadeAgain) {
  const Scratch directory;
  EncodingMachine machine;
  machine.allow();
  const Workload w = populationOf(kEncoded);
  const EngineOptions options{.cache_directory = directory.path("")};
  Losses expected;
  {
    const Engine engine = machine.engine(options);
    const Program program = encodedOnDevice(engine, w.expressions);
    expected = engine.loss(program, engine.upload(w.view()).value(), w.parameters).value();
  }
  // They are loaded with the first population.
  const Engine second = machine.engine(options);
  machine.driver.forgetCalls();
  second.compile(w.expressions, {.tier = Tier::kInterpret});
  waitUntil([&] { return machine.driver.count("cuModuleLoadDataEx") > 0; });
  const Program program = encodedOnDevice(second, w.expressions);
  expectSameLosses(second.loss(program, second.upload(w.view()).value(), w.parameters).value(), expected, "cached");
  EXPECT_EQ(machine.images->count("front end"), 1U);
}

// By the clock of the model, its device takes much longer than by costs.
TEST(DeviceEncoding, SharesAreAsMeasured) {
  EncodingMachine machine;
  machine.allow();
  const Engine engine = machine.engine();
  const Workload w = populationOf(kEncoded);
  const std::size_t first = encodedOnDevice(engine, w.expressions).info().encoded_on_device;
  waitUntil([&] { return encodedOnDevice(engine, w.expressions).info().encoded_on_device < first; });
}

TEST(DeviceEncoding, PartsHaveEnoughExpressions) {
  EXPECT_EQ(mostPartsForDevice(kLeastEncodedOnDevice), 1U);
  EXPECT_EQ(mostPartsForDevice(40'959), 1U);
  EXPECT_EQ(mostPartsForDevice(40'960), 2U);
  EXPECT_EQ(mostPartsForDevice(250'000), 12U);
  EXPECT_TRUE(isEncodedOnDevice(kLeastEncodedOnDevice, 15 * kLeastEncodedOnDevice));
  EXPECT_FALSE(isEncodedOnDevice(kLeastEncodedOnDevice, 16 * kLeastEncodedOnDevice));
  EXPECT_FALSE(isEncodedOnDevice(kLeastEncodedOnDevice - 1, kLeastEncodedOnDevice));
}

// A device keeps what it needs for encoding as long as its engine lives, and no longer than that.
TEST(DeviceEncoding, KeepsNoMemoryOfPrograms) {
  EncodingMachine machine;
  machine.allow();
  const Engine engine = machine.engine();
  const Workload w = populationOf(kEncoded);
  encodedOnDevice(engine, w.expressions);
  const std::size_t used = machine.driver.usedBytes();
  for (int round = 0; round < 3; ++round) encodedOnDevice(engine, w.expressions);
  EXPECT_EQ(machine.driver.usedBytes(), used);
}

}  // namespace
}  // namespace srjit

// Populations that the device encodes: the same programs as the host's, and what becomes of those that it leaves.
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "runtime/code/interpreted/device_encoding.h"
#include "runtime/code/interpreted/encode.h"
#include "tests/generators/scratch.h"
#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/slow_machine.h"

namespace srjit {
namespace {

using testing::HasSubstr;

constexpr std::size_t kEncodedRows = 33, kEncoded = kLeastEncodedOnDevice + 7;

/// x0 + p0*x0 + sin(x1) + ...
Expression longSum(std::size_t terms) {
  std::string text = "x0";
  for (std::size_t i = 1; i < terms; ++i) text += i % 2 == 0 ? " + sin(x1)" : " + p0*x0";
  return parse(text, Language::kInfix).value();
}

void drawParameters(Workload& w, Precision precision) {
  std::size_t parameters = 0;
  for (const Expression& expression : w.expressions) parameters += expression.parameterCount();
  Random random(3);
  w.parameters = randomColumns(random, 1, parameters, Spread::kTame, precision)[0];
}

/// Short expressions, and some long ones, which the device leaves to the host.
Workload populationOf(std::size_t count, Precision precision, std::uint64_t seed = 5) {
  GeneratorOptions options = *findPopulation("small", seed);
  options.special_probability = 0.1;
  Workload w = Workload::random(options, count, kEncodedRows, Spread::kSpecial, precision);
  for (std::size_t e = 0; e < count; e += 1000) w.expressions[e] = longSum(30 + e % 7);
  drawParameters(w, precision);
  return w;
}

/// Its engines get the kernels that encode populations only after allow(), so that there are programs by the host to
/// compare with.
struct EncodingMachine : FakeMachine {
  explicit EncodingMachine(FakeOptions options = {}) : FakeMachine(std::move(options)) {
    images->before = [this](const FakeImageMaker::Request& request) -> Status {
      if (request.kind != "front end") return okStatus();
      allowed.wait(false);
      return fails ? Status(Error{Errc::kCompile, "no front end today", {}}) : okStatus();
    };
  }
  ~EncodingMachine() { allow(); }
  void allow() {
    allowed = true;
    allowed.notify_all();
  }
  std::size_t launchesOf(std::string_view kernel) const {
    const std::vector<FakeCall> calls = driver.calls();
    return static_cast<std::size_t>(std::ranges::count_if(
        calls, [&](const FakeCall& call) { return call.entry == "cuLaunchKernel" && call.detail == kernel; }));
  }

  std::atomic<bool> allowed = false, fails = false;
};

/// The result of `compile`, by the device: the kernels for that are made in the background of the second.
template <class Compile>
Program encodedBy(const Compile& compile) {
  std::optional<Program> program;
  waitUntil([&] {
    program = compile();
    return program->info().encoded_on_device > 0;
  });
  return *program;
}
Program encodedOnDevice(const Engine& engine, std::span<const Expression> expressions) {
  return encodedBy([&] { return engine.compile(expressions, {.tier = Tier::kInterpret}); });
}

void expectSameFailuresOf(const Program& a, const Program& b) {
  ASSERT_EQ(a.failures().size(), b.failures().size());
  for (std::size_t f = 0; f < a.failures().size(); ++f) {
    EXPECT_EQ(a.failures()[f].expression, b.failures()[f].expression);
    EXPECT_EQ(a.failures()[f].error.code, b.failures()[f].error.code);
    EXPECT_EQ(a.failures()[f].error.message, b.failures()[f].error.message);
  }
}

class DeviceEncoded : public testing::TestWithParam<std::tuple<Precision, Math>> {};

TEST_P(DeviceEncoded, HasTheBitsOfTheHosts) {
  const auto [precision, math] = GetParam();
  EncodingMachine machine;
  const Engine engine = machine.engine({.precision = precision, .math = math});
  const Workload w = populationOf(kEncoded, precision);
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

/// One engine with a population, encoded by the host and then by the device.
struct Encoding {
  explicit Encoding(FakeOptions options = {}) : machine_(std::move(options)) {}
  Program compile() const { return engine_.compile(w_.expressions, {.tier = Tier::kInterpret}); }
  Program compileOnDevice() {
    machine_.allow();
    return encodedOnDevice(engine_, w_.expressions);
  }

  EncodingMachine machine_;
  const Workload w_ = populationOf(kEncoded, Precision::kF32);
  const Engine engine_ = machine_.engine();
  const Dataset data_ = engine_.upload(w_.view()).value();
  const Program on_host_ = compile();
  const Program on_device_ = compileOnDevice();
};

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
  std::vector<Expression> longer(kLeastEncodedOnDevice, parse("x0*x1+x0*x1+x0*x1+x0*x1", Language::kInfix).value());
  ASSERT_EQ(longer[0].tokens().size(), 15U);
  EXPECT_GT(encoded(longer), 0U);
  longer.assign(longer.size(), parse("-(x0*x1+x0*x1+x0*x1+x0*x1)", Language::kInfix).value());
  ASSERT_EQ(longer[0].tokens().size(), 16U);
  EXPECT_EQ(encoded(longer), 0U);
}

// Destroying an engine ends the background work that its population began.
TEST(DeviceEncoding, AnEngineMayEndBeforeItsKernelsAreThere) {
  const Workload w = populationOf(kEncoded, Precision::kF32);
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
      for (int round = 0; round < 3; ++round) {
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
  const Workload w = populationOf(kEncoded, Precision::kF32);
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
  expectSameFailuresOf(on_device, on_host);
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
  Workload w = populationOf(kEncoded, Precision::kF32);
  for (std::size_t e = 3; e < w.expressions.size(); e += 500) w.expressions[e] = deepTree();
  drawParameters(w, Precision::kF32);
  const Dataset data = engine.upload(w.view()).value();
  const Program on_host = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  ASSERT_FALSE(on_host.failures().empty());
  EXPECT_EQ(on_host.failures()[0].error.code, Errc::kUnsupported);
  machine.allow();
  const Program on_device = encodedOnDevice(engine, w.expressions);
  expectSameFailuresOf(on_device, on_host);
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
  Workload w = Workload::random(options, kEncoded, kEncodedRows, Spread::kSpecial, Precision::kF32);
  Random random(9);
  w.columns = randomColumns(random, 5, kEncodedRows, Spread::kSpecial, Precision::kF32);
  // Nobody reads x1, and x4 is read at the end alone, by the host.
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
  const Workload few = populationOf(10, Precision::kF32);
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
  const Workload w = populationOf(4 * kEncoded, Precision::kF32);
  TokenArrays arrays;
  for (const Expression& expression : w.expressions) arrays.addPostfix(expression);
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
  const Workload w = populationOf(kEncoded, Precision::kF32);
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
  const Workload w = populationOf(kEncoded, Precision::kF32);
  const Dataset data = engine.upload(w.view()).value();
  const Program first = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  const Losses expected = engine.loss(first, data, w.parameters).value();
  machine.allow();
  engine.compile(w.expressions, {.tier = Tier::kInterpret});
  waitUntil([&] { return machine.images->count("front end") == 1; });
  for (int round = 0; round < 5; ++round) {
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
  const Workload w = populationOf(kEncoded, Precision::kF32);
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
  const Workload w = populationOf(4 * kEncoded, Precision::kF32);
  TokenArrays arrays;
  for (const Expression& expression : w.expressions) arrays.addPostfix(expression);
  {
    const Engine engine = machine.engine({.tier = Tier::kInterpret});
    EXPECT_TRUE(engine.loss(arrays.view(), engine.upload(w.view()).value(), w.parameters).ok());
  }
  EXPECT_EQ(machine.images->count("front end"), 0U);
}

TEST(DeviceEncoding, CachedKernelsAreNotMadeAgain) {
  const Scratch directory;
  EncodingMachine machine;
  machine.allow();
  const Workload w = populationOf(kEncoded, Precision::kF32);
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
  const Workload w = populationOf(kEncoded, Precision::kF32);
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
  const Workload w = populationOf(kEncoded, Precision::kF32);
  encodedOnDevice(engine, w.expressions);
  const std::size_t used = machine.driver.usedBytes();
  for (int round = 0; round < 3; ++round) encodedOnDevice(engine, w.expressions);
  EXPECT_EQ(machine.driver.usedBytes(), used);
}

class EncodingFaults : public testing::Test, protected Encoding {
 protected:
  explicit EncodingFaults(FakeOptions options = {}) : Encoding(std::move(options)) {}
  /// The next population is the device's again.
  void expectRecovery() {
    machine_.driver.forgetFailures();
    const Program program = compile();
    EXPECT_TRUE(program.failures().empty());
    EXPECT_GT(program.info().encoded_on_device, 0U);
    expectSameLosses(engine_.loss(program, data_, w_.parameters).value(), expected_, "afterwards");
  }

  const Losses expected_ = engine_.loss(on_host_, data_, w_.parameters).value();
};

TEST_F(EncodingFaults, WithoutMemoryTheHostEncodes) {
  const std::size_t all = std::size_t{1} << 30;
  // The programs alone fit.
  machine_.driver.occupy(all - machine_.driver.usedBytes() - (std::size_t{12} << 20));
  const Program program = compile();
  EXPECT_TRUE(program.failures().empty());
  EXPECT_EQ(program.info().encoded_on_device, 0U);
  machine_.driver.occupy(0);
  expectSameLosses(engine_.loss(program, data_, w_.parameters).value(), expected_, "short of memory");
  expectRecovery();
}

/// Sanitizers look at fewer sizes of memory, since each takes them seconds.
#ifdef SRJIT_SANITIZED
constexpr std::size_t kSizesApart = 5;
#else
constexpr std::size_t kSizesApart = 1;
#endif

/// With `from` to `to` MiB free, `compile` does not fail; with few the host encodes, with many the device.
template <class Compile>
void expectNoFailureWith(FakeMachine& machine, std::size_t from, std::size_t to, std::size_t step,
                         const Compile& compile) {
  const std::size_t all = std::size_t{1} << 30, used = machine.driver.usedBytes();
  std::size_t by_host = 0, by_device = 0;
  for (std::size_t free = from; free < to; free += step * kSizesApart) {
    machine.driver.occupy(all - used - (free << 20));
    const Program program = compile();
    EXPECT_TRUE(program.failures().empty()) << free << " MiB: " << program.failures()[0].error.message;
    ++(program.info().encoded_on_device > 0 ? by_device : by_host);
  }
  EXPECT_GT(by_host, 0U);
  EXPECT_GT(by_device, 0U);
}

// Also where the memory for encoding is there, but what is taken after it is not.
TEST_F(EncodingFaults, MemoryThatIsEnoughForTheHostIsEnough) {
  expectNoFailureWith(machine_, 4, 64, 1, [&] { return compile(); });
}

// With few multiprocessors, what is taken after encoding is more than the workers' memory that was freed. The host's
// programs alone take 29 MiB.
TEST(DeviceEncoding, ShortMemoryAfterEncodingIsNoFailure) {
  EncodingMachine machine({.devices = {FakeDevice{.multiprocessors = 1}}});
  const Engine engine = machine.engine();
  const Workload few = populationOf(10'000, Precision::kF32);
  std::vector<Expression> expressions;
  for (int i = 0; i < 30; ++i) expressions.insert(expressions.end(), few.expressions.begin(), few.expressions.end());
  const auto compile = [&] { return engine.compile(expressions, {.tier = Tier::kInterpret}); };
  compile();
  machine.allow();
  encodedBy(compile);
  // How much encoding takes depends on the device's share, which is up to 95 of 100 where the host is slow.
  expectNoFailureWith(machine, 32, 208, 8, compile);
}

// While the device encodes.
TEST_F(EncodingFaults, TheDeadlineMayPass) {
  machine_.driver.forgetCalls();
  const Engine hurried = engine_.withLimits({.max_seconds = 1e-9}).value();
  const Program program = hurried.compile(w_.expressions, {.tier = Tier::kInterpret});
  ASSERT_EQ(program.failures().size(), w_.expressions.size());
  EXPECT_EQ(program.failures()[0].error.code, Errc::kLimit);
  EXPECT_EQ(machine_.launchesOf(kEncodeKernel), 1U);
  EXPECT_EQ(machine_.launchesOf(kLinkKernel), 0U);
  expectRecovery();
}

TEST_F(EncodingFaults, AFailedLaunchIsAFailureOfAllExpressions) {
  for (const std::size_t launch : {1, 2}) {
    machine_.driver.forgetCalls();
    machine_.driver.failAt("cuLaunchKernel", launch, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    const Program program = compile();
    ASSERT_EQ(program.failures().size(), w_.expressions.size()) << launch;
    EXPECT_THAT(program.failures()[0].error.message, HasSubstr("cuLaunchKernel failed: 701"));
    EXPECT_EQ(machine_.driver.failedEntry(), "cuLaunchKernel");
    EXPECT_EQ(machine_.launchesOf(kEncodeKernel), launch - 1) << "calls that failed are not noted";
    expectRecovery();
  }
}

TEST_F(EncodingFaults, ALostDeviceIsAFailureOfAllExpressions) {
  for (const std::size_t kernel : {1, 2}) {
    machine_.driver.forgetCalls();
    machine_.driver.failKernel(kernel, CUDA_ERROR_ILLEGAL_ADDRESS);
    const Program program = compile();
    ASSERT_EQ(program.failures().size(), w_.expressions.size()) << kernel;
    EXPECT_EQ(program.failures()[0].error.code, Errc::kMachine);
    EXPECT_THAT(program.failures()[0].error.message, HasSubstr("700 CUDA_ERROR_ILLEGAL_ADDRESS"));
    machine_.driver.loseDevice(CUDA_SUCCESS);
    expectRecovery();
  }
}

class LaggingEncodingFaults : public EncodingFaults {
 protected:
  LaggingEncodingFaults() : EncodingFaults({.lag = true}) {}
};

// Each call of the driver fails once: the host encodes, or all expressions fail; never wrong numbers.
TEST_F(LaggingEncodingFaults, EveryCallMayFailOnce) {
  std::size_t failed = 0, served = 0;
  for (const char* const entry : {"cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemHostAlloc", "cuMemcpyHtoDAsync",
                                  "cuMemcpyDtoHAsync", "cuMemsetD8Async", "cuLaunchKernel", "cuEventCreate",
                                  "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime", "cuStreamSynchronize"}) {
    for (const CUresult code : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES}) {
      for (std::size_t n = 1;; ++n) {
        SCOPED_TRACE(fmt::format("call {} of {}, code {}", n, entry, code));
        ASSERT_LT(n, 100U);
        machine_.driver.forgetCalls();
        machine_.driver.failAt(entry, n, code);
        const Program program = compile();
        machine_.driver.forgetFailures();
        if (machine_.driver.count(entry) < n) break;
        if (!program.failures().empty()) {
          ++failed;
          ASSERT_EQ(program.failures().size(), w_.expressions.size());
          EXPECT_THAT(program.failures()[0].error.message, HasSubstr(entry));
          continue;
        }
        ++served;
        expectSameLosses(engine_.loss(program, data_, w_.parameters).value(), expected_, "served");
      }
    }
  }
  EXPECT_GT(failed, 10U);
  EXPECT_GT(served, 3U);
  expectRecovery();
}

// The same while the kernels are loaded, in the background: the host encodes.
TEST(DeviceEncoding, LoadingTheKernelsMayFail) {
  const Workload w = populationOf(kEncoded, Precision::kF32);
  for (const char* const entry : {"cuModuleLoadDataEx", "cuModuleGetFunction", "cuMemAllocFromPoolAsync",
                                  "cuMemcpyHtoDAsync", "cuStreamSynchronize"}) {
    SCOPED_TRACE(entry);
    EncodingMachine machine;
    const Engine engine = machine.engine();
    const auto compile = [&] { return engine.compile(w.expressions, {.tier = Tier::kInterpret}); };
    for (int population = 0; population < 2; ++population) compile();
    // Lack of memory would be tried again.
    machine.driver.failAt(entry, 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    machine.allow();
    waitUntil([&] { return machine.driver.hasFailed(); });
    const Program program = compile();
    EXPECT_TRUE(program.failures().empty());
    EXPECT_EQ(program.info().encoded_on_device, 0U);
  }
}

}  // namespace
}  // namespace srjit

// Losses of expressions in a GPU's memory, on the model of one: those of the same expressions from the host, bit for
// bit, in parts and in one piece, in every layout.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>

#include "ir/token_codes.h"
#include "runtime/cuda/handles.h"
#include "tests/generators/graphs.h"
#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

using testing::HasSubstr;

enum class ResidentLayout : std::uint8_t { kOffsets, kLengths, kPrefix };

/// A population on the device, and what is written.
struct Resident {
  Resident(FakeMachine& machine, std::span<const Expression> expressions, ResidentLayout layout, std::size_t stride,
           Precision type)
      : arrays(machine.driver) {
    std::vector<std::int32_t> codes, lengths;
    std::vector<double> values;
    std::vector<std::int64_t> offsets = {0};
    for (const Expression& expression : expressions) {
      // Without lengths, a prefix expression ends by itself.
      std::vector<Token> tokens(expression.tokens().begin(), expression.tokens().end());
      if (layout == ResidentLayout::kPrefix) tokens = prefixOf(expression);
      for (const Token& token : tokens) {
        codes.push_back(codeOf(token));
        values.push_back(token.value);
      }
      lengths.push_back(static_cast<std::int32_t>(expression.size()));
      if (layout != ResidentLayout::kOffsets) {
        codes.resize(lengths.size() * stride, 7'777);
        values.resize(codes.size(), 1e300);
      }
      offsets.push_back(static_cast<std::int64_t>(codes.size()));
    }
    population.expressions = expressions.size();
    population.tokens = codes.size();
    population.codes = arrays.add(codes);
    population.values_type = type;
    population.values =
        type == Precision::kF64 ? arrays.add(values) : arrays.add(std::vector<float>(values.begin(), values.end()));
    if (layout == ResidentLayout::kOffsets) population.offsets = arrays.add(offsets);
    if (layout != ResidentLayout::kOffsets) population.stride = stride;
    if (layout == ResidentLayout::kLengths) population.lengths = arrays.add(lengths);
    if (layout == ResidentLayout::kPrefix) population.notation = Notation::kPrefix;
    out.type = Precision::kF64;
    out.losses = arrays.add(std::vector<double>(expressions.size(), 77));
    out.valid_rows = arrays.add(std::vector<std::int64_t>(expressions.size(), 77));
    out.faults = arrays.add(std::vector<DeviceFault>(expressions.size(), DeviceFault::kRest));
  }
  std::vector<double> losses() const { return arrays.read<double>(out.losses, population.expressions); }
  std::vector<std::int64_t> validRows() const {
    return arrays.read<std::int64_t>(out.valid_rows, population.expressions);
  }
  std::vector<DeviceFault> faults() const { return arrays.read<DeviceFault>(out.faults, population.expressions); }

  ForeignArrays arrays;
  DevicePopulation population;
  DeviceLossOutputs out;
};

Workload residentWorkload(std::size_t count, std::size_t rows, Precision precision) {
  Workload w = Workload::random({.seed = 50,
                                 .min_nodes = 1,
                                 .max_nodes = 40,
                                 .variables = 5,
                                 .ops = arithmeticOps(),
                                 .constant_probability = 0.3,
                                 .special_probability = 0.05},
                                count, rows, Spread::kTame, precision);
  for (double& target : w.target) target = static_cast<float>(target);
  for (std::size_t r = 0; r < rows; r += 37) w.columns[1][r] = 0;  // so that some quotients are not finite
  return w;
}

class DeviceLossLayouts : public testing::TestWithParam<std::tuple<Precision, ResidentLayout, NanPolicy, bool>> {};

INSTANTIATE_TEST_SUITE_P(
    , DeviceLossLayouts,
    testing::Combine(testing::Values(Precision::kF32, Precision::kF64),
                     testing::Values(ResidentLayout::kOffsets, ResidentLayout::kLengths, ResidentLayout::kPrefix),
                     testing::Values(NanPolicy::kPropagate, NanPolicy::kSkip, NanPolicy::kReject), testing::Bool()));

TEST_P(DeviceLossLayouts, HasTheBitsOfTheSameExpressionsFromTheHost) {
  const auto [precision, layout, nan, has_weights] = GetParam();
  FakeMachine machine;
  const Engine engine = machine.engine({.precision = precision, .math = Math::kPrecise});
  Workload w = residentWorkload(400, 300, precision);
  if (has_weights) {
    for (std::size_t r = 0; r < w.rows(); ++r) w.weights.push_back(0.5 * static_cast<double>(r % 4));
  }
  const Dataset data = engine.upload(w.view()).value();
  for (const LossKind kind : {LossKind::kMse, LossKind::kRmse, LossKind::kMae}) {
    const LossOptions options{.kind = kind, .nan = nan};
    const DeviceLoss loss =
        engine.deviceLoss(data, {.operators = arithmeticOps(), .expressions = 500, .most_tokens = 64, .loss = options})
            .value();
    Resident resident(machine, w.expressions, layout, 64, precision);
    const auto cuda = Cuda::open(machine.driver.load().value(), 0).value();
    const CurrentContext current(*cuda);
    const Stream stream(cuda);
    const Status put = loss.submit(resident.population, resident.out, reinterpret_cast<std::uint64_t>(stream.get()));
    ASSERT_TRUE(put.ok()) << put.error().message;
    stream.synchronize();
    const Program program = engine.compile(w.expressions, {.tier = Tier::kInterpret, .simplify = false});
    const Losses expected = engine.loss(program, data, {}, options).value();
    const std::vector<double> losses = resident.losses();
    const std::vector<std::int64_t> valid = resident.validRows();
    for (std::size_t e = 0; e < losses.size(); ++e) {
      ASSERT_EQ(resident.faults()[e], DeviceFault::kNone);
      ASSERT_TRUE(sameBits(losses[e], expected.values[e]))
          << print(w.expressions[e], Language::kInfix) << ": " << losses[e] << " and " << expected.values[e];
      ASSERT_EQ(static_cast<std::uint64_t>(valid[e]), expected.valid_rows[e]);
    }
  }
}

class DeviceLosses : public testing::Test {
 protected:
  /// Puts it on a stream, and waits.
  Status submit(const DeviceLoss& loss, const DevicePopulation& population, const DeviceLossOutputs& out) {
    const auto cuda = Cuda::open(machine_.driver.load().value(), 0).value();
    const CurrentContext current(*cuda);
    const Stream stream(cuda);
    Status put = okStatus();
    // Whatever context is current on the caller's thread.
    std::thread([&] { put = loss.submit(population, out, reinterpret_cast<std::uint64_t>(stream.get())); }).join();
    stream.synchronize();
    return put;
  }
  std::string refusalOf(const DeviceLossOptions& options) { return refusalOf(data_, options); }
  std::string refusalOf(const Dataset& data, const DeviceLossOptions& options) {
    const Result<DeviceLoss> made = engine_.deviceLoss(data, options);
    return made ? "made" : made.error().message;
  }

  FakeMachine machine_;
  Workload w_ = residentWorkload(300, 200, Precision::kF32);
  Engine engine_ = machine_.engine();
  Dataset data_ = engine_.upload(w_.view()).value();
};

TEST_F(DeviceLosses, OfPartsAreThoseOfAllAtOnce) {
  std::vector<double> all;
  for (const std::size_t bytes : {std::size_t{1} << 30, std::size_t{1}}) {
    const DeviceLoss loss =
        engine_
            .deviceLoss(data_, {.operators = arithmeticOps(), .expressions = 300, .most_tokens = 200, .bytes = bytes})
            .value();
    Resident resident(machine_, w_.expressions, ResidentLayout::kLengths, 60, Precision::kF32);
    const std::size_t before = machine_.driver.count("cuLaunchKernel");
    ASSERT_TRUE(submit(loss, resident.population, resident.out).ok());
    EXPECT_THAT(resident.faults(), testing::Each(DeviceFault::kNone));
    EXPECT_EQ(machine_.driver.count("cuLaunchKernel") - before, bytes == 1 ? 4u * 16u : 4u);
    const std::vector<double> losses = resident.losses();
    if (all.empty()) all = losses;
    for (std::size_t e = 0; e < losses.size(); ++e) ASSERT_TRUE(sameBits(losses[e], all[e])) << e;
    // The memory is used again.
    ASSERT_TRUE(submit(loss, resident.population, resident.out).ok());
    for (std::size_t e = 0; e < losses.size(); ++e) ASSERT_TRUE(sameBits(resident.losses()[e], all[e])) << e;
  }
}

// Kernels are shared, and so is what they may have of shared memory.
TEST_F(DeviceLosses, DoNotDisturbEachOther) {
  const auto lossOf = [&](std::uint32_t most_tokens) {
    return engine_.deviceLoss(data_, {.operators = arithmeticOps(), .expressions = 300, .most_tokens = most_tokens})
        .value();
  };
  const DeviceLoss large = lossOf(53), small = lossOf(40);
  Resident one(machine_, w_.expressions, ResidentLayout::kLengths, 60, Precision::kF32);
  Resident other(machine_, w_.expressions, ResidentLayout::kLengths, 60, Precision::kF32);
  ASSERT_TRUE(submit(large, one.population, one.out).ok());
  ASSERT_TRUE(submit(small, other.population, other.out).ok());
  const std::vector<double> losses = one.losses(), same = other.losses();
  for (std::size_t e = 0; e < losses.size(); ++e) ASSERT_TRUE(sameBits(losses[e], same[e])) << e;
}

TEST_F(DeviceLosses, OfExpressionsThatAreNotValidAreNan) {
  const DeviceLoss loss =
      engine_.deviceLoss(data_, {.operators = {Op::kAdd}, .expressions = 10, .most_tokens = 4}).value();
  const std::vector<Expression> expressions = {infix("x0 + 1.5"), infix("x0 * x1"), infix("x0"), infix("x7"),
                                               infix("x0 + x1 + x2")};
  Resident resident(machine_, expressions, ResidentLayout::kOffsets, 0, Precision::kF64);
  ASSERT_TRUE(submit(loss, resident.population, resident.out).ok());
  EXPECT_THAT(resident.faults(), testing::ElementsAre(DeviceFault::kNone, DeviceFault::kOperator, DeviceFault::kNone,
                                                      DeviceFault::kVariable, DeviceFault::kLength));
  const std::vector<double> losses = resident.losses();
  for (std::size_t e = 0; e < losses.size(); ++e) {
    EXPECT_EQ(std::isnan(losses[e]), resident.faults()[e] != DeviceFault::kNone) << e;
    EXPECT_EQ(resident.validRows()[e], std::isnan(losses[e]) ? -1 : 200) << e;
  }
  // Only losses, in f32.
  DeviceLossOutputs only{.losses = resident.out.losses};
  ASSERT_TRUE(submit(loss, resident.population, only).ok());
  EXPECT_EQ(resident.arrays.read<float>(only.losses, 1)[0], static_cast<float>(losses[0]));
  DevicePopulation none;
  EXPECT_TRUE(submit(loss, none, {}).ok());
}

TEST_F(DeviceLosses, AreRefusedWithAReason) {
  const std::vector<Op> ops = {Op::kAdd};
  EXPECT_EQ(refusalOf({.operators = ops, .expressions = 1}), "made");
  EXPECT_EQ(refusalOf({.operators = ops}), "0 expressions, expected at least 1");
  EXPECT_EQ(refusalOf({.operators = {}, .expressions = 1}), "no operators that expressions may have");
  EXPECT_EQ(refusalOf({.operators = ops, .expressions = 1, .most_tokens = 257}),
            "257 tokens of an expression, expected 1 to 256");
  for (const LossKind kind : {LossKind::kHuber, LossKind::kScaledMse}) {
    EXPECT_THAT(refusalOf({.operators = ops, .expressions = 1, .loss = {.kind = kind}}),
                HasSubstr("of expressions on a device: expected one of plain errors"));
  }
  const std::vector<double> one = {1, 2};
  EXPECT_THAT(refusalOf(engine_.upload({.columns = {one}}).value(), {.operators = ops, .expressions = 1}),
              HasSubstr("without a target"));
  const Engine cpu = Engine::create({.device = "cpu"}).value();
  const Result<DeviceLoss> on_cpu = cpu.deviceLoss(cpu.upload(w_.view()).value(), {.operators = ops, .expressions = 1});
  ASSERT_FALSE(on_cpu);
  EXPECT_THAT(on_cpu.error().message, HasSubstr("that is not on one GPU"));

  const DeviceLoss loss = engine_.deviceLoss(data_, {.operators = ops, .expressions = 2, .most_tokens = 4}).value();
  Resident resident(machine_, std::vector{infix("x0"), infix("x1")}, ResidentLayout::kLengths, 4, Precision::kF32);
  const auto messageOf = [&](const auto& change) {
    DevicePopulation population = resident.population;
    DeviceLossOutputs out = resident.out;
    change(population, out);
    const Status put = submit(loss, population, out);
    return put ? "put" : put.error().message;
  };
  EXPECT_EQ(messageOf([](auto&, auto&) {}), "put");
  EXPECT_EQ(messageOf([](auto& of, auto&) { of.expressions = 3; }), "3 expressions, expected at most 2");
  EXPECT_EQ(messageOf([](auto& of, auto&) { of.tokens = 7; }),
            "7 tokens for 2 expressions that begin 4 tokens after one another");
  EXPECT_EQ(messageOf([](auto& of, auto&) { of.codes = 0; }), "no address of codes");
  EXPECT_EQ(messageOf([](auto&, auto& out) { out.losses = 0; }), "no address of losses");
  EXPECT_THAT(messageOf([](auto&, auto& out) { out.losses += 4; }), HasSubstr("expected a multiple of 8 bytes"));
  EXPECT_THAT(messageOf([](auto&, auto& out) { out.faults = 64; }),
              HasSubstr("faults at 0x40, which is not memory of"));
}

}  // namespace
}  // namespace srjit

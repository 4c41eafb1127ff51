// Losses of expressions in a GPU's memory through srjit.h, on a model of one: those of Engine::deviceLoss(), bit for
// bit.
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cuda/handles.h"
#include "tests/generators/population.h"
#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/device_engine.h"
#include "tests/runtime/c_api/caller.h"

namespace srjit::c_api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

enum class TokensOnDevice : std::uint8_t { kOffsets, kLengths, kPrefix };

/// A GPU with random expressions of arithmetic in its memory, and a srjit_device_loss.
class CInterfaceDeviceLoss : public ::testing::Test {
 protected:
  static constexpr std::size_t kExpressions = 60, kStride = 40;
  struct Results {
    std::uint64_t losses, valid_rows, faults;
  };

  explicit CInterfaceDeviceLoss(Precision precision = Precision::kF32)
      : w_(Workload::random({.seed = 51, .max_nodes = kStride, .variables = 3, .ops = arithmeticOps()}, kExpressions,
                            200, Spread::kTame, precision)),
        engine_{machine_.engine({.precision = precision})},
        data_{engine_.engine.upload(w_.view()).value()},
        cuda_(Cuda::open(machine_.driver.load().value(), 0).value()),
        current_(*cuda_),
        stream_(cuda_) {
    for (const Op op : arithmeticOps()) operators_.push_back(srjit::codeOf(op));
    options_.operators = operators_.data();
    options_.operator_count = operators_.size();
    options_.expressions = kExpressions;
  }

  Owned<srjit_device_loss> deviceLoss() const {
    return made<srjit_device_loss>(
        [&](auto to, auto error) { return srjit_device_loss_create(&engine_, &data_, &options_, to, error); });
  }
  srjit_device_population putOnDevice(std::span<const Expression> expressions, TokensOnDevice layout) {
    TokenArrays tokens;
    std::vector<std::int32_t> lengths;
    for (const Expression& expression : expressions) {
      if (layout == TokensOnDevice::kPrefix) tokens.addPrefix(expression);
      if (layout != TokensOnDevice::kPrefix) tokens.addPostfix(expression);
      lengths.push_back(static_cast<std::int32_t>(expression.size()));
      if (layout == TokensOnDevice::kOffsets) continue;
      tokens.codes.resize(lengths.size() * kStride, 7'777);
      tokens.constants.resize(tokens.codes.size(), 1e300);
    }
    auto population = sized<srjit_device_population>();
    population.codes = arrays_.add(tokens.codes);
    population.tokens = tokens.codes.size();
    population.expressions = expressions.size();
    population.values_type = layout == TokensOnDevice::kOffsets ? SRJIT_F64 : SRJIT_F32;
    population.values = layout == TokensOnDevice::kOffsets
                            ? arrays_.add(tokens.constants)
                            : arrays_.add(std::vector<float>(tokens.constants.begin(), tokens.constants.end()));
    if (layout == TokensOnDevice::kOffsets) population.offsets = arrays_.add(tokens.offsets);
    if (layout != TokensOnDevice::kOffsets) population.stride = kStride;
    if (layout == TokensOnDevice::kLengths) population.lengths = arrays_.add(lengths);
    if (layout == TokensOnDevice::kPrefix) population.notation = SRJIT_PREFIX;
    return population;
  }
  /// Memory for results, in which there are other numbers.
  Results memoryForResults() {
    return {arrays_.add(std::vector<double>(kExpressions, 77)), arrays_.add(std::vector<std::int64_t>(kExpressions, 7)),
            arrays_.add(std::vector<std::uint8_t>(kExpressions, 99))};
  }
  static srjit_device_loss_outputs outputsTo(const Results& to) {
    auto out = sized<srjit_device_loss_outputs>();
    out.losses = to.losses;
    out.valid_rows = to.valid_rows;
    out.faults = to.faults;
    out.type = SRJIT_F64;
    return out;
  }
  std::uint64_t stream() const { return reinterpret_cast<std::uint64_t>(stream_.get()); }
  std::vector<std::uint8_t> faultsAt(const Results& results, std::size_t count) {
    return arrays_.read<std::uint8_t>(results.faults, count);
  }

  FakeMachine machine_{{.lag = true}};
  Workload w_;
  srjit_engine engine_;
  srjit_dataset data_;
  std::shared_ptr<const Cuda> cuda_;
  CurrentContext current_;
  Stream stream_;
  ForeignArrays arrays_{machine_.driver};
  std::vector<std::int32_t> operators_;
  srjit_device_loss_options options_ = sized<srjit_device_loss_options>();
};

class CInterfaceDeviceLossLayouts : public CInterfaceDeviceLoss,
                                    public ::testing::WithParamInterface<std::tuple<Precision, TokensOnDevice>> {
 protected:
  CInterfaceDeviceLossLayouts() : CInterfaceDeviceLoss(std::get<0>(GetParam())) {}
};

INSTANTIATE_TEST_SUITE_P(, CInterfaceDeviceLossLayouts,
                         ::testing::Combine(::testing::Values(Precision::kF32, Precision::kF64),
                                            ::testing::Values(TokensOnDevice::kOffsets, TokensOnDevice::kLengths,
                                                              TokensOnDevice::kPrefix)));

TEST_P(CInterfaceDeviceLossLayouts, HasTheBitsOfTheCallInCpp) {
  const srjit_device_population population = putOnDevice(w_.expressions, std::get<1>(GetParam()));
  auto loss_options = sized<srjit_loss_options>();
  loss_options.loss = "mae";
  loss_options.nan = SRJIT_NAN_SKIP;
  options_.loss = &loss_options;
  options_.most_tokens = kStride;
  const auto loss = deviceLoss();
  const Results through_c = memoryForResults(), in_cpp = memoryForResults();
  const srjit_device_loss_outputs out = outputsTo(through_c);
  srjit_error error = newError();
  ASSERT_EQ(srjit_device_loss_submit(loss.get(), &population, &out, stream(), &error), SRJIT_OK) << error.message;

  const DeviceLoss of_engine = engine_.engine
                                   .deviceLoss(data_.data, {.operators = arithmeticOps(),
                                                            .expressions = kExpressions,
                                                            .most_tokens = kStride,
                                                            .loss = {.kind = LossKind::kMae, .nan = NanPolicy::kSkip}})
                                   .value();
  of_engine
      .submit({.codes = population.codes,
               .values = population.values,
               .tokens = population.tokens,
               .expressions = population.expressions,
               .offsets = population.offsets,
               .stride = population.stride,
               .lengths = population.lengths,
               .values_type = population.values_type == SRJIT_F64 ? Precision::kF64 : Precision::kF32,
               .notation = population.notation == SRJIT_PREFIX ? Notation::kPrefix : Notation::kPostfix},
              {in_cpp.losses, in_cpp.valid_rows, in_cpp.faults, Precision::kF64}, stream())
      .value();
  stream_.synchronize();
  const auto numbersAt = [&](std::uint64_t address) { return arrays_.read<std::uint64_t>(address, kExpressions); };
  EXPECT_EQ(numbersAt(through_c.losses), numbersAt(in_cpp.losses));
  EXPECT_EQ(numbersAt(through_c.valid_rows), numbersAt(in_cpp.valid_rows));
  EXPECT_THAT(faultsAt(through_c, kExpressions), ::testing::Each(SRJIT_FAULT_NONE));
  EXPECT_THAT(faultsAt(in_cpp, kExpressions), ::testing::Each(SRJIT_FAULT_NONE));
}

TEST_F(CInterfaceDeviceLoss, HasTheDefaultsOfTheEngine) {
  const auto loss = deviceLoss();
  const srjit_device_population population = putOnDevice(w_.expressions, TokensOnDevice::kOffsets);
  const Results results = memoryForResults();
  auto out = sized<srjit_device_loss_outputs>();
  out.losses = results.losses;  // in f32; the rest is not wanted
  ASSERT_EQ(srjit_device_loss_submit(loss.get(), &population, &out, stream(), nullptr), SRJIT_OK);
  stream_.synchronize();
  const std::vector<float> losses = arrays_.read<float>(results.losses, kExpressions);
  const Program program = engine_.engine.compile(w_.expressions, {.tier = Tier::kInterpret, .simplify = false});
  const Losses expected = engine_.engine.loss(program, data_.data, {}).value();
  for (std::size_t e = 0; e < kExpressions; ++e) {
    EXPECT_TRUE(sameBits(losses[e], static_cast<float>(expected.values[e]))) << e;
  }
  EXPECT_THAT(faultsAt(results, 1), ElementsAre(99));
}

TEST_F(CInterfaceDeviceLoss, EvaluatesPartsThatFitIntoItsMemory) {
  const srjit_device_population population = putOnDevice(w_.expressions, TokensOnDevice::kOffsets);
  const Results results = memoryForResults();
  const srjit_device_loss_outputs out = outputsTo(results);
  options_.most_tokens = 256;
  const auto launches = [&](std::uint64_t bytes) {
    options_.bytes = bytes;
    const auto loss = deviceLoss();
    const std::size_t before = machine_.driver.count("cuLaunchKernel");
    EXPECT_EQ(srjit_device_loss_submit(loss.get(), &population, &out, stream(), nullptr), SRJIT_OK);
    stream_.synchronize();
    return machine_.driver.count("cuLaunchKernel") - before;
  };
  EXPECT_EQ(launches(1), 2 * launches(0));
}

TEST_F(CInterfaceDeviceLoss, GivesFaultsAsNumbersWithTexts) {
  const std::int32_t add = srjit::codeOf(Op::kAdd);
  options_.operators = &add;
  options_.operator_count = 1;
  options_.most_tokens = 4;
  const auto loss = deviceLoss();
  const std::vector<Expression> expressions = {infix("x0 + 1.5"), infix("x0 * x1"), infix("x7"), infix("x0 + x1 + x2")};
  const srjit_device_population population = putOnDevice(expressions, TokensOnDevice::kOffsets);
  const Results results = memoryForResults();
  const srjit_device_loss_outputs out = outputsTo(results);
  ASSERT_EQ(srjit_device_loss_submit(loss.get(), &population, &out, stream(), nullptr), SRJIT_OK);
  stream_.synchronize();
  const std::vector<std::uint8_t> faults = faultsAt(results, expressions.size());
  EXPECT_THAT(faults, ElementsAre(SRJIT_FAULT_NONE, SRJIT_FAULT_OPERATOR, SRJIT_FAULT_VARIABLE, SRJIT_FAULT_LENGTH));
  EXPECT_STREQ(srjit_fault_text(faults[2]), "it has a variable that the data do not have");
  EXPECT_THAT(arrays_.read<std::int64_t>(results.valid_rows, expressions.size()), ElementsAre(200, -1, -1, -1));
}

TEST_F(CInterfaceDeviceLoss, RefusesOptions) {
  const auto refused = [&](const auto& change, std::int32_t code = SRJIT_ERROR_INVALID) {
    srjit_device_loss_options options = options_;
    change(options);
    auto* loss = reinterpret_cast<srjit_device_loss*>(0x10);
    const std::string message =
        refusal(code, [&](auto error) { return srjit_device_loss_create(&engine_, &data_, &options, &loss, error); });
    EXPECT_EQ(loss, nullptr);
    return message;
  };
  EXPECT_THAT(refused([](auto& options) { options.size = 8; }), StartsWith("the size of options is 8"));
  EXPECT_EQ(refused([](auto& options) { options.reserved = 1; }), "reserved of options is 1, expected 0");
  EXPECT_EQ(refused([](auto& options) { options.operators = nullptr; }), "operators is NULL");
  EXPECT_EQ(refused([](auto& options) { options.operator_count = 0; }), "no operators that expressions may have");
  for (const std::int32_t code : std::vector<std::int32_t>{SRJIT_CONSTANT, SRJIT_VARIABLE, SRJIT_PARAMETER, 9'999}) {
    operators_[1] = code;
    EXPECT_EQ(refused([](auto&) {}), "operators[1] is " + std::to_string(code) + ", expected the code of an operator");
  }
  operators_[1] = operators_[0];
  EXPECT_EQ(refused([](auto& options) { options.expressions = 0; }), "0 expressions, expected at least 1");
  EXPECT_EQ(refused([](auto& options) { options.most_tokens = 257; }),
            "257 tokens of an expression, expected 1 to 256");
  auto loss = sized<srjit_loss_options>();
  const auto hasLoss = [&](auto& options) { options.loss = &loss; };
  loss.loss = "huber:2";
  EXPECT_THAT(refused(hasLoss, SRJIT_ERROR_UNSUPPORTED), HasSubstr("expected one of plain errors"));
  loss.loss = "msx";
  EXPECT_THAT(refused(hasLoss), HasSubstr("is none of sse, mse"));
  loss.loss = nullptr;
  loss.nan = 3;
  EXPECT_EQ(refused(hasLoss), "nan is 3, expected 0 to 2");

  const auto created = [&](auto* engine, auto* data, auto* options, auto** to) {
    return invalid([&](auto error) { return srjit_device_loss_create(engine, data, options, to, error); });
  };
  srjit_device_loss* none = nullptr;
  srjit_device_loss** const nowhere = nullptr;
  const srjit_engine* const no_engine = nullptr;
  const srjit_dataset* const no_data = nullptr;
  const srjit_device_loss_options* const no_options = nullptr;
  EXPECT_EQ(created(no_engine, &data_, &options_, &none), "engine is NULL");
  EXPECT_EQ(created(&engine_, no_data, &options_, &none), "data is NULL");
  EXPECT_EQ(created(&engine_, &data_, no_options, &none), "options is NULL");
  EXPECT_EQ(created(&engine_, &data_, &options_, nowhere), "loss is NULL");
  srjit_device_loss_free(nullptr);
}

TEST_F(CInterfaceDeviceLoss, RefusesPopulationsAndOutputs) {
  const auto loss = deviceLoss();
  const srjit_device_population good = putOnDevice(w_.expressions, TokensOnDevice::kLengths);
  const Results results = memoryForResults();
  const auto refused = [&](const auto& change, std::int32_t code = SRJIT_ERROR_INVALID) {
    srjit_device_population population = good;
    srjit_device_loss_outputs out = outputsTo(results);
    change(population, out);
    return refusal(
        code, [&](auto error) { return srjit_device_loss_submit(loss.get(), &population, &out, stream(), error); });
  };
  EXPECT_THAT(refused([](auto& of, auto&) { of.size = 64; }), StartsWith("the size of population is 64"));
  EXPECT_EQ(refused([](auto& of, auto&) { of.values_type = 2; }), "values_type is 2, expected 0 to 1");
  EXPECT_EQ(refused([](auto& of, auto&) { of.notation = -1; }), "notation is -1, expected 0 to 1");
  EXPECT_EQ(refused([](auto& of, auto&) { of.codes = 0; }), "no address of codes");
  EXPECT_EQ(refused([](auto& of, auto&) { of.expressions = 61; }), "61 expressions, expected at most 60");
  EXPECT_THAT(refused([](auto&, auto& out) { out.size = 8; }), StartsWith("the size of out is 8"));
  EXPECT_EQ(refused([](auto&, auto& out) { out.type = 2; }), "type is 2, expected 0 to 1");
  EXPECT_EQ(refused([](auto&, auto& out) { out.reserved = -1; }), "reserved of out is 4294967295, expected 0");
  EXPECT_EQ(refused([](auto&, auto& out) { out.losses = 0; }), "no address of losses");
  EXPECT_THAT(refused([](auto&, auto& out) { out.faults = 64; }, SRJIT_ERROR_UNSUPPORTED),
              HasSubstr("faults at 0x40, which is not memory of"));
  stream_.synchronize();
  EXPECT_THAT(faultsAt(results, kExpressions), ::testing::Each(99));

  const srjit_device_loss_outputs out = outputsTo(results);
  EXPECT_EQ(invalid([&](auto e) { return srjit_device_loss_submit(nullptr, &good, &out, 0, e); }), "loss is NULL");
  EXPECT_EQ(invalid([&](auto e) { return srjit_device_loss_submit(loss.get(), nullptr, &out, 0, e); }),
            "population is NULL");
  EXPECT_EQ(invalid([&](auto e) { return srjit_device_loss_submit(loss.get(), &good, nullptr, 0, e); }), "out is NULL");
}

TEST_F(CInterface, ExpressionsOnDeviceNeedAGpu) {
  const std::int32_t add = srjit::codeOf(Op::kAdd);
  auto options = sized<srjit_device_loss_options>();
  options.operators = &add;
  options.operator_count = 1;
  options.expressions = 1;
  srjit_device_loss* loss = nullptr;
  EXPECT_THAT(
      refusal(SRJIT_ERROR_UNSUPPORTED,
              [&](auto error) { return srjit_device_loss_create(engine_.get(), data_.get(), &options, &loss, error); }),
      HasSubstr("that is not on one GPU"));
}

// The engine and the data may be freed first.
TEST(CInterfaceOnDevice, DeviceLossesKeepWhatTheyNeed) {
  FakeMachine machine;
  Owned<srjit_engine> engine(new srjit_engine{machine.engine({.precision = Precision::kF64})});
  const std::vector<double> x = {1, 2, 3, 4}, y = {2, 4, 6, 8};
  const srjit_matrix columns = columnOf(x), target = columnOf(y);
  auto view = sized<srjit_data>();
  view.columns = &columns;
  view.target = &target;
  auto data = made<srjit_dataset>([&](auto to, auto e) { return srjit_dataset_create(engine.get(), &view, to, e); });
  const std::int32_t add = srjit::codeOf(Op::kAdd);
  auto options = sized<srjit_device_loss_options>();
  options.operators = &add;
  options.operator_count = options.expressions = 1;
  const auto loss = made<srjit_device_loss>(
      [&](auto to, auto e) { return srjit_device_loss_create(engine.get(), data.get(), &options, to, e); });
  data.reset();
  engine.reset();
  ForeignArrays arrays(machine.driver);
  auto population = sized<srjit_device_population>();
  population.codes = arrays.add(std::vector<std::int32_t>{SRJIT_VARIABLE, SRJIT_VARIABLE, add});
  population.tokens = population.stride = 3;
  population.expressions = 1;
  auto out = sized<srjit_device_loss_outputs>();
  out.losses = arrays.add(std::vector<double>{77});
  out.type = SRJIT_F64;
  const auto cuda = Cuda::open(machine.driver.load().value(), 0).value();
  const CurrentContext current(*cuda);
  const Stream stream(cuda);
  const auto number = reinterpret_cast<std::uint64_t>(stream.get());
  ASSERT_EQ(srjit_device_loss_submit(loss.get(), &population, &out, number, nullptr), SRJIT_OK);
  stream.synchronize();
  EXPECT_THAT(arrays.read<double>(out.losses, 1), ElementsAre(0));
}

}  // namespace
}  // namespace srjit::c_api

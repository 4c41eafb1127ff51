// Losses of expressions in a GPU's memory: the bits of the same expressions from the host, and arrays that hold
// anything.
#include <bit>
#include <cmath>

#include "ir/ops.h"
#include "ir/token_codes.h"
#include "runtime/device_loss.h"
#include "tests/generators/token_arrays.h"
#include "tests/gpu/adopted.h"

namespace srjit {
namespace {

std::vector<Op> allOps() {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < kOpCount; ++i) ops.push_back(static_cast<Op>(i));
  return ops;
}

/// What a call wrote.
struct Written {
  std::vector<double> losses;
  std::vector<std::int64_t> valid_rows;
  std::vector<DeviceFault> faults;
};

class DeviceLossBits : public GpuInMode {
 protected:
  void SetUp() override {
    GpuInMode::SetUp();
    if (IsSkipped()) return;
    if (engine().options().device == "cpu") GTEST_SKIP() << "the processor has no device memory";
  }

  /// Puts the arrays into the GPU's memory and evaluates them twice. `stride` 0: by offsets.
  static Written evaluate(const DeviceLoss& loss, const TokenArrays& arrays, Notation notation, std::size_t stride) {
    ForeignMemory memory;
    const std::size_t count = arrays.offsets.size() - 1;
    std::vector<std::int32_t> codes = arrays.codes;
    std::vector<double> values = arrays.constants;
    if (stride != 0) {
      codes.assign(count * stride, 7'777);
      values.assign(count * stride, 1e300);
      for (std::size_t e = 0; e < count; ++e) {
        for (auto t = arrays.offsets[e]; t < arrays.offsets[e + 1]; ++t) {
          const auto from = static_cast<std::size_t>(t),
                     to = e * stride + static_cast<std::size_t>(t - arrays.offsets[e]);
          codes[to] = arrays.codes[from];
          values[to] = arrays.constants[from];
        }
      }
    }
    DevicePopulation population{.tokens = codes.size(), .expressions = count, .stride = stride, .notation = notation};
    population.codes = memory.putValues(std::span<const std::int32_t>(codes));
    population.values = memory.putValues(std::span<const double>(values));
    population.values_type = Precision::kF64;
    if (stride == 0) population.offsets = memory.putValues(std::span<const std::int64_t>(arrays.offsets));
    const std::vector<double> poison(count, 77);
    DeviceLossOutputs out{.type = Precision::kF64};
    out.losses = memory.putValues(std::span<const double>(poison));
    out.valid_rows = memory.putValues(std::span<const double>(poison));
    out.faults = memory.putValues(std::span<const double>(poison));
    for (int i = 0; i < 2; ++i) {
      const Status put = loss.submit(population, out, std::bit_cast<std::uint64_t>(memory.stream().get()));
      EXPECT_TRUE(put.ok()) << put.error().message;
    }
    return {memory.read<double>(out.losses, count), memory.read<std::int64_t>(out.valid_rows, count),
            memory.read<DeviceFault>(out.faults, count)};
  }

  /// A parameter has the value of the workload.
  static void addExpression(const Workload& w, const Program& program, std::size_t e, Notation notation,
                            TokenArrays& arrays) {
    const std::size_t first = arrays.codes.size();
    notation == Notation::kPrefix ? arrays.addPrefix(w.expressions[e]) : arrays.addPostfix(w.expressions[e]);
    const std::span<const double> parameters = w.parametersOf(program, e);
    for (std::size_t t = first; t < arrays.codes.size(); ++t) {
      if (isParameterCode(arrays.codes[t])) arrays.constants[t] = parameters[indexOfCode(arrays.codes[t])];
    }
  }

  void expectTheBitsOfTheHosts(const Workload& w, const LossOptions& options, std::uint32_t most_tokens) const {
    const Engine engine = this->engine();
    const Dataset data = engine.upload(w.view()).value();
    const Program program = engine.compile(w.expressions, {.tier = Tier::kInterpret, .simplify = false});
    const Losses expected = lossesOf(engine, program, data, w.parameters, options);
    const DeviceLoss loss = engine
                                .deviceLoss(data, {.operators = allOps(),
                                                   .expressions = w.expressions.size(),
                                                   .most_tokens = most_tokens,
                                                   .loss = options})
                                .value();
    TokenArrays postfix, prefix;
    for (std::size_t e = 0; e < w.expressions.size(); ++e) {
      addExpression(w, program, e, Notation::kPostfix, postfix);
      addExpression(w, program, e, Notation::kPrefix, prefix);
    }
    // Host populations of this size go the same way.
    const Losses of_arrays =
        engine.loss(postfix.view(), data, w.parameters, options, {.tier = Tier::kInterpret, .simplify = false}).value();
    expectSameLosses(of_arrays, expected, "arrays of the host, and a program");
    const struct {
      const TokenArrays& arrays;
      Notation notation;
      std::size_t stride;
    } layouts[] = {
        {postfix, Notation::kPostfix, 0}, {prefix, Notation::kPrefix, 0}, {prefix, Notation::kPrefix, most_tokens}};
    for (const auto& layout : layouts) {
      const Written written = evaluate(loss, layout.arrays, layout.notation, layout.stride);
      std::size_t different = 0;
      for (std::size_t e = 0; e < w.expressions.size(); ++e) {
        ASSERT_EQ(written.faults[e], DeviceFault::kNone) << print(w.expressions[e], Language::kInfix);
        if (sameBits(written.losses[e], expected.values[e]) &&
            static_cast<std::uint64_t>(written.valid_rows[e]) == expected.valid_rows[e]) {
          continue;
        }
        if (++different > 5) continue;
        ADD_FAILURE() << print(w.expressions[e], Language::kInfix) << ": " << written.losses[e] << " and "
                      << expected.values[e] << ", rows " << written.valid_rows[e] << " and " << expected.valid_rows[e];
      }
      EXPECT_EQ(different, 0U) << "of " << w.expressions.size();
    }
  }
};

// Altogether 10^6.
TEST_P(DeviceLossBits, OfManyExpressionsAreTheHosts) {
  GeneratorOptions options = generatorOf(50, 40);
  options.special_probability = 0.05;
  const Workload w = Workload::random(options, 180'000, 257, Spread::kSpecial, mode().precision);
  expectTheBitsOfTheHosts(w, {.kind = LossKind::kMse, .nan = NanPolicy::kSkip}, 64);
}

TEST_P(DeviceLossBits, OfLongExpressionsAreTheHosts) {
  GeneratorOptions options = generatorOf(51, static_cast<int>(kMostDeviceTokens), exactOps());
  options.min_nodes = 100;
  Workload w = Workload::random(options, 2'000, 1'000, Spread::kSpecial, mode().precision);
  w.weights = quarterWeights(w.rows());
  for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kReject}) {
    expectTheBitsOfTheHosts(w, {.kind = LossKind::kMae, .nan = nan}, kMostDeviceTokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, DeviceLossBits, testing::ValuesIn(allModes()), modeName);

using DeviceLossSanitize = DeviceLossBits;

TEST_P(DeviceLossSanitize, ReadsNothingOutsideOfHostileArrays) {
  const Engine engine = this->engine();
  const Workload w = Workload::random(generatorOf(52, 12, exactOps()), 1, 131, Spread::kTame, mode().precision);
  const Dataset data = engine.upload(w.view()).value();
  Random random(53);
  for (const std::uint32_t most_tokens : {5U, 64U, 256U}) {
    const DeviceLoss loss =
        engine.deviceLoss(data, {.operators = exactOps(), .expressions = 300, .most_tokens = most_tokens}).value();
    for (const Notation notation : {Notation::kPostfix, Notation::kPrefix}) {
      TokenArrays arrays;
      arrays.offsets.clear();
      for (int e = 0; e <= 300; ++e) arrays.offsets.push_back(static_cast<std::int64_t>(random.below(2'500)) - 100);
      for (int t = 0; t < 2'200; ++t) {
        const bool is_wild = random.below(40) == 0;
        arrays.codes.push_back(is_wild
                                   ? static_cast<std::int32_t>(random.next())
                                   : (random.below(2) == 0 ? variableCode(static_cast<std::uint32_t>(random.below(6)))
                                                           : codeOf(exactOps()[random.below(exactOps().size())])));
        arrays.constants.push_back(std::bit_cast<double>(random.next()));
      }
      // By offsets that lead anywhere, and one after another.
      for (const std::size_t stride : {std::size_t{0}, std::size_t{7}}) {
        if (stride != 0) {
          arrays.offsets.clear();
          for (std::int64_t e = 0; e <= 300; ++e) arrays.offsets.push_back(e * 7);
        }
        const Written written = evaluate(loss, arrays, notation, stride);
        for (std::size_t e = 0; e < 300; ++e) {
          const bool is_faulty = written.faults[e] != DeviceFault::kNone;
          if (is_faulty) {
            ASSERT_TRUE(std::isnan(written.losses[e]) && written.valid_rows[e] == -1) << e;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, DeviceLossSanitize, testing::Values(Mode{Precision::kF32, Math::kFast}), modeName);

}  // namespace
}  // namespace srjit

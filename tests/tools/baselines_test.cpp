// The baselines of the benchmarks on a model of a GPU, which runs their PTX, and on the processor.
#include "tools/bench/designs/baseline.h"

#include <cmath>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "runtime/engine.h"
#include "tests/generators/population.h"
#include "tests/gpu_model/fake_driver.h"
#include "tools/bench/designs/code.h"
#include "tools/bench/designs/device.h"

namespace srjit {
namespace {

using ::testing::HasSubstr;

std::vector<Expression> expressionsOf(std::initializer_list<const char*> texts) {
  std::vector<Expression> expressions;
  for (const char* const text : texts) expressions.push_back(parse(text, Language::kInfix).value());
  return expressions;
}

/// Expressions of all operators, over 3 columns and up to 3 parameters.
std::vector<Expression> population(std::size_t count, std::uint64_t seed) {
  GeneratorOptions options{.seed = seed, .min_nodes = 1, .max_nodes = 12, .variables = 3, .parameters = 3};
  options.parameter_probability = 0.3;
  for (const BaselineOp& row : allBaselineOps()) options.ops.push_back(row.op);
  return ExpressionGenerator(options).batch(count);
}

BenchData dataOf(std::size_t rows) {
  Random random(3);
  BenchData data;
  const auto column = [&] {
    std::vector<float> values(rows);
    for (float& value : values) value = static_cast<float>(random.between(-3.0, 3.0));
    return values;
  };
  for (int c = 0; c < 3; ++c) data.columns.push_back(column());
  data.target = column();
  return data;
}

std::vector<double> parametersOf(std::span<const Expression> expressions, std::uint64_t seed) {
  Random random(seed);
  std::vector<double> parameters;
  for (const Expression& expression : expressions) {
    for (std::uint32_t p = 0; p < expression.parameterCount(); ++p) parameters.push_back(random.between(-2.0, 2.0));
  }
  return parameters;
}

enum class Design { kStackEach, kStackOnce, kPtx, kNvrtc, kCache, kTrees, kCpu };

/// A model of a GPU and a baseline on it; NVRTC compiles to PTX for the model.
struct Machine {
  explicit Machine(FakeDevice device = {}) : driver({.devices = {device}, .lag = true}) {}

  std::unique_ptr<Baseline> make(Design design, const BenchData& data) {
    const auto cuda = [this] { return Cuda::open(driver.load().value(), 0).value(); };
    switch (design) {
      case Design::kStackEach:
        return makeStackBaseline(cuda(), data, 1);
      case Design::kStackOnce:
        return makeStackBaseline(cuda(), data, kMaxGridY);
      case Design::kPtx:
        return makePtxBaseline(cuda(), data);
      case Design::kNvrtc:
        return makeNvrtcBaseline(cuda(), data);
      case Design::kCache:
        return makeCacheBaseline(cuda(), data);
      case Design::kTrees:
        return makeTreeBaseline(cuda(), data);
      default:
        return makeCpuSwitch(data);
    }
  }

  FakeDriver driver;
};

FakeDevice deviceFor(Design design) {
  FakeDevice device;
  if (design == Design::kNvrtc) device.capability = 100;
  return device;
}

class Baselines : public ::testing::TestWithParam<Design> {
 protected:
  void SetUp() override {
    if (GetParam() == Design::kNvrtc && !hasNvrtc()) GTEST_SKIP() << "NVRTC was not found";
  }
  std::unique_ptr<Baseline> make(const BenchData& data) { return machine_.make(GetParam(), data); }

  Machine machine_{deviceFor(GetParam())};
};

TEST_P(Baselines, KeepTheErrorBoundOfTheReference) {
  const BenchData data = dataOf(300);
  const std::vector<Expression> expressions = population(40, 11);
  const std::vector<double> parameters = parametersOf(expressions, 5);
  const auto baseline = make(data);
  const BaselineAgreement agreement = checkBaseline(*baseline, expressions, data, parameters, 2, 40, 64);
  EXPECT_EQ(agreement.compared, 40U * 64U);
  EXPECT_GT(agreement.promised, agreement.compared / 3);
  EXPECT_GT(agreement.sums, 10U);
}

TEST_P(Baselines, TakePowersOfEverySign) {
  BenchData data;
  data.columns.resize(2);
  for (const float x : {-2.0F, -0.5F, 0.0F, 1.5F}) {
    for (const float y : {-3.0F, -2.0F, -0.5F, 0.0F, 1.0F, 2.0F, 3.0F}) {
      data.columns[0].push_back(x);
      data.columns[1].push_back(y);
    }
  }
  data.target.resize(data.columns[0].size());
  const auto baseline = make(data);
  const std::vector<Expression> expressions = expressionsOf({"x0^x1"});
  baseline->prepare(expressions);
  std::vector<float> got(data.target.size());
  baseline->predictions({}, got);
  for (std::size_t r = 0; r < got.size(); ++r) {
    const float expected = std::pow(data.columns[0][r], data.columns[1][r]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got[r])) << "row " << r;
    } else if (std::isinf(expected)) {
      EXPECT_TRUE(std::isinf(got[r])) << "row " << r;
    } else {
      EXPECT_NEAR(got[r], expected, 1e-5F * std::fabs(expected)) << "row " << r;
    }
  }
}

TEST_P(Baselines, TakeNewParametersAndNewGenerations) {
  const BenchData data = dataOf(5);
  const auto baseline = make(data);
  for (const auto& expressions : {expressionsOf({"p0*x0+p1", "x1", "p0*x0"}), expressionsOf({"x0+p0*p0*x2"}),
                                  expressionsOf({"x0*x1+p0", "x0*x1-p0", "x2", "3.5"})}) {
    baseline->prepare(expressions);
    for (const std::uint64_t step : {1, 2}) {
      const std::vector<double> parameters = parametersOf(expressions, step);
      std::vector<float> got(expressions.size() * 5), expected(got.size());
      std::vector<double> sums(expressions.size());
      baseline->predictions(parameters, got);
      baseline->losses(parameters, sums);
      EXPECT_GT(baseline->kernelSeconds(), 0);
      std::vector<float> numbers(parameters.begin(), parameters.end());
      for (std::size_t e = 0, first = 0; e < expressions.size(); first += expressions[e].parameterCount(), ++e) {
        const std::span<float> values = std::span(expected).subspan(e * 5, 5);
        runSwitch(expressions[e], data.columns, std::span(numbers).subspan(first), 0, values);
        double sum = 0;
        for (std::size_t r = 0; r < 5; ++r) {
          EXPECT_NEAR(got[e * 5 + r], values[r], 1e-4F) << "expression " << e << " row " << r;
          sum += std::pow(static_cast<double>(values[r] - data.target[r]), 2);
        }
        EXPECT_NEAR(sums[e], sum, 1e-4 * sum + 1e-6);
      }
    }
  }
}

/// Sums of squared errors by an engine of the processor.
std::vector<double> engineSums(std::span<const Expression> expressions, const BenchData& data,
                               std::span<const double> parameters) {
  const Engine engine = Engine::create({.device = "cpu", .math = Math::kFast, .threads = 1}).value();
  const Dataset dataset = engine.upload(data.view()).value();
  const Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
  return engine.loss(program, dataset, parameters, {.kind = LossKind::kSse}).value().values;
}

// Uses more than one module of NVRTC, which has 100 expressions.
TEST_P(Baselines, GiveTheSumsOfAnEngine) {
  const BenchData data = dataOf(130);
  std::vector<Expression> expressions = population(100, 23);
  expressions.push_back(expressionsOf({"p0*x0+x1"})[0]);
  const std::vector<double> parameters = parametersOf(expressions, 9);
  const auto baseline = make(data);
  baseline->prepare(expressions);
  std::vector<double> sums(expressions.size());
  baseline->losses(parameters, sums);
  const std::vector<double> expected = engineSums(expressions, data, parameters);
  EXPECT_NEAR(sums.back(), expected.back(), 1e-4 * expected.back());
  const auto agreement = compareSums(sums, expected, data.target);
  EXPECT_GT(agreement.finite, 40U);
}

TEST_P(Baselines, RejectInvalidInput) {
  const BenchData data = dataOf(5);
  const auto baseline = make(data);
  const std::vector<Expression> expressions = expressionsOf({"p0*x0+x1"});
  if (GetParam() != Design::kCpu) {
    EXPECT_THROW(baseline->prepare(expressionsOf({"x0+x1", "tan(x0)"})), BenchFailure);
  }
  baseline->prepare(expressions);
  std::vector<float> out(5);
  std::vector<double> sums(1);
  const std::vector<double> none, one = {1.0};
  EXPECT_THROW(baseline->predictions(none, out), BenchFailure);
  EXPECT_THROW(baseline->predictions(one, std::span(out).first(4)), BenchFailure);
  EXPECT_THROW(baseline->losses(none, sums), BenchFailure);
  EXPECT_THROW(baseline->losses(one, std::span(sums).first(0)), BenchFailure);
  EXPECT_NO_THROW(baseline->losses(one, sums));
}

std::string nameOfDesign(const ::testing::TestParamInfo<Design>& design) {
  constexpr const char* kNames[] = {"StackEach", "StackOnce", "PtxEach", "Nvrtc", "Cache", "Trees", "Cpu"};
  return kNames[static_cast<std::size_t>(design.param)];
}

INSTANTIATE_TEST_SUITE_P(, Baselines,
                         ::testing::Values(Design::kStackEach, Design::kStackOnce, Design::kPtx, Design::kNvrtc,
                                           Design::kCache, Design::kTrees, Design::kCpu),
                         nameOfDesign);

TEST(DeviceBaselines, LaunchCountsMatchTheDesign) {
  const BenchData data = dataOf(130);
  const std::vector<Expression> expressions = expressionsOf({"x0+x1", "x0-x1", "x0*x1", "sin(x0+x1)", "x2"});
  for (const auto& [design, launches] : {std::pair{Design::kStackEach, 5U},
                                         {Design::kStackOnce, 1U},
                                         {Design::kPtx, 5U},
                                         {Design::kCache, 2U},
                                         {Design::kTrees, 1U}}) {
    Machine machine;
    const auto baseline = machine.make(design, data);
    baseline->prepare(expressions);
    machine.driver.forgetCalls();
    std::vector<double> sums(expressions.size());
    baseline->losses({}, sums);
    EXPECT_EQ(machine.driver.count("cuLaunchKernel"), launches);
    EXPECT_EQ(machine.driver.count("cuModuleLoadDataEx"), 0U) << "compiling belongs to prepare()";
  }
}

// More programs than the maximum grid height need several launches.
TEST(DeviceBaselinesSlow, InterpretMoreExpressionsThanTheGridLimit) {
  const BenchData data = dataOf(1);
  std::vector<Expression> expressions(65536, expressionsOf({"x0"})[0]);
  expressions[65534] = expressionsOf({"x1"})[0];
  expressions[65535] = expressionsOf({"x2"})[0];
  for (const Design design : {Design::kStackOnce, Design::kTrees}) {
    Machine machine;
    const auto baseline = machine.make(design, data);
    baseline->prepare(expressions);
    machine.driver.forgetCalls();
    std::vector<float> out(expressions.size());
    baseline->predictions({}, out);
    EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 2U);
    for (std::size_t e = 0; e < expressions.size(); ++e) {
      ASSERT_EQ(out[e], data.columns[e < 65534 ? 0 : e - 65533][0]) << e;
    }
  }
}

TEST(DeviceBaselines, LargePredictionsAreDividedIntoGroups) {
  FakeDevice device;
  device.memory_bytes = 96 << 10;
  const BenchData data = dataOf(256);
  const std::vector<Expression> expressions(60, expressionsOf({"x0-x1"})[0]);
  for (const Design design : {Design::kStackEach, Design::kStackOnce, Design::kPtx, Design::kCache, Design::kTrees}) {
    Machine machine(device);
    const auto baseline = machine.make(design, data);
    baseline->prepare(expressions);
    std::vector<float> out(expressions.size() * 256);
    baseline->predictions({}, out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], data.columns[0][i % 256] - data.columns[1][i % 256]) << i;
    }
    EXPECT_LE(machine.driver.peakBytes(), device.memory_bytes);
  }
}

TEST(DeviceBaselines, CopyDirectlyToPinnedMemory) {
  const BenchData data = dataOf(256);
  Machine machine;
  const auto cuda = Cuda::open(machine.driver.load().value(), 0).value();
  const auto baseline = makeStackBaseline(cuda, data, kMaxGridY);
  baseline->prepare(expressionsOf({"x0", "x1"}));
  const CurrentContext current(*cuda);
  const PinnedBuffer out(cuda, std::size_t{2} * 256 * sizeof(float));
  baseline->predictions({}, out.as<float>());
  for (std::size_t i = 0; i < 256; ++i) ASSERT_EQ(out.as<float>()[256 + i], data.columns[1][i]);
}

TEST(BaselineList, NamesEachDesignOnce) {
  std::set<std::string> names;
  for (const BaselineInfo& info : allBaselines()) EXPECT_TRUE(names.insert(info.name).second) << info.name;
  EXPECT_EQ(names, (std::set<std::string>{"stack-each", "stack-once", "tree-arrays", "ptx-each", "nvrtc",
                                          "subtree-cache", "cpu-switch"}));
}

TEST(BaselineList, MarksTheDesignsThatCompile) {
  std::set<std::string> names;
  for (const BaselineInfo& info : allBaselines()) {
    if (info.compiles) names.insert(info.name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"ptx-each", "nvrtc"}));
}

TEST(BaselineList, ReportsAMissingDevice) {
  for (const BaselineInfo& info : allBaselines()) {
    if (std::string(info.name) == "cpu-switch") continue;
    EXPECT_THROW(info.make({.columns = {{1}}, .target = {1}}, 1000), CudaFailure) << info.name;
  }
}

/// A baseline that is correct except one prediction or sum.
class Flawed final : public Baseline {
 public:
  Flawed(const BenchData& data, float off, double off_sum)
      : right_(makeCpuSwitch(data)), off_(off), off_sum_(off_sum) {}
  void prepare(std::span<const Expression> expressions) override { right_->prepare(expressions); }
  void losses(std::span<const double> parameters, std::span<double> sums) override {
    right_->losses(parameters, sums);
    sums.back() *= off_sum_;
  }
  void predictions(std::span<const double> parameters, std::span<float> out) override {
    right_->predictions(parameters, out);
    for (float& value : out) value *= off_;
  }
  double kernelSeconds() const override { return 0; }

 private:
  std::unique_ptr<Baseline> right_;
  float off_;
  double off_sum_;
};

TEST(CheckBaseline, DetectsWrongResults) {
  const BenchData data = dataOf(100);
  const std::vector<Expression> expressions = expressionsOf({"x0+x1", "x0*p0+p1", "x2*x2"});
  const std::vector<double> parameters = {0.5, 2.0};
  const auto messageOf = [&](float off, double off_sum) -> std::string {
    Flawed baseline(data, off, off_sum);
    try {
      return checkBaseline(baseline, expressions, data, parameters).text();
    } catch (const BenchFailure& failure) {
      return failure.error.message;
    }
  };
  EXPECT_EQ(messageOf(1, 1), "checked: 96 of 96 predictions within their bound, 3 sums");
  EXPECT_THAT(messageOf(1.0001F, 1), HasSubstr("for expression 0 in row"));
  EXPECT_THAT(messageOf(1, 1.01), HasSubstr("sum of squared errors of expression 2"));
}

TEST(CheckBaseline, FailsWhereNothingCanBeCompared) {
  const BenchData data = dataOf(100);
  Flawed baseline(data, 1, 1);
  try {
    checkBaseline(baseline, expressionsOf({"log(x0-100)", "sqrt(x1-9)"}), data, {});
    FAIL() << "it passed";
  } catch (const BenchFailure& failure) {
    EXPECT_THAT(failure.error.message, HasSubstr("too little could be compared"));
  }
}

TEST(CheckBaseline, SamplesHalfFromFiniteExpressions) {
  const BenchData data = dataOf(100);
  std::vector<Expression> expressions(90, expressionsOf({"log(x0)"})[0]);
  expressions.resize(100, expressionsOf({"x0+x1"})[0]);
  Flawed baseline(data, 1, 1);
  const auto agreement = checkBaseline(baseline, expressions, data, {}, 3, 10, 8);
  EXPECT_GE(agreement.sums, 5U);
  EXPECT_LT(agreement.sums, 10U);
}

TEST(CompareSums, ToleratesSingleDifferencesOnly) {
  const std::vector<float> target(10, 1.0F);
  std::vector<double> expected(200, 5.0), sums = expected;
  expected[7] = std::numeric_limits<double>::quiet_NaN();
  expected[8] = std::numeric_limits<double>::infinity();
  sums[20] = 5.04;
  sums[0] = sums[1] = sums[2] = 5.1;
  sums[3] = std::numeric_limits<double>::quiet_NaN();
  sums[7] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(compareSums(sums, expected, target).text(), "195 of 200 sums as sr-jit's, 198 of them finite");
  sums[4] = 4.9;
  try {
    compareSums(sums, expected, target);
    FAIL() << "it passed";
  } catch (const BenchFailure& failure) {
    EXPECT_THAT(failure.error.message, HasSubstr("the first that differs is expression 0: 5.1 instead of 5"));
  }
}

TEST(CompareSums, IgnoresRoundingErrorsOfTheTarget) {
  const std::vector<float> target(100, 2.0F);
  const std::vector<double> expected = {1e-9, 2e-9}, sums = {3e-6, 0}, wrong = {1e-5, 2e-5};
  EXPECT_EQ(compareSums(sums, expected, target).same, 2U);
  EXPECT_THROW(compareSums(wrong, expected, target), BenchFailure);
  EXPECT_THROW(compareSums({}, {}, target), BenchFailure) << "no sums to compare";
}

TEST(CompareSums, SumsNextToPolesOnlyNeedToBeLarge) {
  const std::vector<float> target(100, 1.0F);  // its own sum of squares is 100
  const std::vector<double> expected = {1.0, 5e5, 5e5, 5e5};
  EXPECT_EQ(compareSums(std::vector{1.0, 2e3, 1e9, std::numeric_limits<double>::infinity()}, expected, target).same,
            4U);
  EXPECT_THROW(compareSums(std::vector{1.0, 100.0, 100.0, 5e5}, expected, target), BenchFailure);
  EXPECT_THROW(compareSums(std::vector{5e5, 5e5}, std::vector{5e5, 5e5}, target), BenchFailure) << "none is finite";
  const std::vector<float> zeros(100, 0.0F);
  EXPECT_THROW(compareSums(expected, expected, zeros), BenchFailure) << "a zero target gives no scale";
}

TEST(CheckBaseline, SamplesManyExpressions) {
  const BenchData data = dataOf(50);
  const std::vector<Expression> expressions = population(500, 17);
  Flawed baseline(data, 1, 1);
  const auto agreement = checkBaseline(baseline, expressions, data, parametersOf(expressions, 1), 4, 20, 3);
  EXPECT_EQ(agreement.compared, 60U);
  EXPECT_THROW(checkBaseline(baseline, expressions, data, {}), BenchFailure) << "parameters are missing";
}

}  // namespace
}  // namespace srjit

// Populations of the host that lanes encode as they are written, on the model of a GPU: the losses, rows and failures
// of programs that the host encodes.
#include <algorithm>
#include <chrono>

#include <gmock/gmock.h>

#include "ir/token_codes.h"
#include "runtime/evaluation/survey.h"
#include "tests/generators/graphs.h"
#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr CompileOptions kAsWritten{.tier = Tier::kInterpret, .simplify = false};

/// Random expressions with parameters, among them some that are not valid, and some that are too long for lanes.
struct HostPopulation {
  explicit HostPopulation(Notation notation, std::size_t count = 1'500) {
    const auto add = [&](const Expression& expression) {
      notation == Notation::kPrefix ? arrays.addPrefix(expression) : arrays.addPostfix(expression);
    };
    w = arithmeticWorkload(61, count, 200, Precision::kF32);
    std::size_t parameters = 0;
    for (std::size_t e = 0; e < w.expressions.size(); ++e) {
      add(w.expressions[e]);
      parameters += w.expressions[e].parameterCount();
      if (e % 100 == 7) addCodes({codeOf(Op::kAdd)});
      if (e % 100 == 8) addCodes({});
      if (e % 300 == 9) addCodes({variableCode(77)});
      if (e % 300 == 10) addCodes({variableCode(0), variableCode(1)});
      if (e % 300 == 11) addCodes({31'000});
      // Valid, but the data lack a column, so its parameter counts; and an index that is too large.
      if (e % 300 == 12 && notation == Notation::kPostfix) {
        addCodes({variableCode(77), parameterCode(0), codeOf(Op::kAdd)});
        w.parameters.insert(w.parameters.begin() + static_cast<std::ptrdiff_t>(parameters), 0.5);
        ++parameters;
      }
      if (e % 300 == 13) addCodes({parameterCode(1U << 21)});
    }
    const std::size_t before = w.parameters.size();
    add(chainOf(200, [](std::uint32_t i) { return i % 5; }, [](std::uint32_t) { return Op::kAdd; }));
    EXPECT_GT(arrays.offsets.back() - arrays.offsets[arrays.offsets.size() - 2], 256);
    EXPECT_EQ(w.parameters.size(), before);
  }
  void addCodes(std::initializer_list<std::int32_t> codes) {
    for (const std::int32_t code : codes) {
      arrays.codes.push_back(code);
      arrays.constants.push_back(1.5);
    }
    arrays.end();
  }

  Workload w;
  TokenArrays arrays;
};

/// Makes the kernels of lanes, which an engine otherwise makes in the background.
void makeLanes(const Engine& engine, const Dataset& data) {
  ASSERT_TRUE(engine.deviceLoss(data, {.operators = {Op::kAdd}, .expressions = 1}));
}

class LanePopulations : public testing::TestWithParam<std::tuple<Precision, Notation, NanPolicy, bool>> {};

INSTANTIATE_TEST_SUITE_P(, LanePopulations,
                         testing::Combine(testing::Values(Precision::kF32, Precision::kF64),
                                          testing::Values(Notation::kPostfix, Notation::kPrefix),
                                          testing::Values(NanPolicy::kPropagate, NanPolicy::kSkip, NanPolicy::kReject),
                                          testing::Bool()));

TEST_P(LanePopulations, HaveTheResultsOfPrograms) {
  const auto [precision, notation, nan, has_weights] = GetParam();
  FakeMachine machine;
  const Engine engine = machine.engine({.precision = precision, .math = Math::kPrecise});
  HostPopulation population(notation);
  if (has_weights) {
    for (std::size_t r = 0; r < population.w.rows(); ++r) population.w.weights.push_back(0.5 * (r % 4 == 0 ? 0 : 1));
  }
  const Dataset data = engine.upload(population.w.view()).value();
  const PopulationView view = population.arrays.view(notation);
  const LossOptions options{.kind = LossKind::kMse, .nan = nan};
  const Program program = engine.compile(view, kAsWritten).value();
  const Losses expected = engine.loss(program, data, population.w.parameters, options).value();
  makeLanes(engine, data);
  const std::size_t before = machine.driver.count("cuMemsetD8Async");
  const Losses found = engine.loss(view, data, population.w.parameters, options, kAsWritten).value();
  EXPECT_GT(machine.driver.count("cuMemsetD8Async"), before) << "by lanes";
  ASSERT_EQ(found.values.size(), expected.values.size());
  for (std::size_t e = 0; e < found.values.size(); ++e) {
    ASSERT_TRUE(sameBits(found.values[e], expected.values[e])) << e;
    ASSERT_EQ(found.valid_rows[e], expected.valid_rows[e]) << e;
  }
  ASSERT_EQ(found.failures.size(), expected.failures.size());
  EXPECT_GT(found.failures.size(), 30U);
  for (std::size_t i = 0; i < found.failures.size(); ++i) {
    EXPECT_EQ(found.failures[i].expression, expected.failures[i].expression);
    EXPECT_EQ(found.failures[i].error.message, expected.failures[i].error.message);
  }
}

TEST(LanePopulation, CountsParametersAndLimits) {
  FakeMachine machine;
  const Engine engine = machine.engine({.limits = {.max_nodes = 35}});
  const HostPopulation population(Notation::kPostfix);
  const Dataset data = engine.upload(population.w.view()).value();
  const PopulationView view = population.arrays.view();
  makeLanes(engine, data);
  const Result<Losses> wrong = engine.loss(view, data, {}, {}, kAsWritten);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("0 parameters, but the program has"));
  const Program program = engine.compile(view, kAsWritten).value();
  const std::vector<double> parameters(program.parameterOffset(program.size()), 1.25);
  const Losses expected = engine.loss(program, data, parameters).value();
  const std::size_t before = machine.driver.count("cuMemsetD8Async");
  const Losses found = engine.loss(view, data, parameters, {}, kAsWritten).value();
  EXPECT_GT(machine.driver.count("cuMemsetD8Async"), before) << "by lanes";
  ASSERT_EQ(found.failures.size(), expected.failures.size());
  for (std::size_t e = 0; e < found.values.size(); ++e) ASSERT_TRUE(sameBits(found.values[e], expected.values[e])) << e;
  EXPECT_TRUE(std::ranges::any_of(found.failures, [](const Failure& f) { return f.error.code == Errc::kLimit; }));
}

TEST(LanePopulation, MayBeSubmittedAndDropped) {
  FakeMachine machine;
  const Engine engine = machine.engine();
  HostPopulation population(Notation::kPostfix);
  const Dataset data = engine.upload(population.w.view()).value();
  const Losses expected = engine.loss(population.arrays.view(), data, population.w.parameters, {}, kAsWritten).value();
  makeLanes(engine, data);
  const std::size_t before = machine.driver.count("cuMemsetD8Async");
  (void)engine.submitLoss(population.arrays.view(), data, population.w.parameters, {}, kAsWritten).value();
  auto pending = engine.submitLoss(population.arrays.view(), data, population.w.parameters, {}, kAsWritten).value();
  EXPECT_GT(machine.driver.count("cuMemsetD8Async"), before + 1) << "by lanes";
  // The arguments are no longer needed.
  std::ranges::fill(population.arrays.codes, 0);
  std::ranges::fill(population.w.parameters, 0);
  pending.wait();
  EXPECT_TRUE(pending.ready());
  const Losses found = std::move(pending).result().value();
  for (std::size_t e = 0; e < found.values.size(); ++e) ASSERT_TRUE(sameBits(found.values[e], expected.values[e])) << e;
}

TEST(LanePopulation, IsEncodedByLanesOnceTheyAreMade) {
  FakeMachine machine;
  const Engine engine = machine.engine();
  const HostPopulation population(Notation::kPostfix);
  const Dataset data = engine.upload(population.w.view()).value();
  const auto fills = [&] {
    const std::size_t before = machine.driver.count("cuMemsetD8Async");
    EXPECT_TRUE(engine.loss(population.arrays.view(), data, population.w.parameters, {}, kAsWritten));
    return machine.driver.count("cuMemsetD8Async") - before;
  };
  EXPECT_EQ(fills(), 0U) << "of the host, the first time";
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (fills() == 0) ASSERT_LT(std::chrono::steady_clock::now(), end);
}

TEST(PopulationSurveys, FindWhatLanesNeed) {
  TokenArrays arrays;
  for (const char* const text : {"x3 + p1*2", "sin(x1)", "p0", "x9", "1"}) arrays.addPostfix(infix(text));
  const PopulationSurvey found = survey(arrays.view(), 5, 4);
  EXPECT_THAT(found.left, ElementsAre(0, 3)) << "one of five tokens, and one of a column that is not there";
  EXPECT_THAT(found.operators, ElementsAre(Op::kSin));
  EXPECT_THAT(found.columns, ElementsAre(1));
  EXPECT_EQ(found.most_tokens, 2U);
  EXPECT_THAT(found.parameter_counts, ElementsAre(0, 0, 1, 0, 0));
  const PopulationSurvey all = survey(arrays.view(), 10, 0);
  EXPECT_THAT(all.columns, ElementsAre(1, 3, 9));
  EXPECT_THAT(all.parameter_counts, ElementsAre(2, 0, 1, 0, 0));
  EXPECT_EQ(all.parameters(), 3U);
}

}  // namespace
}  // namespace srjit

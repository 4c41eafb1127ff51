// Predictions against the float64 reference, and edge cases of shapes and sizes.
#include <limits>

#include "ir/ops.h"
#include "ir/reference.h"
#include "passes/pass.h"
#include "tests/generators/graphs.h"
#include "tests/generators/workload.h"

namespace srjit {
namespace {

Token op(Op id) { return Token::operation(id); }
Token x(std::uint32_t i) { return Token::variable(i); }
Token p(std::uint32_t i) { return Token::parameter(i); }

void checkAgainstReference(const Arithmetic& arithmetic, std::uint64_t seed) {
  const GeneratorOptions options{
      .seed = seed, .min_nodes = 1, .max_nodes = 20, .variables = 4, .parameters = 2, .parameter_probability = 0.2};
  const std::size_t rows = 40;
  const Workload w = Workload::random(options, 150, rows, Spread::kTame, arithmetic.precision);
  const Engine engine = Engine::create({.precision = arithmetic.precision, .math = arithmetic.math}).value();
  const auto [data, program] = prepared(engine, w, {.tier = Tier::kInterpret});
  const std::vector<double> predictions = predict(engine, program, data, w.parameters);
  std::size_t promised = 0;
  for (std::size_t e = 0; e < w.expressions.size(); ++e) {
    std::vector<double> parameters;
    for (const double value : w.parametersOf(program, e)) parameters.push_back(roundTo(arithmetic.precision, value));
    for (std::size_t r = 0; r < rows; ++r) {
      std::vector<double> row;
      for (const auto& column : w.columns) row.push_back(column[r]);
      const Bounded expected = evaluateBounded(w.expressions[e], row, parameters, arithmetic);
      const double got = predictions[e * rows + r];
      if (!std::isfinite(expected.error)) continue;
      ++promised;
      if (std::isnan(expected.value) && std::isnan(got)) continue;
      if (expected.value == got) continue;
      ASSERT_LE(std::fabs(got - expected.value), expected.error)
          << nameOf(arithmetic.precision) << " " << nameOf(arithmetic.math) << " expression " << e << " row " << r
          << ": " << got << ", reference " << expected.value;
    }
  }
  EXPECT_GT(promised, w.expressions.size() * rows / 4);
}

TEST(EvaluateSlow, StaysWithinTheBoundOfTheReference) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
      for (std::uint64_t seed = 1; seed <= 3; ++seed) checkAgainstReference({precision, math}, seed);
    }
  }
}

class Shapes : public testing::TestWithParam<Tier> {
 protected:
  Engine engine_ = Engine::create({.precision = Precision::kF64}).value();

  std::vector<double> run(const Workload& w, std::vector<Failure>* failures = nullptr) {
    const auto [data, program] = prepared(engine_, w, {.tier = GetParam()});
    return predict(engine_, program, data, w.parameters, failures);
  }
};

TEST_P(Shapes, LeavesAndRepeatedRoots) {
  EXPECT_EQ(run({.expressions = infixes({"x1", "p0", "x0 + x1", "x0 + x1", "-4", "(x0 + x1)*(x0 + x1)", "x1"}),
                 .columns = {{1, 2, 3}, {10, 20, 30}},
                 .parameters = {7}}),
            (std::vector<double>{10, 20, 30, 7, 7, 7, 11, 22, 33, 11, 22, 33, -4, -4, -4, 121, 484, 1089, 10, 20, 30}));
}

TEST_P(Shapes, ATargetWithoutColumns) {
  EXPECT_EQ(run({.expressions = infixes({"p0 + p0"}), .target = {1, 2, 3}, .parameters = {1.5}}),
            (std::vector<double>{3, 3, 3}));
}

TEST_P(Shapes, AHundredVariables) {
  Workload w;
  std::vector<Token> tokens{x(0)};
  for (std::uint32_t i = 0; i < 100; ++i) {
    w.columns.push_back(std::vector<double>(300, static_cast<double>(i)));
    if (i > 0) tokens.insert(tokens.end(), {x(i), op(Op::kAdd)});
  }
  w.expressions = {build(tokens)};
  EXPECT_EQ(run(w), std::vector<double>(300, 4950.0));
}

TEST_P(Shapes, AChainOfAHundredThousandNodes) {
  Workload w;
  w.columns = {{1, 2, 3, 4, 5}};
  std::vector<Token> tokens{x(0)};
  for (int i = 0; i < 50000; ++i) tokens.insert(tokens.end(), {x(0), op(i % 2 == 0 ? Op::kMax : Op::kAdd)});
  w.expressions = {build(tokens), build({x(0)})};
  const std::vector<double> out = run(w);
  for (int r = 0; r < 5; ++r) EXPECT_EQ(out[static_cast<std::size_t>(r)], (r + 1) * 25001.0);
}

TEST_P(Shapes, ManyLiveValues) {
  // All squares of a comb are live at once: more values than any register file holds.
  Workload w;
  w.columns = {std::vector<double>(700, 1.5)};
  std::vector<Token> tokens;
  const int width = 600;
  for (int i = 0; i < width; ++i) tokens.insert(tokens.end(), {x(0), p(static_cast<std::uint32_t>(i)), op(Op::kMul)});
  for (int i = 1; i < width; ++i) tokens.push_back(op(Op::kAdd));
  w.expressions = {build(tokens)};
  w.parameters.assign(static_cast<std::size_t>(width), 2.0);
  EXPECT_EQ(run(w), std::vector<double>(700, 3.0 * width));
}

TEST_P(Shapes, ABadExpressionFailsAloneAndMovesNoParameters) {
  Workload w;
  w.columns.assign(4, std::vector<double>{1, 2});
  w.expressions = infixes({"x3 + x0", "p0*x9", "p0*x0", "x4", "x3 + x0"});
  w.parameters = {100, 300};
  std::vector<Failure> failures;
  const std::vector<double> out = run(w, &failures);
  ASSERT_EQ(failures.size(), 2U);
  EXPECT_EQ(failures[0].expression, 1U);
  EXPECT_EQ(failures[0].error.message, "variable x9, but the data has 4 variables");
  EXPECT_EQ(failures[0].error.code, Errc::kInvalid);
  EXPECT_EQ(failures[1].expression, 3U);
  EXPECT_EQ(failures[1].error.message, "variable x4, but the data has 4 variables");
  const double nan = std::nan("");
  expectSameBits(out, std::vector<double>{2, 4, nan, nan, 300, 600, nan, nan, 2, 4}, 2, "the others");
}

INSTANTIATE_TEST_SUITE_P(BothTiers, Shapes, testing::Values(Tier::kInterpret, Tier::kCompile),
                         [](const auto& tested) { return tested.param == Tier::kInterpret ? "interpret" : "compile"; });

TEST(Evaluate, FastFunctionsKeepExceptionalValues) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  struct Case {
    Op op;
    double x, y, expected;
  };
  const std::vector<Case> cases{{Op::kExp, inf, 0, inf},
                                {Op::kExp, -inf, 0, 0},
                                {Op::kExp, nan, 0, nan},
                                {Op::kExp, 1e30, 0, inf},
                                {Op::kExp, -1e30, 0, 0},
                                {Op::kExp, 0, 0, 1},
                                {Op::kExp2, 127, 0, 0x1p127},
                                {Op::kExp2, -126, 0, 0x1p-126},
                                {Op::kExp2, 128, 0, inf},
                                {Op::kLog, 0, 0, -inf},
                                {Op::kLog, -0.0, 0, -inf},
                                {Op::kLog, -1, 0, nan},
                                {Op::kLog, -inf, 0, nan},
                                {Op::kLog, inf, 0, inf},
                                {Op::kLog, nan, 0, nan},
                                {Op::kLog, 1, 0, 0},
                                {Op::kLog2, 0x1p-126, 0, -126},
                                {Op::kLog2, 0x1p127, 0, 127},
                                {Op::kPow, 0, 0, 1},
                                {Op::kPow, 0, 2, 0},
                                {Op::kPow, 0, -2, inf},
                                {Op::kPow, -2, 3, -8},
                                {Op::kPow, -2, 2, 4},
                                {Op::kPow, -2, 0.5, nan},
                                {Op::kPow, inf, 2, inf},
                                {Op::kPow, inf, -2, 0},
                                {Op::kPow, 2, inf, inf},
                                {Op::kPow, nan, 2, nan},
                                {Op::kPow, 2, nan, nan},
                                {Op::kPow, nan, 0, 1},
                                {Op::kPow, 1.5, -1e30, 0}};
  const Engine engine = Engine::create({.math = Math::kFast}).value();
  for (const Case& c : cases) {
    const Expression expression = arityOf(c.op) == 2 ? build({x(0), x(1), op(c.op)}) : build({x(0), op(c.op)});
    const double got = predict(engine, {.expressions = {expression}, .columns = {{c.x}, {c.y}}}, Tier::kInterpret)[0];
    const double tolerance = std::isfinite(c.expected) ? 1e-5 * std::fabs(c.expected) : 0;
    EXPECT_TRUE(sameBits(got, c.expected) || std::fabs(got - c.expected) <= tolerance)
        << infoOf(c.op).name << " of " << c.x << " and " << c.y << " is " << got << ", expected " << c.expected;
  }
}

TEST(Evaluate, RowsPastTheEndAreNotWritten) {
  const Engine engine = Engine::create({}).value();
  for (const std::size_t rows : {1U, 60U, 129U, 513U}) {
    const auto [data, program] =
        prepared(engine, {.expressions = infixes({"x0*x0", "x0"}), .columns = {std::vector<double>(rows, 3)}});
    std::vector<float> out(2 * rows + 200, -1.0F);
    ASSERT_TRUE(engine.evaluate(program, data, {}, std::span<float>(out).first(2 * rows)).ok());
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i < rows ? 9 : i < 2 * rows ? 3 : -1) << i;
  }
}

TEST(Evaluate, FloatAndDoubleColumnsMix) {
  const Engine engine = Engine::create({.precision = Precision::kF64}).value();
  const std::vector<float> singles{0.1F};
  const std::vector<double> doubles{0.1};
  DataView view;
  view.columns = {std::span<const float>(singles), std::span<const double>(doubles)};
  const Dataset data = engine.upload(view).value();
  const Program program = engine.compile(infixes({"x0", "x1"}));
  EXPECT_EQ(predict(engine, program, data, {}), (std::vector<double>{static_cast<double>(0.1F), 0.1}));
}

TEST(Evaluate, AutoCompilesOnlyWhatIsUsedOften) {
  const Engine engine = Engine::create({}).value();
  const std::vector<Expression> one = infixes({"x0*x0"});
  EXPECT_EQ(engine.compile(one).info().tier, Tier::kInterpret);
  EXPECT_EQ(engine.compile(one, {.expected_evaluations = 1, .expected_rows = 1000}).info().tier, Tier::kInterpret);
  EXPECT_EQ(engine.compile(one, {.expected_evaluations = 1000, .expected_rows = 1000000}).info().tier, Tier::kCompile);
  EXPECT_EQ(engine.compile(one, {.tier = Tier::kCompile}).info().tier, Tier::kCompile);
  const ProgramInfo info = engine.compile(one).info();
  EXPECT_EQ(info.nodes_before, 3U);
  EXPECT_EQ(info.nodes_after, 2U);
}

// LLVM compiles, which takes far longer than a tick of the clock.
TEST(Evaluate, ProgramsKnowWhatTheyTookToMake) {
  ASSERT_TRUE(registerPass(waitingPass("waits-for-predictions")).ok());
  const Engine engine = Engine::create({}).value();
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    const Pipeline pipeline = Pipeline::parse("standard,waits-for-predictions,schedule", Math::kPrecise).value();
    const ProgramInfo info = engine.compile(infixes({"x0*x0"}), {.tier = tier, .pipeline = pipeline}).info();
    EXPECT_GE(info.seconds_passes, kWaitingPassSeconds);
    if (tier == Tier::kCompile) {
      EXPECT_GT(info.seconds_codegen, 0);
    }
  }
}

}  // namespace
}  // namespace srjit

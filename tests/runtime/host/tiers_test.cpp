// The two tiers, any batch, any number of threads: the same bits.
#include <algorithm>
#include <numeric>

#include "tests/generators/token_arrays.h"
#include "tests/generators/workload.h"

#include "ir/ops.h"
#include "ir/text.h"

namespace srjit {
namespace {

struct Mode {
  Precision precision;
  Math math;
};

std::string nameOf(const testing::TestParamInfo<Mode>& info) {
  return std::string(nameOf(info.param.precision)) + "_" + nameOf(info.param.math);
}

class Tiers : public testing::TestWithParam<Mode> {
 protected:
  Engine engine(unsigned threads = 2) const {
    return Engine::create({.precision = GetParam().precision, .math = GetParam().math, .threads = threads}).value();
  }
  Workload workload(std::uint64_t seed, std::size_t count, std::size_t rows) const {
    const GeneratorOptions options{.seed = seed,
                                   .min_nodes = 1,
                                   .max_nodes = 30,
                                   .variables = 5,
                                   .parameters = 3,
                                   .parameter_probability = 0.2,
                                   .special_probability = 0.1};
    return Workload::random(options, count, rows, Spread::kSpecial, GetParam().precision);
  }
};

TEST_P(Tiers, AgreeOnEveryOperator) {
  const Engine engine = this->engine();
  Workload w = workload(1, 90, 1);
  const Program interpreted = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  const Program compiled = engine.compile(w.expressions, {.tier = Tier::kCompile});
  for (const std::size_t rows : {1, 63, 128, 517}) {
    w.columns = workload(rows, 0, rows).columns;
    w.target.clear();
    const Dataset data = engine.upload(w.view()).value();
    expectSameBits(predict(engine, interpreted, data, w.parameters), predict(engine, compiled, data, w.parameters),
                   rows, "tiers");
  }
}

// Values, gradients and fits; the tiers have one front end each.
TEST_P(Tiers, AgreeOnExpressionsAsTheyAreWritten) {
  const Engine engine = this->engine();
  Workload w = workload(4, 100, 260);
  const Dataset data = engine.upload(w.view()).value();
  const auto compiled = [&](Tier tier, bool simplify) {
    return engine.compile(w.expressions, {.tier = tier, .simplify = simplify});
  };
  const Program written = compiled(Tier::kInterpret, false), loops = compiled(Tier::kCompile, false);
  const std::vector<double> expected = predict(engine, written, data, w.parameters);
  expectSameBits(predict(engine, loops, data, w.parameters), expected, w.rows(), "compiled");
  const Losses losses = engine.loss(written, data, w.parameters).value();
  expectSameLosses(engine.loss(loops, data, w.parameters).value(), losses, "losses");
  expectSameLosses(engine.loss(tokensOf(w.expressions).view(), data, w.parameters, {}, {.simplify = false}).value(),
                   losses, "in one call");
  for (const LossKind kind : {LossKind::kScaledNmse, LossKind::kHuber}) {
    expectSameLosses(engine.loss(loops, data, w.parameters, {.kind = kind}).value(),
                     engine.loss(written, data, w.parameters, {.kind = kind}).value(), "loss of graphs");
  }
  const Gradients gradients = engine.gradient(written, data, w.parameters).value();
  expectSameLosses(gradients.losses, losses, "beside derivatives");
  expectSameBits(engine.gradient(loops, data, w.parameters).value().derivatives, gradients.derivatives, 1, "gradients");
  const auto fitted = [&](const Program& program) {
    return engine.fit(program, data, w.parameters, {.iterations = 4}).value().parameters;
  };
  expectSameBits(fitted(loops), fitted(written), 1, "fits");
  // One expression at a time, by another engine.
  const Engine other = this->engine(1);
  for (std::size_t e = 0; e < w.expressions.size(); e += 37) {
    const Program alone = other.compile(std::span(w.expressions).subspan(e, 1), {.simplify = false});
    const std::size_t first = written.parameterOffset(e), last = written.parameterOffset(e + 1);
    expectSameBits(predict(other, alone, other.upload(w.view()).value(),
                           std::vector(w.parameters.begin() + static_cast<std::ptrdiff_t>(first),
                                       w.parameters.begin() + static_cast<std::ptrdiff_t>(last))),
                   std::vector(expected.begin() + static_cast<std::ptrdiff_t>(e * w.rows()),
                               expected.begin() + static_cast<std::ptrdiff_t>((e + 1) * w.rows())),
                   w.rows(), "alone");
  }
  // Rules of `strict` are exact; others change some digits.
  const std::vector<double> simplified = predict(engine, compiled(Tier::kInterpret, true), data, w.parameters);
  EXPECT_EQ(std::ranges::equal(simplified, expected, sameBits<double>), GetParam().math == Math::kStrict);
  // So do all programs that are made of one.
  std::vector<double> twice = w.parameters;
  twice.insert(twice.end(), w.parameters.begin(), w.parameters.end());
  const Losses of_two = engine.loss(written, data, twice).value();
  for (std::size_t i = 0; i < of_two.values.size(); ++i) {
    EXPECT_TRUE(sameBits(of_two.values[i], losses.values[i % losses.values.size()]));
  }
  const Program deferred = engine.compile(w.expressions, {.simplify = false, .deferred = true});
  expectSameBits(predict(engine, deferred, data, w.parameters), expected, w.rows(), "deferred");
}

TEST_P(Tiers, OfATallTreeAreComputedAsAGraph) {
  std::string text = "x0";
  for (int i = 1; i < 40; ++i) text = fmt::format("x{} / sin(x{}) - ({})", i % 5, (i + 1) % 5, text);
  const Engine engine = this->engine();
  Workload w = workload(5, 0, 300);
  w.expressions =
      infixes(std::array{std::string_view("x0 - x1"), std::string_view(text), std::string_view("x1*x2 - x0")});
  const Dataset data = engine.upload(w.view()).value();
  const Program written = engine.compile(w.expressions, {.tier = Tier::kInterpret, .simplify = false});
  const Program loops = engine.compile(w.expressions, {.tier = Tier::kCompile, .simplify = false});
  expectSameBits(predict(engine, written, data, {}), predict(engine, loops, data, {}), w.rows(), "tall");
}

TEST_P(Tiers, WithAPipelineSimplifyIsRefused) {
  const Engine engine = this->engine();
  const std::vector<Expression> expressions = workload(6, 3, 0).expressions;
  const Program program =
      engine.compile(expressions, {.pipeline = Pipeline::standard(GetParam().math), .simplify = false});
  ASSERT_EQ(program.failures().size(), 3U);
  EXPECT_EQ(program.failures()[0].error.code, Errc::kInvalid);
}

TEST_P(Tiers, EachOperatorOverColumnsAndParameters) {
  const Engine engine = this->engine();
  Workload w = workload(7, 0, 200);
  for (std::size_t op = 0; op < allOps().size(); ++op) {
    const auto arity = static_cast<unsigned>(allOps()[op].arity);
    for (unsigned mask = 0; mask < 1U << arity; ++mask) {
      std::vector<Token> tokens;
      for (unsigned i = 0; i < arity; ++i) tokens.push_back(mask >> i & 1 ? Token::parameter(i) : Token::variable(i));
      tokens.push_back(Token::operation(static_cast<Op>(op)));
      w.expressions.push_back(build(tokens));
      for (std::uint32_t i = 0; i < w.expressions.back().parameterCount(); ++i) {
        w.parameters.push_back(0.75 + 0.5 * i);
      }
    }
  }
  expectSameBits(predict(engine, w, Tier::kInterpret), predict(engine, w, Tier::kCompile), 200, "tiers");
}

TEST_P(Tiers, DoNotDependOnTheBatch) {
  const Engine engine = this->engine();
  const std::size_t rows = 150;
  const Workload w = workload(3, 40, rows);
  const Dataset data = engine.upload(w.view()).value();
  const Program whole = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  const std::vector<double> expected = predict(engine, whole, data, w.parameters);

  std::vector<std::size_t> order(w.expressions.size());
  std::iota(order.begin(), order.end(), 0);
  Random random(5);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    for (const std::size_t part : {tier == Tier::kCompile ? 13UL : 1UL, 40UL}) {
      for (std::size_t first = 0; first < order.size(); first += part) {
        const std::size_t last = std::min(order.size(), first + part);
        std::vector<Expression> members;
        std::vector<double> parameters, wanted;
        for (std::size_t i = first; i < last; ++i) {
          members.push_back(w.expressions[order[i]]);
          const auto own = w.parametersOf(whole, order[i]);
          parameters.insert(parameters.end(), own.begin(), own.end());
          wanted.insert(wanted.end(), expected.begin() + static_cast<std::ptrdiff_t>(order[i] * rows),
                        expected.begin() + static_cast<std::ptrdiff_t>((order[i] + 1) * rows));
        }
        const Program program = engine.compile(members, {.tier = tier});
        expectSameBits(predict(engine, program, data, parameters), wanted, rows, "a part of the batch");
      }
    }
  }
}

TEST_P(Tiers, DoNotDependOnTheNumberOfThreads) {
  const std::size_t rows = 3001;
  Workload w = workload(11, 6, rows);
  w.weights.assign(rows, 1.0);
  for (std::size_t r = 0; r < rows; ++r) w.weights[r] = 0.25 * static_cast<double>(r % 5);
  std::vector<double> expected, expected_losses;
  for (const unsigned threads : {1U, 2U, 7U}) {
    const Engine engine = this->engine(threads);
    const auto [data, program] = prepared(engine, w, {.tier = Tier::kInterpret});
    const std::vector<double> predictions = predict(engine, program, data, w.parameters);
    const Losses losses = engine.loss(program, data, w.parameters, {LossKind::kMse, NanPolicy::kSkip}).value();
    if (expected.empty()) {
      expected = predictions;
      expected_losses = losses.values;
    }
    expectSameBits(predictions, expected, rows, "threads");
    expectSameBits(losses.values, expected_losses, 1, "threads, losses");
  }
}

TEST_P(Tiers, NewParametersNeedNoNewProgram) {
  const Engine engine = this->engine();
  const Workload w = workload(13, 20, 100);
  Workload moved = w;
  for (double& p : moved.parameters) p = p * 1.5 + 0.25;
  const std::vector<double> before = predict(engine, w, Tier::kInterpret);
  const std::vector<double> after = predict(engine, moved, Tier::kInterpret);
  EXPECT_FALSE(std::equal(before.begin(), before.end(), after.begin(), sameBits<double>));
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    const auto [data, program] = prepared(engine, w, {.tier = tier});
    expectSameBits(predict(engine, program, data, w.parameters), before, 100, "before");
    expectSameBits(predict(engine, program, data, moved.parameters), after, 100, "after");
    expectSameBits(predict(engine, program, data, w.parameters), before, 100, "back again");
  }
}

TEST_P(Tiers, WithoutPassesConstantsStayInTheGraph) {
  const Engine engine = this->engine();
  const Workload w = workload(17, 30, 65);
  const Dataset data = engine.upload(w.view()).value();
  const Pipeline none = Pipeline::parse("none", GetParam().math).value();
  const Program interpreted = engine.compile(w.expressions, {.tier = Tier::kInterpret, .pipeline = none});
  const Program compiled = engine.compile(w.expressions, {.tier = Tier::kCompile, .pipeline = none});
  expectSameBits(predict(engine, interpreted, data, w.parameters), predict(engine, compiled, data, w.parameters), 65,
                 "without passes");
}

INSTANTIATE_TEST_SUITE_P(Modes, Tiers,
                         testing::Values(Mode{Precision::kF32, Math::kStrict}, Mode{Precision::kF32, Math::kPrecise},
                                         Mode{Precision::kF32, Math::kFast}, Mode{Precision::kF64, Math::kStrict},
                                         Mode{Precision::kF64, Math::kPrecise}, Mode{Precision::kF64, Math::kFast}),
                         nameOf);

// Compiled code gains on arithmetic, and loses on functions (runtime/host/executor.cpp).
TEST(HostTierPolicy, CompilesWhereOperationsOutweighFunctions) {
  constexpr double kMany = 1000;
  const auto tierOf = [&](Math math, std::string_view text, double evaluations) {
    const Engine engine = Engine::create({.device = "cpu", .math = math}).value();
    return engine.compile(infixes({text}), {.expected_evaluations = evaluations, .expected_rows = 65536}).info().tier;
  };
  EXPECT_EQ(tierOf(Math::kPrecise, "x0*x1 + x0/(x1 + 2)", kMany), Tier::kCompile);
  EXPECT_EQ(tierOf(Math::kPrecise, "x0*x1 + x0/(x1 + 2)", 1), Tier::kInterpret) << "compiling takes longer";
  for (const std::string_view text : {"sin(x0)", "cos(x0)", "exp(x0)", "x0*exp(x1) + x1", "tanh(x0)^x1"}) {
    EXPECT_EQ(tierOf(Math::kPrecise, text, kMany), Tier::kInterpret) << text;
  }
  EXPECT_EQ(tierOf(Math::kPrecise, "exp(x0) + x0*x1 + x1*x2 + x2*x0 + x0*3", kMany), Tier::kCompile);
  EXPECT_EQ(tierOf(Math::kFast, "x0*exp(x1) + x1", kMany), Tier::kCompile) << "a short approximation";
  EXPECT_EQ(tierOf(Math::kFast, "x0*sin(x1) + x1", kMany), Tier::kInterpret);
}

}  // namespace
}  // namespace srjit

// Individuals that recur from one population to the next: their programs are found, and are the right ones.
#include <gtest/gtest.h>

#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

Workload populationOf(std::uint64_t seed, std::size_t count) {
  const GeneratorOptions options{.seed = seed,
                                 .min_nodes = 10,
                                 .max_nodes = 40,
                                 .variables = 5,
                                 .parameters = 3,
                                 .ops = arithmeticOps(),
                                 .constant_probability = 0.2,
                                 .parameter_probability = 0.2};
  return Workload::random(options, count, 100, Spread::kSpecial, Precision::kF32);
}

class Recurring : public testing::Test {
 protected:
  /// Expects the losses of the processor; returns how many expressions recurred.
  std::size_t compare(const std::vector<Expression>& expressions, const char* what) {
    std::vector<double> parameters;
    for (const Expression& expression : expressions) {
      for (std::uint32_t p = 0; p < expression.parameterCount(); ++p) {
        parameters.push_back(0.5 + 0.25 * static_cast<double>(parameters.size() % 17));
      }
    }
    const Program program = engine_.compile(expressions, {.tier = Tier::kInterpret});
    expectSameLosses(engine_.loss(program, data_, parameters).value(),
                     cpu_.loss(cpu_.compile(expressions), on_cpu_, parameters).value(), what);
    return program.info().recurring;
  }

  Workload w_ = populationOf(1, 3000);
  FakeMachine machine_;
  Engine engine_ = machine_.engine({.math = Math::kStrict}), cpu_ = cpuEngine(Precision::kF32);
  Dataset data_ = engine_.upload(w_.view()).value(), on_cpu_ = cpu_.upload(w_.view()).value();
};

TEST_F(Recurring, ProgramsAreThoseOfTheExpressions) {
  const std::vector<Expression>& first = w_.expressions;
  EXPECT_EQ(compare(first, "first"), 0U);
  // Half of them in another order, with other neighbours, so with other numbers of parameters and outputs.
  const std::vector<Expression> fresh = populationOf(2, 1500).expressions;
  std::vector<Expression> second;
  for (std::size_t i = 0; i < 1500; ++i) {
    second.push_back(fresh[i]);
    second.push_back(first[2 * (1499 - i)]);
  }
  EXPECT_GE(compare(second, "second"), 1500U);
  EXPECT_EQ(compare(second, "again"), second.size());
  EXPECT_GE(compare(first, "first again"), 1500U) << "what recurred is found again";
}

TEST_F(Recurring, EqualExpressionsOfOnePopulationNeedNotBeFound) {
  const std::vector<Expression> clones(2000, w_.expressions[0]);
  EXPECT_EQ(compare(clones, "clones"), 0U);
  EXPECT_EQ(compare(clones, "clones again"), clones.size());
  EXPECT_EQ(compare({w_.expressions[0]}, "one"), 1U);
  EXPECT_EQ(compare({}, "none"), 0U);
}

TEST_F(Recurring, ConstantsAndParametersTellExpressionsApart) {
  // Long enough to be looked up.
  const auto sum = [](Token second) {
    std::vector<Token> tokens{Token::variable(0)};
    for (std::uint32_t i = 1; i < 10; ++i) {
      tokens.push_back(Token::variable(i % 3));
      tokens.push_back(Token::operation(i % 2 == 0 ? Op::kMul : Op::kSub));
    }
    tokens.push_back(second);
    tokens.push_back(Token::operation(Op::kAdd));
    return build(tokens);
  };
  EXPECT_EQ(compare({sum(Token::constant(1)), sum(Token::parameter(1))}, "first"), 0U);
  EXPECT_EQ(compare({sum(Token::constant(2)), sum(Token::parameter(0)), sum(Token::constant(-1))}, "others"), 0U);
  EXPECT_EQ(compare({sum(Token::constant(-0.0)), sum(Token::constant(2))}, "one"), 1U);
  EXPECT_EQ(compare({sum(Token::constant(0.0))}, "the other zero"), 0U);
}

// A converged population: one look-up and one record each, not one for every pair.
TEST_F(Recurring, ManyClonesTakeLinearTime) {
  const std::vector<Expression> clones(200'000, w_.expressions[0]);
  EXPECT_EQ(engine_.compile(clones, {.tier = Tier::kInterpret}).info().recurring, 0U);
  EXPECT_EQ(engine_.compile(clones, {.tier = Tier::kInterpret}).info().recurring, clones.size());
}

// All operators, so all kinds of tokens, and more columns than an interpreter stages.
TEST_F(Recurring, AnyProgramIsCopied) {
  const GeneratorOptions options{.seed = 9,
                                 .min_nodes = 25,
                                 .max_nodes = 60,
                                 .variables = 150,
                                 .parameters = 3,
                                 .constant_probability = 0.2,
                                 .parameter_probability = 0.2};
  const Workload w = Workload::random(options, 150, 70, Spread::kSpecial, Precision::kF32);
  const Dataset data = engine_.upload(w.view()).value();
  const Program first = engine_.compile(w.expressions, {.tier = Tier::kInterpret});
  const Program again = engine_.compile(w.expressions, {.tier = Tier::kInterpret});
  EXPECT_EQ(first.info().recurring, 0U);
  EXPECT_EQ(again.info().recurring, w.expressions.size() - first.failures().size());
  EXPECT_EQ(again.info().nodes_after, first.info().nodes_after);
  expectSameBits(predict(engine_, again, data, w.parameters), predict(engine_, first, data, w.parameters), w.rows(),
                 "copies");
}

TEST_F(Recurring, ProgramsWithoutConstantsAreFound) {
  const std::vector<Expression> some(
      3, chainOf(9, [](std::uint32_t i) { return i % 5; }, [](std::uint32_t) { return Op::kSub; }));
  EXPECT_EQ(compare(some, "first"), 0U);
  EXPECT_EQ(compare(some, "again"), some.size());
}

TEST_F(Recurring, ShortExpressionsAreNotLookedUp) {
  const std::vector<Expression> some(100, infix("neg(x0)"));
  EXPECT_EQ(compare(some, "first"), 0U);
  EXPECT_EQ(compare(some, "again"), 0U);
}

TEST_F(Recurring, ProgramsOfOtherPassesAreNotTaken) {
  const std::vector<Expression> some(w_.expressions.begin(), w_.expressions.begin() + 100);
  compare(some, "standard");
  const Program other = engine_.compile(
      some, {.tier = Tier::kInterpret, .pipeline = Pipeline::parse("hoist,schedule", Math::kStrict).value()});
  EXPECT_EQ(other.info().recurring, 0U);
  EXPECT_EQ(compare(some, "standard again"), some.size()) << "others do not take the place of what is kept";
}

// Tokens name columns by 18 bits, and slots are among their numbers.
TEST(WideExpressions, VariablesOfAnyNumberAreInterpreted) {
  FakeMachine machine;
  const Engine engine = machine.engine({.math = Math::kStrict}), cpu = cpuEngine(Precision::kF32);
  const std::size_t columns = (std::size_t{1} << 17) + 3;
  Workload w;
  for (std::size_t c = 0; c < columns; ++c) w.columns.push_back({static_cast<double>(c), 2.0});
  const auto last = static_cast<std::uint32_t>(columns - 1);
  for (const std::uint32_t variable : {0U, last - 2, last - 1, last}) {
    w.expressions.push_back(infix(fmt::format("x{0}*(x{0} - x1)", variable)));
  }
  const auto [data, program] = prepared(engine, w, {.tier = Tier::kInterpret});
  ASSERT_TRUE(program.failures().empty()) << program.failures()[0].error.message;
  expectSameBits(predict(engine, program, data, {}), predict(cpu, w, Tier::kAuto), w.rows(), "wide");
}

}  // namespace
}  // namespace srjit

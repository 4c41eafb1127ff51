// Programs from token arrays on the processor.
#include <gtest/gtest.h>

#include "ir/ops.h"
#include "tests/generators/token_arrays.h"
#include "tests/generators/workload.h"

namespace srjit {
namespace {

TEST(CompileArrays, GivesTheProgramOfTheExpressions) {
  const GeneratorOptions options{.seed = 3,
                                 .min_nodes = 1,
                                 .max_nodes = 40,
                                 .variables = 3,
                                 .parameters = 2,
                                 .constant_probability = 0.2,
                                 .parameter_probability = 0.2};
  const Workload w = Workload::random(options, 300, 40, Spread::kSpecial, Precision::kF64);
  TokenArrays postfix, prefix;
  for (const Expression& expression : w.expressions) {
    postfix.addPostfix(expression);
    prefix.addPrefix(expression);
  }
  const Engine engine = Engine::create({.device = "cpu", .precision = Precision::kF64}).value();
  const Dataset data = engine.upload(w.view()).value();
  const std::vector<double> expected = predict(engine, engine.compile(w.expressions), data, w.parameters);
  for (const PopulationView& view : {postfix.view(), prefix.view(Notation::kPrefix)}) {
    const Program program = engine.compile(view).value();
    ASSERT_EQ(program.size(), w.expressions.size());
    EXPECT_TRUE(program.failures().empty());
    expectSameBits(predict(engine, program, data, w.parameters), expected, w.rows(), "arrays");
  }
}

TEST(CompileArrays, AnExpressionThatIsNotValidIsAFailure) {
  TokenArrays arrays;
  arrays.add(Token::variable(0));
  arrays.end();
  arrays.add(Token::variable(9));  // a column that the data lack
  arrays.add(Token::operation(Op::kAdd));
  arrays.end();
  arrays.add(Token::parameter(0));
  arrays.end();
  const Engine engine = Engine::create({.device = "cpu"}).value();
  const Program program = engine.compile(arrays.view()).value();
  ASSERT_EQ(program.size(), 3U);
  EXPECT_EQ(program.parameterOffset(3), 1U);
  ASSERT_EQ(program.failures().size(), 1U);
  EXPECT_EQ(program.failures()[0].expression, 1U);
  EXPECT_EQ(program.failures()[0].error.message, "'add' needs 2 operands, but 1 precedes it");
  EXPECT_EQ(program.failures()[0].error.where.value().column, 2U);
  const Workload w{.expressions = {}, .columns = {{1, 2}}, .target = {1, 2}, .weights = {}, .parameters = {3}};
  const Dataset data = engine.upload(w.view()).value();
  const Losses losses = engine.loss(program, data, w.parameters, {.nan = NanPolicy::kReject}).value();
  EXPECT_EQ(losses.values[0], 0);
  EXPECT_TRUE(std::isnan(losses.values[1]));
  EXPECT_EQ(losses.valid_rows[1], 0U);
  EXPECT_EQ(losses.values[2], 2.5);
  ASSERT_EQ(losses.failures.size(), 1U);
}

TEST(CompileArrays, ArraysThatDoNotFitTogetherAreAnError) {
  const Engine engine = Engine::create({.device = "cpu"}).value();
  const std::vector<std::int32_t> codes(3, variableCode(0));
  const std::vector<std::int64_t> offsets{0, 2};
  const Result<Program> program = engine.compile(PopulationView{codes, {}, offsets});
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, Errc::kInvalid);
  EXPECT_EQ(program.error().message, "the last offset is 2, but there are 3 tokens");
}

}  // namespace
}  // namespace srjit

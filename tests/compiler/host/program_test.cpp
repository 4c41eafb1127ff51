#include "compiler/host/program.h"

#include <cmath>

#include <gtest/gtest.h>

#include "ir/rows.h"
#include "tests/compiler/interpreter/machine.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

std::vector<double> evaluateDag(const Dag& dag, const std::vector<double>& columns,
                                const std::vector<double>& parameters) {
  std::vector<double> values, roots;
  for (const Node& node : dag.nodes()) {
    const auto operand = [&](std::size_t i) { return values[node.operands[i]]; };
    values.push_back(node.kind == Token::Kind::kConstant   ? node.value
                     : node.kind == Token::Kind::kVariable ? columns[node.index]
                     : node.kind == Token::Kind::kParameter
                         ? parameters[node.index]
                         : applyRow<double>(node.op, operand(0), operand(1), operand(2)));
  }
  for (const NodeId root : dag.roots()) roots.push_back(values[root]);
  return roots;
}

TEST(HostProgram, ComputesTheGraph) {
  GeneratorOptions options{
      .seed = 1, .min_nodes = 1, .max_nodes = 40, .variables = 3, .parameters = 2, .parameter_probability = 0.2};
  Random random(9);
  for (options.seed = 1; options.seed <= 200; ++options.seed) {
    const std::vector<Expression> batch = ExpressionGenerator(options).batch(1 + random.below(6));
    const Dag dag = Dag::fromExpressions(batch, Precision::kF64);
    std::vector<double> columns, parameters;
    for (int i = 0; i < 3; ++i) columns.push_back(random.between(-2.0, 2.0));
    for (std::size_t i = 0; i < dag.parameters().size(); ++i) parameters.push_back(random.between(-2.0, 2.0));
    const std::vector<double> got = runHostProgram(encodeForHost(dag).value(), columns, parameters);
    const std::vector<double> expected = evaluateDag(dag, columns, parameters);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) << options.seed;
    }
  }
}

TEST(HostProgram, LeavesAreOperandsAndRootsAreOutputs) {
  Dag dag(Precision::kF32);
  const NodeId product = dag.apply(Op::kMul, {dag.variable(4), dag.parameter(0, 1)});
  dag.addRoot(dag.apply(Op::kSin, {product}));
  dag.addRoot(product);
  const HostProgram program = encodeForHost(dag).value();
  ASSERT_EQ(program.instructions.size(), 2U);
  EXPECT_EQ(program.slots, 0U);
  const HostInstruction& first = program.instructions[0];
  EXPECT_EQ(handlerKey(first.handler).scalar_mask == 1 || handlerKey(first.handler).scalar_mask == 2, true);
  EXPECT_EQ(first.destination, HostOperand(HostOperand::kOutput, 1));
  EXPECT_EQ(program.instructions[1].operands[0], HostOperand(HostOperand::kOutput, 1));
  EXPECT_EQ(program.instructions[1].destination, HostOperand(HostOperand::kOutput, 0));
  EXPECT_EQ(printProgram(program, dag), "root1 = mul x4 parameter0\nroot0 = sin root1\n");
}

TEST(HostProgram, IsPrintedWithItsConstants) {
  Dag dag(Precision::kF32);
  const NodeId sum = dag.apply(Op::kAdd, {dag.variable(0), dag.parameter(0, 0)});
  dag.addRoot(dag.apply(Op::kFma, {sum, dag.variable(1), dag.constant(0.1)}));
  dag.addRoot(dag.constant(2.5));
  const std::string text = printProgram(encodeForHost(dag).value(), dag);
  EXPECT_TRUE(text.starts_with("slot0 = add x0 parameter0\nroot0 = fma ")) << text;
  EXPECT_TRUE(text.ends_with(" 0.1\nroot1 = move 2.5\n")) << text;
}

TEST(HostProgram, LeafRootsAndRepeatedRootsAreMoves) {
  Dag dag(Precision::kF32);
  const NodeId value = dag.apply(Op::kExp, {dag.variable(0)});
  for (const NodeId root : {value, dag.variable(3), dag.constant(2.5), value}) dag.addRoot(root);
  const HostProgram program = encodeForHost(dag).value();
  ASSERT_EQ(program.instructions.size(), 4U);
  const auto expectMove = [&](std::size_t i, HandlerKey key, HostOperand from, std::uint32_t to) {
    EXPECT_EQ(handlerKey(program.instructions[i].handler), key);
    EXPECT_EQ(program.instructions[i].operands[0], from);
    EXPECT_EQ(program.instructions[i].destination, HostOperand(HostOperand::kOutput, to));
  };
  expectMove(1, {-1, 0}, {HostOperand::kColumn, 3}, 1);
  expectMove(2, {-1, 1}, {HostOperand::kParameter, 0}, 2);
  expectMove(3, {-1, 0}, {HostOperand::kOutput, 0}, 3);
  EXPECT_EQ(program.constants, std::vector<double>{2.5});
}

TEST(HostProgram, ReusesSlots) {
  Dag dag(Precision::kF32);
  NodeId chain = dag.apply(Op::kSin, {dag.variable(0)});
  for (int i = 0; i < 1000; ++i) chain = dag.apply(Op::kSin, {chain});
  dag.addRoot(dag.apply(Op::kAdd, {chain, dag.variable(1)}));
  EXPECT_EQ(encodeForHost(dag).value().slots, 1U);
}

TEST(HostProgram, OmitsDeadNodes) {
  Dag dag(Precision::kF32);
  const NodeId dead = dag.apply(Op::kSin, {dag.variable(0)});
  dag.apply(Op::kCos, {dead});
  dag.addRoot(dag.variable(1));
  EXPECT_EQ(encodeForHost(dag).value().instructions.size(), 1U);
}

TEST(HostProgram, RejectsIndicesOutOfRange) {
  Dag dag(Precision::kF32);
  dag.addRoot(dag.variable(HostOperand::kMaxIndex));
  const Result<HostProgram> program = encodeForHost(dag);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, Errc::kInvalid);
  EXPECT_EQ(program.error().message, "a graph with 1073741824 columns, expected at most 1073741823");
}

TEST(HostProgram, HandlerNumbersAreOneToOne) {
  for (std::uint32_t number = 0; number < handlerNumbers(); ++number) {
    EXPECT_EQ(handlerNumber(handlerKey(number)), number);
  }
}

}  // namespace
}  // namespace srjit

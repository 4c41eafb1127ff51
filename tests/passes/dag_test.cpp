#include "passes/dag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/generators/graphs.h"

namespace srjit {
namespace {

// A new row of ops.def must not change the order of operands in expressions without it.
TEST(Dag, OperandOrderDependsOnOperatorNames) {
  const auto shapeOf = [](const char* text) {
    const Dag dag = graphOf({text}, Precision::kF32);
    return dag.shapeHash(dag.roots()[0]);
  };
  EXPECT_EQ(shapeOf("x0 + x1"), 16945525526657546126u);
  EXPECT_EQ(shapeOf("erf(x0)"), 10669613715724447918u);
  EXPECT_EQ(shapeOf("fma(x0, p1, 2.5) / max(x2, -x0)"), 13197762844648535086u);
}

TEST(Dag, SharesEqualSubtreesWithinAndAcrossExpressions) {
  const Dag dag = graphOf({"sin(x0 + 1) * sin(x0 + 1)", "exp(sin(x0 + 1))"});
  // x0, 1, +, sin, *, exp
  EXPECT_EQ(dag.size(), 6u);
  ASSERT_EQ(dag.roots().size(), 2u);
  EXPECT_EQ(dag.node(dag.roots()[1]).operands[0], dag.node(dag.roots()[0]).operands[0]);
}

TEST(Dag, ParametersOfDifferentExpressionsDiffer) {
  const Dag dag = graphOf({"x0 + p1", "x0 + p1"});
  EXPECT_NE(dag.roots()[0], dag.roots()[1]);
  ASSERT_EQ(dag.parameters().size(), 2u);
  EXPECT_EQ(dag.parameters()[1].expression, 1u);
  EXPECT_EQ(dag.parameters()[1].index, 1u);
  EXPECT_EQ(dag.shapeHash(dag.roots()[0]), dag.shapeHash(dag.roots()[1]));
}

TEST(Dag, ConstantsAreRoundedAndComparedByBits) {
  Dag dag(Precision::kF32);
  EXPECT_EQ(dag.constant(0.1), dag.constant(double{0.1f}));
  EXPECT_EQ(dag.node(dag.constant(0.1)).value, double{0.1f});
  EXPECT_NE(dag.constant(0.0), dag.constant(-0.0));
  EXPECT_EQ(dag.constant(std::nan("1")), dag.constant(-std::nan("2")));
  Dag wide(Precision::kF64);
  EXPECT_NE(wide.constant(0.1), wide.constant(double{0.1f}));
}

TEST(Dag, KeepsOperandsAsTheyAreWrittenUntilAPassOrdersThem) {
  const Dag dag = graphOf({"x0 + x1", "x1 + x0"});
  EXPECT_NE(dag.roots()[0], dag.roots()[1]);
  EXPECT_EQ(textOf(dag, 1), "x1 + x0");
}

TEST(Dag, CommutativeOperandsHaveACanonicalOrder) {
  const Dag dag =
      ordered(graphOf({"x0 * sin(x1)", "sin(x1) * x0", "fma(x0, x1, x2)", "fma(x1, x0, x2)", "x0 - x1", "x1 - x0"}));
  EXPECT_EQ(dag.roots()[0], dag.roots()[1]);
  EXPECT_EQ(dag.roots()[2], dag.roots()[3]);
  EXPECT_NE(dag.roots()[4], dag.roots()[5]);
}

TEST(Dag, LeavesComeBeforeTerms) {
  EXPECT_EQ(ordered("sin(x0) + 2"), "2 + sin(x0)");
  EXPECT_EQ(ordered("p1 * x3"), "x3 * p1");
  EXPECT_EQ(ordered("2 * x12 + x3"), "x3 + x12 * 2");
}

TEST(Dag, UsesCountOperandsAndRoots) {
  const Dag dag = graphOf({"x0 * x0", "x0"});
  EXPECT_THAT(dag.useCounts(), testing::ElementsAre(3, 1));
}

TEST(Dag, VariableCountIsOneMoreThanTheLargestIndex) {
  EXPECT_EQ(graphOf({"x2 + x7"}).variableCount(), 8u);
  EXPECT_EQ(graphOf({"1"}).variableCount(), 0u);
}

TEST(Dag, ToExpressionInvertsFromExpressions) {
  ExpressionGenerator expressions = expressionsOfAllOperators(1);
  for (int i = 0; i < 500; ++i) {
    const Expression expression = expressions.next();
    const Dag dag = graphOf(expression, Precision::kF32);
    const Expression back = dag.toExpression(0).value();
    ASSERT_EQ(back.size(), expression.size());
    const Dag again = graphOf(back, Precision::kF32);
    ASSERT_EQ(again.toExpression(0).value(), back);
  }
}

TEST(Dag, ToExpressionFailsAboveItsLimit) {
  Dag dag(Precision::kF64);
  NodeId id = dag.variable(0);
  for (int i = 0; i < 200; ++i) id = dag.apply(Op::kMul, {id, id});
  dag.addRoot(id);
  const auto expression = dag.toExpression(0, 1000);
  ASSERT_FALSE(expression.ok());
  EXPECT_EQ(expression.error().code, Errc::kInvalid);
  EXPECT_EQ(expression.error().message, "expression 0 needs more than 1000 tokens");
}

TEST(Dag, StructureDoesNotContainSourcesOfParameters) {
  const auto hoisted = [](std::string_view text) { return structureOf(ran(graphOf({text}), "hoist")); };
  EXPECT_EQ(hoisted("(x0 + 1.5) * (x1 + 2.5) - 1.5"), hoisted("(x0 + 7) * (x1 + 3) - 7"));
  EXPECT_NE(hoisted("(x0 + 1.5) * (x1 + 2.5) - 1.5"), hoisted("(x0 + 7) * (x1 + 3) - 3"));
  EXPECT_EQ(hoisted("x0 + 1.5"), structureOf(graphOf({"x0 + p3"})));
}

TEST(Dag, DifferentGraphsHaveDifferentStructures) {
  std::vector<Dag> graphs = {graphOf({"x0"}, Precision::kF32), graphOf({"x0", "x0"}), graphOf({"x0", "x0 - x1"}),
                             graphOf({"x0 - x1", "x0"})};
  for (const char* const text : {"x0", "x1", "p0", "0", "-0", "x0 + 1", "x0 + 2", "x0 - x1", "x1 - x0", "x0 / x1"}) {
    graphs.push_back(graphOf({text}));
  }
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      EXPECT_NE(structureOf(graphs[i]), structureOf(graphs[k])) << i << " and " << k;
    }
  }
}

TEST(Dag, StructureIsAppended) {
  const Dag dag = graphOf({"x0 * p0"});
  std::vector<std::byte> bytes = {std::byte{7}};
  dag.appendStructure(bytes);
  EXPECT_EQ(bytes.front(), std::byte{7});
  EXPECT_EQ(std::vector<std::byte>(bytes.begin() + 1, bytes.end()), structureOf(dag));
}

TEST(Dag, EqualityComparesStructureAndNumbers) {
  EXPECT_TRUE(graphOf({"x0 + 1", "x1"}) == graphOf({"x0 + 1", "x1"}));
  EXPECT_FALSE(graphOf({"x0 + 1"}) == graphOf({"x0 + 2"}));
  EXPECT_FALSE(graphOf({"x0 + 0"}) == graphOf({"x0 + -0"}));
  EXPECT_FALSE(graphOf({"x0"}) == graphOf({"x0", "x0"}));
}

TEST(Dag, DeepExpressionsNeedNoRecursion) {
  const Expression deep = chainOf(
      150'000, [](std::uint32_t i) { return i % 3; }, [](std::uint32_t i) { return i % 2 == 0 ? Op::kAdd : Op::kMul; });
  for (const Math math : {Math::kStrict, Math::kFast}) {
    const Dag dag = Pipeline::standard(math).run(graphOf(deep, Precision::kF32), {math});
    EXPECT_GT(dag.size(), 50'000u);
    EXPECT_TRUE(dag.toExpression(0, 4'000'000).ok());
  }
}

}  // namespace
}  // namespace srjit

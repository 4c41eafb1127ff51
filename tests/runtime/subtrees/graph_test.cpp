// Subtrees of graphs: keys, costs, the graph that reads some of them, and the policy for keeping them.
#include "runtime/subtrees/graph.h"

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "passes/pass.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

Dag subtreesOf(std::initializer_list<std::string_view> texts, const char* passes = "hoist, schedule") {
  return Pipeline::parse(passes, Math::kStrict)
      .value()
      .run(Dag::fromExpressions(infixes(texts), Precision::kF32), {Math::kStrict});
}

SubtreeKey keyOf(const char* text, const char* passes = "hoist, schedule") {
  const Dag dag = subtreesOf({text}, passes);
  const CodeWeights weights = codeWeights(Precision::kF32, Math::kStrict);
  return GraphSubtrees(dag, weights, 1).key(dag.roots()[0]);
}

CodeWeights equalWeights() {
  CodeWeights weights;
  weights.fill(1);
  return weights;
}

TEST(SubtreeKeys, AreEqualOnlyForTheSameSubtree) {
  const char* const different[] = {"x0 + x1",        "x0 - x1",        "x1 - x0",        "x0 + x2",
                                   "x0 + 1.5",       "x0 + 2.5",       "x0 + 0",         "x0 + -0",
                                   "sin(x0)",        "cos(x0)",        "(x0 + x1) * x2", "sin(x0 + x1)",
                                   "x0 - (x1 - x2)", "(x0 - x1) - x2", "fma(x0, x1, x2)"};
  for (const char* const a : different) {
    EXPECT_FALSE(keyOf(a).isNone()) << a;
    for (const char* const b : different) EXPECT_EQ(keyOf(a) == keyOf(b), a == b) << a << " and " << b;
  }
  EXPECT_EQ(keyOf("x0 + 1.5"), keyOf("x0 + 1.5", "none")) << "a hoisted literal is a literal";
  EXPECT_EQ(keyOf("x0 + x1", "simplify"), keyOf("x1 + x0", "simplify")) << "one order of operands";
  EXPECT_TRUE(keyOf("x0 + p0").isNone());
  EXPECT_TRUE(keyOf("sin(x0 * p1) + x0").isNone());
}

// A new row of ops.def must not change the keys of subtrees without it.
TEST(SubtreeKeys, DependOnOperatorNamesNotOnTheirNumbers) {
  EXPECT_EQ(keyOf("x0 - x1"), (SubtreeKey{10215809877090082330u, 6724627963450468924u}));
  EXPECT_EQ(keyOf("erf(x0) / max(x2, 2.5)"), (SubtreeKey{5478790588839108838u, 7110129875155717518u}));
}

TEST(SubtreeKeys, DoNotDependOnTheGraph) {
  const Dag large = subtreesOf({"cos(x5) / 3", "sin((x0 + x1) * 2)", "p0 - (x0 + x1) * 2"});
  const CodeWeights weights = equalWeights();
  const GraphSubtrees subtrees(large, weights, 1);
  const SubtreeKey wanted = keyOf("(x0 + x1) * 2");
  int found = 0;
  for (NodeId id = 0; id < large.size(); ++id) found += subtrees.key(id) == wanted ? 1 : 0;
  EXPECT_EQ(found, 1);
}

TEST(GraphSubtrees, CountInstructionsOfKernels) {
  // Two programs have x0 * x1, one of which uses it twice.
  const Dag dag = subtreesOf({"sin(x0 * x1) + x0 * x1", "cos(x0 * x1)", "x2"});
  const CodeWeights weights = equalWeights();
  const auto product = [&] {
    for (NodeId id = 0; id < dag.size(); ++id) {
      if (dag.node(id).kind == Token::Kind::kOp && dag.node(id).op == Op::kMul) return id;
    }
    return NodeId{0};
  }();
  GraphSubtrees programs(dag, weights, 1);
  EXPECT_EQ(programs.kernels(product), 2U);
  EXPECT_EQ(programs.instructions(), 5);
  EXPECT_EQ(programs.ownInstructions(dag.roots()[1]), 2) << "a program computes the whole root";
  EXPECT_EQ(programs.tokens(dag.roots()[0]), 8U);

  GraphSubtrees kernel(dag, weights, 64);
  EXPECT_EQ(kernel.kernels(product), 1U);
  EXPECT_EQ(kernel.instructions(), 4);
  EXPECT_EQ(kernel.ownInstructions(dag.roots()[1]), 1) << "the product has other uses";
  EXPECT_EQ(kernel.ownInstructions(dag.roots()[0]), 2) << "sine and sum";
  EXPECT_EQ(kernel.ownInstructions(dag.roots()[0]), 2) << "the query has no side effect";
  EXPECT_EQ(kernel.instructionsOf(dag.roots()[0]), 3) << "the product once";

  programs.read(dag.roots()[1]);
  programs.count();
  EXPECT_EQ(programs.kernels(product), 1U);
  EXPECT_EQ(programs.kernels(dag.roots()[1]), 1U) << "one program reads it";
  EXPECT_EQ(programs.instructions(), 3);
}

TEST(WithColumns, ReplacesSubtreesByReads) {
  const Dag dag = subtreesOf({"sin((x0 + x1) * 2) - x2", "(x0 + x1) * 2", "x0 / 3"});
  std::vector<std::uint32_t> columns(dag.size(), kComputed);
  columns[dag.roots()[1]] = 9;
  const Dag reading = withColumns(dag, columns);
  EXPECT_EQ(reading.toExpression(0).value(), infix("sin(x9) - x2"));
  EXPECT_EQ(reading.toExpression(1).value(), infix("x9"));
  EXPECT_EQ(reading.toExpression(2).value(), dag.toExpression(2).value());
  EXPECT_EQ(reading.size(), 7U) << "x9, sin, x2, minus, x0, 3, /";
  EXPECT_EQ(reading.parameters().size(), 1U) << "of 2 and 3, only 3";
  EXPECT_EQ(reading.variableCount(), 10U);
}

constexpr double kValue = kReadSeconds;

TEST(SubtreeCosts, KeepingNeedsCheaperReads) {
  // 10 instructions in each of 63 groups of direct code at 34e12 instructions per second: a load takes the time of 28.
  constexpr double kInstruction = 1 / 34e12;
  const auto direct = [](double instructions) {
    return SubtreeUse{.computing = 63 * instructions * kInstruction,
                      .reads = subtreeReads(Tier::kDirect, 63, 2000),
                      .making = instructions / 5e12};
  };
  EXPECT_LT(keepingSaves(direct(10), kValue, 1e9), 0) << "not even with unlimited uses";
  EXPECT_LT(keepingSaves(direct(28), kValue, 1e9), 0);
  EXPECT_GT(keepingSaves(direct(29), kValue, 1e9), 0);
  EXPECT_LT(keepingSaves(direct(29), kValue, 1), 0) << "one use saves less than computing it takes";
}

TEST(SubtreeCosts, TheInterpreterLoadsAColumnForManyPrograms) {
  constexpr double kInstruction = 1 / 5e12;
  const auto interpreted = [](double programs, double instructions) {
    return SubtreeUse{.computing = programs * instructions * kInstruction,
                      .reads = subtreeReads(Tier::kInterpret, programs, 2000),
                      .making = instructions * kInstruction};
  };
  EXPECT_GT(keepingSaves(interpreted(500, 3), kValue, 2), 0);
  EXPECT_LT(keepingSaves(interpreted(2, 10), kValue, 1e9), 0) << "every block stages it, for only two programs";
  EXPECT_GT(keepingSaves(interpreted(2, 200), kValue, 2), 0);
}

TEST(SubtreeCosts, RewritingMustSaveMoreThanItTakes) {
  EXPECT_TRUE(rewritingPays(2e-3, 10e-3, 1e5, 16)) << "saves 2 ms, takes 0.25 ms";
  EXPECT_FALSE(rewritingPays(2e-3, 10e-3, 1e5, 1)) << "saves 2 ms, takes 4 ms";
  EXPECT_FALSE(rewritingPays(2e-3, 50e-3, 1e5, 16)) << "a saving of 4 % is within the error of the estimate";
}

TEST(SubtreeCosts, WritingIsCountedOnce) {
  const SubtreeUse use{.computing = 3 * kValue, .reads = 1, .making = 2 * kValue};
  EXPECT_NEAR(keepingSaves(use, kValue, 1), -1 * kValue, 1e-20);
  EXPECT_NEAR(keepingSaves(use, kValue, 2), 1 * kValue, 1e-20);
  EXPECT_NEAR(keepingSaves(use, 2 * kValue, 2), -2 * kValue, 1e-20) << "in f64";
}

}  // namespace
}  // namespace srjit

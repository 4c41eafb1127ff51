// Trees: what is folded and fused, and what stays as it is written.
#include "passes/tree.h"

#include <gtest/gtest.h>

#include "ir/population.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

std::string spaceless(std::string text) {
  std::erase(text, ' ');
  return text;
}

/// The tree of the expression as infix text, without spaces.
std::string readAs(const Expression& expression, Math math = Math::kPrecise, Precision precision = Precision::kF64) {
  const Population population({&expression, 1});
  TreeReader reader(precision, math);
  Dag dag(precision);
  std::vector<NodeId> places;
  dag.addRoot(addTree(reader.read(population[0]), 0, dag, places));
  return spaceless(textOf(dag));
}
std::string readAs(std::string_view text, Math math = Math::kPrecise, Precision precision = Precision::kF64) {
  return readAs(infixes(std::array{text})[0], math, precision);
}

TEST(Tree, FusesTheFirstProductOfASum) {
  for (const auto& [text, expected] : {
           std::pair{"x0*x1 + x2", "fma(x0, x1, x2)"},
           {"x2 + x0*x1", "fma(x0, x1, x2)"},
           {"x0*x1 - x2", "fms(x0, x1, x2)"},
           {"x2 - x0*x1", "fnma(x0, x1, x2)"},
           {"x0*x1 + x1*x2", "fma(x0, x1, x1*x2)"},
           {"sin(x0*x1) + x2", "sin(x0*x1) + x2"},
           {"sin(x0*x1 + x2)*x1 - exp(x0)", "fms(sin(fma(x0, x1, x2)), x1, exp(x0))"},
           {"square(x0) + x1", "square(x0) + x1"},
       }) {
    EXPECT_EQ(readAs(text), spaceless(expected));
    EXPECT_EQ(readAs(text, Math::kFast), spaceless(expected));
    EXPECT_EQ(readAs(text, Math::kStrict), spaceless(text));
  }
}

// As written they are 0, or nearly; fused, they would be a rounding error.
TEST(Tree, KeepsDifferencesOfEquals) {
  for (const char* const text : {"x0*x1 - x0*x1", "x0*2 - x0*2", "x0/x1*x1 - x0", "x1*(x0/x1) - x0", "x0 - x1*inv(x1)",
                                 "x0 - loose_div(x2, x1 + 2)*(x1 + 2)"}) {
    EXPECT_EQ(readAs(text), spaceless(text));
  }
  EXPECT_EQ(readAs("x0*2 - x0*3"), spaceless("fms(x0, 2, x0*3)"));
  EXPECT_EQ(readAs("x0/x1*x2 - x0"), spaceless("fms(x0/x1, x2, x0)"));
  EXPECT_EQ(readAs("x1/x0*x0 + x1*x2"), spaceless("fma(x1, x2, x1/x0*x0)"));
}

TEST(Tree, ComputesOperatorsOverConstants) {
  EXPECT_EQ(readAs("(2 + 3)*x0"), spaceless("5*x0"));
  EXPECT_EQ(readAs("x0 + 2*3"), spaceless("x0 + 6"));
  EXPECT_EQ(readAs("fma(2, 3, 4)"), spaceless("10"));
  EXPECT_EQ(readAs("0.1 + 0.2", Math::kStrict, Precision::kF32), readAs("0.30000001192092896"));
  EXPECT_EQ(readAs("sqrt(-1)"), spaceless("nan"));
  EXPECT_EQ(readAs("x0*0 + 1*x1"), spaceless("fma(x0, 0, 1*x1)")) << "no rule is applied";
}

// Of every operator: the graph's value is that of the tokens where nothing is fused.
TEST(Tree, IsTheExpressionInStrict) {
  ExpressionGenerator generator = expressionsOfAllOperators(91);
  TreeReader reader(Precision::kF64, Math::kStrict);
  const std::vector<double> columns = {0.75, -1.5, 3}, parameters = {2.5, -0.125};
  for (int i = 0; i < 5'000; ++i) {
    const Expression expression = generator.next();
    const Population population({&expression, 1});
    Dag dag(Precision::kF64);
    std::vector<NodeId> places;
    dag.addRoot(addTree(reader.read(population[0]), 0, dag, places));
    const Dag written = graphOf(expression, Precision::kF64);
    const auto valueOf = [&](const Dag& of) { return evaluate<double>(of, columns, parameters)[0]; };
    ASSERT_TRUE(sameBits(valueOf(dag), valueOf(written))) << textOf(expression);
  }
}

TEST(Tree, TakesAnyDepthAndSpecialConstants) {
  std::vector<Token> tokens{Token::variable(0)};
  for (int i = 0; i < 200'000; ++i) {
    tokens.push_back(Token::constant(i % 2 == 0 ? std::numeric_limits<double>::infinity() : -0.0));
    tokens.push_back(Token::operation(i % 2 == 0 ? Op::kMul : Op::kSub));
  }
  const Expression deep = Expression::create(std::move(tokens)).value();
  const Population population({&deep, 1});
  TreeReader reader(Precision::kF32, Math::kPrecise);
  const Tree tree = reader.read(population[0]);
  EXPECT_EQ(tree.nodes.size(), deep.size());
  EXPECT_EQ(tree.nodes.back().op, Op::kFms);
  EXPECT_EQ(tree.nodes.back().need(), 1U);
}

TEST(Tree, NeedsRegistersAsItsGraph) {
  ExpressionGenerator generator = expressionsOfAllOperators(92);
  TreeReader reader(Precision::kF64, Math::kPrecise);
  std::vector<NodeId> places;
  for (int i = 0; i < 2'000; ++i) {
    const Expression expression = generator.next();
    const Population population({&expression, 1});
    const Tree tree = reader.read(population[0]);
    Dag dag(Precision::kF64);
    const NodeId root = addTree(tree, 0, dag, places);
    // Equal operands of a graph need registers once.
    EXPECT_GE(tree.nodes[tree.root()].need(), dag.node(root).need) << textOf(expression);
    EXPECT_LE(tree.nodes[tree.root()].need(), 1U + std::bit_width(tree.nodes.size())) << textOf(expression);
  }
}

}  // namespace
}  // namespace srjit

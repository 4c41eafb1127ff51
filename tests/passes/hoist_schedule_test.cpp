#include <gtest/gtest.h>

#include "passes/members.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

TEST(Hoist, LeavesNoConstants) {
  const Dag dag = ran(graphOf({"x0 * 2 + 3", "5", "x1 - 2", "p0 + 2"}), "hoist");
  std::size_t literals = 0;
  for (const Node& node : dag.nodes()) EXPECT_NE(node.kind, Token::Kind::kConstant);
  for (const ParameterSource& source : dag.parameters()) literals += source.isLiteral() ? 1 : 0;
  EXPECT_EQ(literals, 3u) << "equal literals are one parameter";
  EXPECT_EQ(textOf(dag, 1), "5");
}

TEST(Hoist, StructureDoesNotDependOnNumbers) {
  ExpressionGenerator expressions = expressionsOfAllOperators(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<Expression> batch, other;
    for (int e = 0; e < 4; ++e) {
      batch.push_back(expressions.next());
      std::vector<Token> tokens(batch.back().tokens().begin(), batch.back().tokens().end());
      // An injective change of the numbers preserves equality among them.
      for (Token& token : tokens) {
        if (token.kind == Token::Kind::kConstant && std::isfinite(token.value)) token.value = 1e6 - 3 * token.value;
      }
      other.push_back(Expression::create(std::move(tokens)).value());
    }
    const Dag a = ran(Dag::fromExpressions(batch, Precision::kF64), "fma,hoist,schedule");
    const Dag b = ran(Dag::fromExpressions(other, Precision::kF64), "fma,hoist,schedule");
    if (a.size() == b.size()) {  // otherwise tiny literals and zero have become equal
      ASSERT_EQ(structureOf(a), structureOf(b));
    }
  }
}

TEST(Schedule, TheOperandThatNeedsMoreRegistersComesFirst) {
  const Dag dag = ran(graphOf({"sin(x0) - (sin(x1) + cos(x1)) * (tan(x0) - exp(x1))"}), "schedule");
  EXPECT_EQ(dag.node(dag.roots()[0]).op, Op::kSub);
  const std::string text = printDag(dag);
  EXPECT_LT(text.find("mul"), text.find("sin x0")) << text;
}

TEST(Schedule, RegisterNeedsAreSethiUllmanNumbers) {
  const auto need = [](std::string_view text) {
    const Dag dag = graphOf({text});
    return dag.node(dag.roots()[0]).need;
  };
  EXPECT_EQ(need("x0"), 0u);
  EXPECT_EQ(need("x0 + x1"), 1u);
  EXPECT_EQ(need("sin(x0) + x1"), 1u);
  EXPECT_EQ(need("sin(x0) + sin(x1)"), 2u);
  EXPECT_EQ(need("(sin(x0) + sin(x1)) + (cos(x0) + cos(x1))"), 3u);
  EXPECT_EQ(need("fma(sin(x0), sin(x1), sin(x2))"), 3u);
  EXPECT_EQ(need("sin(x0) - sin(x0)"), 1u) << "one value, used twice";
}

/// The largest number of live values when nodes are evaluated by ascending id.
std::size_t mostLiveValues(const Dag& dag) {
  std::vector<std::uint32_t> uses = dag.useCounts();
  std::size_t live = 0, most = 0;
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    if (node.kind != Token::Kind::kOp) continue;
    for (const NodeId operand : node.inputs()) {
      if (dag.node(operand).kind == Token::Kind::kOp && --uses[operand] == 0) --live;
    }
    most = std::max(most, ++live);
  }
  return most;
}

TEST(Schedule, ATreeNeedsItsSethiUllmanNumberOfRegisters) {
  ExpressionGenerator expressions = expressionsOfAllOperators(3, 60);
  for (int i = 0; i < 300; ++i) {
    // Distinct variables make a tree.
    std::vector<Token> tokens;
    const Expression expression = expressions.next();
    std::uint32_t next = 0;
    for (const Token& token : expression.tokens()) {
      tokens.push_back(token.kind == Token::Kind::kOp ? token : Token::variable(next++));
    }
    const Expression tree = Expression::create(tokens).value();
    const Dag dag = ran(graphOf(tree, Precision::kF64), "schedule");
    ASSERT_EQ(mostLiveValues(dag), dag.node(dag.roots()[0]).need) << printDag(dag);
  }
}

}  // namespace
}  // namespace srjit

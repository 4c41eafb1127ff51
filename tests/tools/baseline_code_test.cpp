// Code of the baselines: tokens, plans of common subtrees, PTX that assembles, C++ that compiles.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/kernels/assembler.h"
#include "ir/text.h"
#include "tools/bench/designs/baseline.h"
#include "tools/bench/designs/code.h"

namespace srjit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Expression> smallExpressions(std::initializer_list<const char*> texts) {
  std::vector<Expression> expressions;
  for (const char* const text : texts) expressions.push_back(parse(text, Language::kInfix).value());
  return expressions;
}

/// One expression per operator, and one of all operators.
std::vector<Expression> everyOperator() {
  std::vector<Expression> expressions;
  std::vector<Token> all = {Token::variable(0)};
  for (const BaselineOp& row : allBaselineOps()) {
    std::vector<Token> tokens = {Token::variable(0)};
    if (arityOf(row.op) == 2) {
      tokens.push_back(Token::parameter(0));
      all.push_back(Token::constant(1.5));
    }
    tokens.push_back(Token::operation(row.op));
    all.push_back(Token::operation(row.op));
    expressions.push_back(Expression::create(std::move(tokens)).value());
  }
  expressions.push_back(Expression::create(std::move(all)).value());
  return expressions;
}

/// Programs as text: "v0 op4 | c0 v1 op5".
std::string textOf(const StackPrograms& programs) {
  std::string text;
  for (std::size_t p = 0; p < programs.size(); ++p) {
    if (p > 0) text += " | ";
    for (std::uint32_t i = programs.offsets[p]; i < programs.offsets[p + 1]; ++i) {
      const StackToken& token = programs.tokens[i];
      if (i > programs.offsets[p]) text += ' ';
      if (token.code >= StackToken::kFirstOp) {
        text += infoOf(allBaselineOps()[token.code - StackToken::kFirstOp].op).name;
      } else {
        text += "kvpc"[token.code] + std::to_string(token.value);
      }
    }
  }
  return text;
}

TEST(StackProgram, NumbersParametersAcrossExpressions) {
  const auto expressions = smallExpressions({"p0+x1", "p1*p0", "x0", "p0"});
  EXPECT_EQ(textOf(stackPrograms(expressions)), "p0 v1 add | p2 p1 mul | v0 | p3");
  EXPECT_THAT(parameterOffsets(expressions), ElementsAre(0U, 1U, 3U, 3U, 4U));
}

TEST(StackProgram, RejectsUnsupportedOperatorsAndHighStacks) {
  const auto messageOf = [](const Expression& expression) -> std::string {
    try {
      stackPrograms({&expression, 1});
      return "";
    } catch (const BenchFailure& failure) {
      return failure.error.message;
    }
  };
  EXPECT_EQ(messageOf(smallExpressions({"tan(x0)"})[0]), "operator tan, which the baselines do not have");
  for (const std::size_t height : {kStackEntries, kStackEntries + 1}) {
    std::vector<Token> tokens(height, Token::variable(0));
    tokens.insert(tokens.end(), height - 1, Token::operation(Op::kAdd));
    const std::string message = messageOf(Expression::create(std::move(tokens)).value());
    EXPECT_THAT(message, height == kStackEntries ? std::string()
                                                 : "an expression needs a stack of 65 values, but the "
                                                   "baseline's has 64");
  }
}

TEST(SubtreeCache, EvaluatesRepeatedSubtreesOnce) {
  const CachePlan plan = planSubtreeCache(smallExpressions({"exp(x0)+x1", "x2*exp(x0)", "sin(x1)"}), 100);
  EXPECT_EQ(plan.cached, 1U);
  EXPECT_EQ(textOf(plan.programs), "v0 exp | c0 v1 add | v2 c0 mul | v1 sin");
}

TEST(SubtreeCache, CachesTheLargestRepeatedSubtrees) {
  EXPECT_EQ(textOf(planSubtreeCache(smallExpressions({"sin(exp(x0))+x1", "sin(exp(x0))*x1"}), 100).programs),
            "v0 exp sin | c0 v1 add | c0 v1 mul");
  // exp(x0) occurs inside of the cached subtree and once outside, which is only one use.
  EXPECT_EQ(textOf(planSubtreeCache(smallExpressions({"sin(exp(x0))", "sin(exp(x0))*x1", "exp(x0)-x2"}), 100).programs),
            "v0 exp sin | c0 | c0 v1 mul | v0 exp v2 sub");
  // Twice outside: two uses.
  const auto nested = smallExpressions({"sin(exp(x0))", "sin(exp(x0))*x1", "exp(x0)-x2", "exp(x0)+x2"});
  EXPECT_EQ(planSubtreeCache(nested, 100).cached, 2U);
}

TEST(SubtreeCache, CountsUsesWithinAnExpressionAndDistinguishesParameters) {
  EXPECT_EQ(textOf(planSubtreeCache(smallExpressions({"(p0*x0)^(p0*x0)", "p0*x0"}), 100).programs),
            "p0 v0 mul | c0 c0 pow | p1 v0 mul");
  EXPECT_EQ(planSubtreeCache(smallExpressions({"x0-x1", "x1-x0", "x0-2", "x0-3"}), 100).cached, 0U);
}

TEST(SubtreeCache, KeepsTheSubtreesThatSaveMost) {
  const auto expressions =
      smallExpressions({"exp(x0)+1", "exp(x0)+2", "sin(cos(x1))+1", "sin(cos(x1))+2", "sin(cos(x1))+3"});
  EXPECT_EQ(planSubtreeCache(expressions, 2).cached, 2U);
  const CachePlan one = planSubtreeCache(expressions, 1);
  EXPECT_EQ(one.cached, 1U);
  EXPECT_THAT(textOf(one.programs), ::testing::StartsWith("v1 cos sin | v0 exp"));
  const CachePlan none = planSubtreeCache(expressions, 0);
  EXPECT_EQ(none.cached, 0U);
  EXPECT_EQ(none.programs.tokens, stackPrograms(expressions).tokens);
}

/// The row of a tree: type, value and size of each node.
std::string rowOf(const TreeArrays& arrays, std::size_t tree) {
  std::string text;
  for (std::size_t node = tree * arrays.length; node < (tree + 1) * arrays.length; ++node) {
    const float value = arrays.values[node];
    text += text.empty() ? "" : " ";
    text += "kvpub"[arrays.types[node]];
    text += arrays.types[node] < TreeArrays::kUnary
                ? fmt::format("{:g}", value)
                : fmt::format(":{}", infoOf(allBaselineOps()[static_cast<std::size_t>(value)].op).name);
    text += fmt::format("/{}", arrays.sizes[node]);
  }
  return text;
}

TEST(TreeArrays, HaveNodesInPrefixOrderAndRowsOfOneLength) {
  TreeArrays arrays;
  fillTreeArrays(smallExpressions({"p0+x1", "sin(x2)*(p1-0.5)", "p0"}), arrays);
  ASSERT_EQ(arrays.length, 6U);
  EXPECT_EQ(rowOf(arrays, 0), "b:add/3 p0/1 v1/1 k0/0 k0/0 k0/0");
  EXPECT_EQ(rowOf(arrays, 1), "b:mul/6 u:sin/2 v2/1 b:sub/3 p2/1 k0.5/1");
  EXPECT_EQ(rowOf(arrays, 2), "p3/1 k0/0 k0/0 k0/0 k0/0 k0/0");
  fillTreeArrays(smallExpressions({"x7"}), arrays);
  EXPECT_EQ(arrays.values.size(), 1U);
  EXPECT_EQ(rowOf(arrays, 0), "v7/1");
}

TEST(TreeArrays, RejectWhatTheKernelCannotEvaluate) {
  const auto messageOf = [](std::vector<Token> tokens) -> std::string {
    const Expression expression = Expression::create(std::move(tokens)).value();
    TreeArrays arrays;
    try {
      fillTreeArrays({&expression, 1}, arrays);
      return "";
    } catch (const BenchFailure& failure) {
      return failure.error.message;
    }
  };
  EXPECT_EQ(messageOf({Token::variable(0), Token::operation(Op::kTan)}),
            "operator tan, which the baselines do not have");
  // Each operator has the tree of all before as its right operand, then as its left one.
  for (const std::size_t leaves : {kStackEntries, kStackEntries + 1}) {
    std::vector<Token> right(leaves, Token::variable(0));
    right.insert(right.end(), leaves - 1, Token::operation(Op::kAdd));
    EXPECT_EQ(messageOf(right), "");
    std::vector<Token> left = {Token::variable(0)};
    for (std::size_t i = 1; i < leaves; ++i) {
      left.push_back(Token::variable(0));
      left.push_back(Token::operation(Op::kAdd));
    }
    EXPECT_EQ(messageOf(left), leaves == kStackEntries
                                   ? ""
                                   : "a tree needs a stack of more than 64 values, which is what the baseline's has");
  }
  std::vector<Token> large(kTreeNodes, Token::operation(Op::kNeg));
  large.insert(large.begin(), Token::variable(0));
  EXPECT_EQ(messageOf(large), "a tree of 32768 nodes");
  EXPECT_EQ(messageOf(std::vector<Token>(large.begin(), large.end() - 1)), "");
}

TEST(BaselineCode, AssemblesForEveryArchitecture) {
  if (assemblerName().empty()) GTEST_SKIP() << "no CUDA toolkit on this machine: PTX is generated but not assembled";
  for (const char* const arch : {"sm_75", "sm_90"}) {
    const auto interpreter = assemble(stackInterpreterPtx(), arch);
    ASSERT_TRUE(interpreter.ok()) << interpreter.error().message;
    EXPECT_EQ(interpreter->kernels.at(0).name, kStackKernel);
    EXPECT_EQ(interpreter->kernels.at(0).stack_bytes, kStackEntries * sizeof(float));
    EXPECT_EQ(interpreter->kernels.at(0).spill_store_bytes, 0U);
    const auto trees = assemble(treeKernelPtx(), arch);
    ASSERT_TRUE(trees.ok()) << trees.error().message;
    EXPECT_EQ(trees->kernels.at(0).name, kTreeKernel);
    EXPECT_EQ(trees->kernels.at(0).stack_bytes, kStackEntries * sizeof(float));
    EXPECT_EQ(trees->kernels.at(0).spill_store_bytes, 0U);
  }
  for (const Expression& expression : everyOperator()) {
    const auto transpiled = assemble(transpile(expression), "sm_90");
    ASSERT_TRUE(transpiled.ok()) << transpiled.error().message;
    EXPECT_EQ(transpiled->kernels.at(0).name, kExpressionKernel);
    EXPECT_EQ(transpiled->kernels.at(0).stack_bytes, 0U);
  }
}

TEST(BaselineCode, CompilesWithNvrtc) {
  if (!hasNvrtc()) GTEST_SKIP() << "NVRTC was not found";
  const std::string source = cudaSource(everyOperator());
  const auto ptx = compileCuda(source, "sm_90", true);
  ASSERT_TRUE(ptx.ok()) << ptx.error().message;
  EXPECT_EQ(ptx->form, ImageForm::kPtx);
  const std::string text(reinterpret_cast<const char*>(ptx->code.data()));
  EXPECT_THAT(text, HasSubstr(".entry population("));
  EXPECT_THAT(text, HasSubstr("div.approx.ftz.f32")) << "compiled with approximate arithmetic";
  const auto cubin = compileCuda(source, "sm_90", false);
  ASSERT_TRUE(cubin.ok()) << cubin.error().message;
  EXPECT_FALSE(cubin->code.empty());
  const auto refused = compileCuda("nonsense", "sm_90", false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kCompile);
  EXPECT_THAT(refused.error().message, HasSubstr("population.cu(1)")) << "the compiler's message";
}

}  // namespace
}  // namespace srjit

// Families of operators: nested, and closed under passes.

#include <algorithm>

#include <gtest/gtest.h>

#include "compiler/interpreter/handler_table.h"
#include "ir/ops.h"
#include "passes/rules/tables.h"

namespace srjit {
namespace {

TEST(OpFamily, EachContainsTheOneBefore) {
  std::size_t before = 0;
  for (const OpFamily family : kOpFamilies) {
    const auto ops = opsOf(family);
    EXPECT_TRUE(std::ranges::is_sorted(ops));
    EXPECT_GT(ops.size(), before) << nameOf(family);
    EXPECT_EQ(familyOf(ops), family);
    for (const OpFamily larger : kOpFamilies) {
      EXPECT_EQ(std::ranges::includes(opsOf(larger), ops), larger >= family);
    }
    before = ops.size();
  }
  EXPECT_EQ(before, allOps().size());
  EXPECT_EQ(familyOf(std::span<const Op>()), OpFamily::kArithmetic);
  EXPECT_EQ(familyOf(Op::kErf), OpFamily::kAll);
}

TEST(OpFamily, IsClosedUnderSimplificationAndFusion) {
  const auto familyOfTerm = [](const Expression& term) {
    OpFamily family = OpFamily::kArithmetic;
    for (const Token& token : term.tokens()) {
      if (token.kind == Token::Kind::kOp) family = std::max(family, familyOf(token.op));
    }
    return family;
  };
  for (const Rule& rule : allRules()) {
    EXPECT_LE(familyOfTerm(rule.replacement), familyOfTerm(rule.pattern)) << rule.pattern_text;
  }
  for (const Op op : {Op::kFma, Op::kFms, Op::kFnma, Op::kSquare}) EXPECT_EQ(familyOf(op), OpFamily::kArithmetic);
}

TEST(OpFamily, HandlersFitTokensAtTheUsualDepth) {
  for (const OpFamily family : kOpFamilies) {
    const auto ops = opsOf(family);
    const HandlerTable table({Precision::kF32, Math::kFast, {ops.begin(), ops.end()}, 8, 5});
    EXPECT_LE(table.handlers().size(), 4096U) << nameOf(family);
  }
}

}  // namespace
}  // namespace srjit

// Random expressions do not depend on which other operators the table has.
#include "tests/generators/population.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/text.h"

namespace srjit {
namespace {

constexpr Op kFirstAdded = Op::kTan, kSecondAdded = Op::kErf;

/// The pinned operators as if the table had no rows for the added ones.
std::vector<Op> operatorsBefore() {
  std::vector<Op> ops(pinnedOperators().begin(), pinnedOperators().end());
  std::erase(ops, kFirstAdded);
  std::erase(ops, kSecondAdded);
  return ops;
}

/// Expressions of a table that has gained rows for `added` in its middle.
std::vector<Expression> expressionsWith(const std::vector<Op>& added) {
  const std::vector<Op> pinned = operatorsBefore();
  GeneratorOptions options{.seed = 41, .min_nodes = 1, .variables = 4, .parameters = 2, .parameter_probability = 0.2};
  options.ops = pinned;
  options.ops.insert(options.ops.begin() + 20, added.begin(), added.end());
  return ExpressionGenerator(options, pinned).batch(2000);
}

bool has(const Expression& expression, Op op) {
  return std::ranges::any_of(expression.tokens(),
                             [op](const Token& token) { return token.kind == Token::Kind::kOp && token.op == op; });
}

bool sameLeaves(const Expression& a, const Expression& b) {
  return std::ranges::equal(a.tokens(), b.tokens(), [](const Token& x, const Token& y) {
    return x.kind == Token::Kind::kOp ? x.arity() == y.arity() : x == y;
  });
}

/// Expects that the rows for `added` change only expressions that then have `added.back()`.
void expectOthersUnchanged(const std::vector<Op>& given, const std::vector<Op>& added) {
  const std::vector<Expression> before = expressionsWith(given), after = expressionsWith(added);
  ASSERT_EQ(before.size(), after.size());
  std::size_t changed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(sameLeaves(before[i], after[i])) << i;
    if (has(after[i], added.back())) {
      ++changed;
    } else {
      EXPECT_EQ(print(before[i], Language::kInfix), print(after[i], Language::kInfix)) << i;
    }
  }
  EXPECT_GT(changed, before.size() / 16);
  EXPECT_LT(changed, before.size() / 4);
}

TEST(Population, AnAddedRowChangesOnlyExpressionsWithItsOperator) {
  expectOthersUnchanged({}, {kFirstAdded});
  expectOthersUnchanged({}, {kSecondAdded});
  expectOthersUnchanged({kFirstAdded}, {kFirstAdded, kSecondAdded});
  expectOthersUnchanged({kSecondAdded}, {kSecondAdded, kFirstAdded});
}

TEST(Population, TheOrderOfAddedRowsDoesNotMatter) {
  EXPECT_EQ(expressionsWith({kFirstAdded, kSecondAdded}), expressionsWith({kSecondAdded, kFirstAdded}));
}

TEST(Population, OperatorsAreDrawnIfNoneIsPinned) {
  const std::vector<Op> pinned = operatorsBefore();
  const GeneratorOptions options{.min_nodes = 5, .max_nodes = 5, .ops = {kFirstAdded}};
  const Expression expression = ExpressionGenerator(options, pinned).next();
  EXPECT_EQ(std::ranges::count(expression.tokens(), Token::operation(kFirstAdded)), 4);
}

TEST(Population, AddedRowsKeepWhatMostBytesMean) {
  std::set<std::size_t> added;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(stableChoice(byte, 60, 0), byte % 60);
    if (byte < 240) {
      EXPECT_EQ(stableChoice(byte, 60, 7), byte % 60);
    } else {
      added.insert(stableChoice(byte, 60, 7));
    }
  }
  EXPECT_EQ(added, (std::set<std::size_t>{60, 61, 62, 63, 64, 65, 66}));
}

TEST(Population, AllOperatorsAreThePinnedOnesAndTheOtherRows) {
  std::vector<Op> ops = allOperators();
  const auto pinned = pinnedOperators();
  ASSERT_GE(ops.size(), pinned.size());
  EXPECT_TRUE(std::equal(pinned.begin(), pinned.end(), ops.begin()));
  std::ranges::sort(ops);
  EXPECT_TRUE(std::ranges::unique(ops).empty());
  EXPECT_EQ(ops.size(), kOpCount);
}

TEST(Population, FaultsOnADeviceHaveATextEach) {
  std::set<std::string_view> texts;
  for (int fault = 0; fault <= static_cast<int>(DeviceFault::kSlots); ++fault) {
    texts.insert(textOf(static_cast<DeviceFault>(fault)));
  }
  EXPECT_EQ(texts.size(), static_cast<std::size_t>(DeviceFault::kSlots) + 1);
}

}  // namespace
}  // namespace srjit

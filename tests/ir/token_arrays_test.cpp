// Populations from token arrays.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/population.h"
#include "ir/text.h"
#include "tests/generators/population.h"
#include "tests/generators/token_arrays.h"

namespace srjit {
namespace {

// What a program has stored stays valid for ever: a row may be added, but none may change.
TEST(OperatorCodes, NeverChange) {
  const std::map<std::string, std::int32_t> codes = {
      {"add", 1},    {"sub", 2},        {"mul", 3},        {"div", 4},        {"pow", 5},         {"neg", 6},
      {"fma", 7},    {"fms", 8},        {"fnma", 9},       {"inv", 10},       {"square", 11},     {"cube", 12},
      {"sqrt", 13},  {"cbrt", 14},      {"abs", 15},       {"sign", 16},      {"min", 17},        {"max", 18},
      {"floor", 19}, {"ceil", 20},      {"round", 21},     {"mod", 22},       {"exp", 23},        {"exp2", 24},
      {"expm1", 25}, {"log", 26},       {"log2", 27},      {"log10", 28},     {"log1p", 29},      {"sin", 30},
      {"cos", 31},   {"tan", 32},       {"asin", 33},      {"acos", 34},      {"atan", 35},       {"atan2", 36},
      {"sinh", 37},  {"cosh", 38},      {"tanh", 39},      {"asinh", 40},     {"acosh", 41},      {"atanh", 42},
      {"erf", 43},   {"logistic", 44},  {"aq", 45},        {"lt", 46},        {"le", 47},         {"gt", 48},
      {"ge", 49},    {"if", 50},        {"pdiv", 51},      {"plog", 52},      {"psqrt", 53},      {"pinv", 54},
      {"ppow", 55},  {"loose_div", 56}, {"loose_inv", 57}, {"loose_log", 58}, {"loose_sqrt", 59}, {"loose_pow", 60},
      {"zdiv", 61},  {"lt_sign", 62},   {"le_sign", 63},   {"gt_sign", 64},   {"ge_sign", 65}};
  for (const auto& [name, code] : codes) {
    const std::optional<Op> op = findOp(name);
    ASSERT_TRUE(op) << name;
    EXPECT_EQ(codeOf(*op), code) << name;
    EXPECT_EQ(opOfCode(code), op) << name;
  }
  EXPECT_GE(allOps().size(), codes.size());
  EXPECT_EQ(opOfCode(0), std::nullopt);
  EXPECT_EQ(opOfCode(-1), std::nullopt);
  EXPECT_EQ(opOfCode(256), std::nullopt);
  EXPECT_EQ(variableCode(0), -1);
  EXPECT_EQ(variableCode(7), -8);
  EXPECT_EQ(parameterCode(0), -(1 << 30));
  EXPECT_EQ(parameterCode(2), -(1 << 30) - 2);
}

TEST(TokenArrays, GiveTheirExpressionsInBothNotations) {
  const GeneratorOptions options{.seed = 5,
                                 .min_nodes = 1,
                                 .max_nodes = 60,
                                 .parameters = 3,
                                 .constant_probability = 0.3,
                                 .parameter_probability = 0.2,
                                 .special_probability = 0.3};
  const std::vector<Expression> expressions = ExpressionGenerator(options).batch(3000);
  TokenArrays postfix, prefix;
  for (const Expression& expression : expressions) {
    postfix.addPostfix(expression);
    prefix.addPrefix(expression);
  }
  for (const PopulationView view : {postfix.view(), prefix.view(Notation::kPrefix)}) {
    ASSERT_TRUE(checkArrays(view));
    ASSERT_EQ(view.size(), expressions.size());
    Population::Block block;
    for (std::size_t e = 0; e < view.size(); ++e) {
      ASSERT_TRUE(block.add(view, e));
      const ExpressionView added = block[e];
      EXPECT_EQ(added.expression(), expressions[e]);
      EXPECT_EQ(added.size(), expressions[e].size());
      EXPECT_EQ(added.variableCount(), expressions[e].variableCount());
      EXPECT_EQ(added.parameterCount(), expressions[e].parameterCount());
    }
  }
}

TEST(TokenArrays, PopulationsKeepExpressionsAsTheyAre) {
  const std::vector<Expression> expressions =
      ExpressionGenerator({.seed = 6, .min_nodes = 1, .max_nodes = 9}).batch(2 * Population::kBlock + 5);
  const Population population(expressions);
  ASSERT_EQ(population.size(), expressions.size());
  Population copies;
  std::size_t tokens = 0;
  for (std::size_t e = 0; e < expressions.size(); ++e) {
    ASSERT_EQ(population[e].expression(), expressions[e]) << e;
    tokens += expressions[e].size();
    copies.add(population[e]);
    ASSERT_EQ(copies[e].expression(), expressions[e]) << e;
  }
  EXPECT_EQ(population.tokens(), tokens);
}

TEST(TokenArrays, OffsetsAreSumsOfParameters) {
  for (const std::size_t count :
       {std::size_t{0}, Population::kBlock, 2 * Population::kBlock, 2 * Population::kBlock + 5}) {
    TokenArrays arrays;
    std::vector<std::size_t> sums{0};
    for (std::size_t e = 0; e < count; ++e) {
      const auto parameters = static_cast<std::uint32_t>(e % 4);
      const bool is_valid = e % 7 != 3;
      arrays.add(parameters == 0 ? Token::variable(0) : Token::parameter(parameters - 1));
      if (!is_valid) arrays.add(Token::variable(0));
      arrays.end();
      sums.push_back(sums.back() + (is_valid ? parameters : 0));
    }
    Population at_once, one_by_one;
    const std::span<Population::Block> blocks = at_once.makeBlocks(count);
    for (std::size_t e = 0; e < count; ++e)
      EXPECT_EQ(blocks[e / Population::kBlock].add(arrays.view(), e).ok(), e % 7 != 3);
    at_once.finish();
    for (std::size_t e = 0; e < count; ++e) one_by_one.add(at_once[e]);
    ASSERT_EQ(at_once.size(), count);
    for (std::size_t e = 0; e <= count; ++e) {
      ASSERT_EQ(at_once.parameterOffset(e), sums[e]) << e << " of " << count;
      ASSERT_EQ(one_by_one.parameterOffset(e), sums[e]) << e << " of " << count;
    }
  }
}

/// The error of an expression, whose place in the block then has the constant NaN, and whose neighbours are intact.
Error errorOf(std::vector<std::int32_t> codes, Notation notation, bool has_constants = true) {
  TokenArrays arrays;
  arrays.add(Token::variable(3));
  arrays.end();
  for (const std::int32_t code : codes) {
    arrays.codes.push_back(code);
    arrays.constants.push_back(1.5);
  }
  arrays.end();
  arrays.add(Token::parameter(1));
  arrays.end();
  if (!has_constants) arrays.constants.clear();
  const PopulationView view = arrays.view(notation);
  EXPECT_TRUE(checkArrays(view));
  Population::Block block;
  EXPECT_TRUE(block.add(view, 0));
  const Status added = block.add(view, 1);
  EXPECT_TRUE(block.add(view, 2));
  EXPECT_EQ(print(block[0].expression(), Language::kInfix), "x3");
  EXPECT_EQ(print(block[1].expression(), Language::kInfix), "nan");
  EXPECT_EQ(print(block[2].expression(), Language::kInfix), "p1");
  EXPECT_EQ(block.variableCount(), 4U) << "an expression that is not valid needs no variable";
  return added.ok() ? Error{Errc::kInvalid, "valid", {}} : added.error();
}

TEST(TokenArrays, AnExpressionThatIsNotValidIsAnErrorOfItsOwn) {
  const std::int32_t add = codeOf(Op::kAdd), sin = codeOf(Op::kSin), x0 = variableCode(0);
  struct Case {
    std::vector<std::int32_t> codes;
    Notation notation;
    std::size_t token;
    const char* message;
  };
  const Case cases[] = {
      {{}, Notation::kPostfix, 1, "an expression needs at least one token"},
      {{}, Notation::kPrefix, 1, "an expression needs at least one token"},
      {{x0, 200}, Notation::kPostfix, 2, "token 2 has the code 200, which no operator has"},
      {{sin, 100000}, Notation::kPrefix, 2, "token 2 has the code 100000, which no operator has"},
      {{x0, add}, Notation::kPostfix, 2, "'add' needs 2 operands, but 1 precedes it"},
      {{add, x0}, Notation::kPrefix, 1, "'add' needs 2 operands, but 1 follows it"},
      {{sin}, Notation::kPrefix, 1, "'sin' needs 1 operand, but 0 follow it"},
      {{x0, x0}, Notation::kPostfix, 2, "the tokens leave 2 values, but an expression has one"},
      {{x0, x0}, Notation::kPrefix, 2, "the expression ends before token 2"},
      {{-1048577 - 1, sin}, Notation::kPostfix, 1, "x1048577 is above the largest index, 1048575"},
      {{sin, parameterCode(1 << 20)}, Notation::kPrefix, 2, "p1048576 is above the largest index, 1048575"},
      {{x0, sin, parameterCode(1 << 20), add}, Notation::kPostfix, 3, "p1048576 is above the largest index, 1048575"},
      {{std::numeric_limits<std::int32_t>::max()},
       Notation::kPostfix,
       1,
       "token 1 has the code 2147483647, which no operator has"},
      {{std::numeric_limits<std::int32_t>::min()},
       Notation::kPostfix,
       1,
       "p1073741824 is above the largest index, 1048575"},
      // One value is left, though there was none for the operator.
      {{sin, x0}, Notation::kPostfix, 1, "'sin' needs 1 operand, but 0 precede it"},
      {{x0, add, x0}, Notation::kPostfix, 2, "'add' needs 2 operands, but 1 precedes it"},
      {{x0, 0, 200}, Notation::kPostfix, 3, "token 3 has the code 200, which no operator has"},
  };
  for (const Case& each : cases) {
    const Error error = errorOf(each.codes, each.notation);
    EXPECT_EQ(error.message, each.message);
    ASSERT_TRUE(error.where) << each.message;
    EXPECT_EQ(error.where->column, each.token) << each.message;
  }
  for (const Notation notation : {Notation::kPostfix, Notation::kPrefix}) {
    EXPECT_EQ(errorOf({kConstantCode}, notation, false).message, "token 1 is a constant, but there are no constants");
  }
}

// Beside other tokens, constants may have any value and have no effect.
TEST(TokenArrays, ConstantsCountWhereTheTokenIsOne) {
  const std::vector<std::int32_t> codes = {variableCode(0), kConstantCode, codeOf(Op::kAdd), parameterCode(0),
                                           codeOf(Op::kMul)};
  constexpr double kNaN = std::numeric_limits<double>::signaling_NaN();
  const std::vector<double> constants = {kNaN, 2.5, kNaN, kNaN, kNaN};
  const std::vector<std::int64_t> offsets = {0, 5};
  Population::Block block;
  EXPECT_TRUE(block.add({codes, constants, offsets}, 0));
  EXPECT_EQ(print(block[0].expression(), Language::kInfix), "(x0 + 2.5) * p0");
  ASSERT_EQ(block[0].constants().size(), 1U);
  EXPECT_EQ(block[0].constants()[0], 2.5);
}

TEST(TokenArrays, TheLargestIndicesAreValid) {
  TokenArrays arrays;
  arrays.add(Token::variable(Expression::kMaxIndex));
  arrays.add(Token::parameter(Expression::kMaxIndex));
  arrays.add(Token::operation(Op::kAdd));
  arrays.end();
  Population::Block block;
  EXPECT_TRUE(block.add(arrays.view(), 0));
  EXPECT_EQ(block[0].variableCount(), Expression::kMaxIndex + 1);
  EXPECT_EQ(block[0].parameterCount(), Expression::kMaxIndex + 1);
}

// Blocks of any size: their memory grows.
TEST(TokenArrays, BlocksHoldWhatWasAddedInAnyWay) {
  TokenArrays arrays;
  std::vector<Expression> expressions;
  for (std::size_t e = 0; e < 300; ++e) {
    std::vector<Token> tokens = {Token::constant(static_cast<double>(e))};
    for (std::size_t i = 0; i < e; ++i) {
      tokens.push_back(i % 3 == 0 ? Token::constant(0.5) : Token::variable(static_cast<std::uint32_t>(i)));
      tokens.push_back(Token::operation(Op::kMul));
    }
    expressions.push_back(Expression::create(std::move(tokens)).value());
    arrays.addPostfix(expressions.back());
  }
  Population::Block block;
  for (std::size_t e = 0; e < expressions.size(); ++e) {
    if (e % 3 == 0) {
      block.add(expressions[e]);
    } else if (e % 3 == 1) {
      EXPECT_TRUE(block.add(arrays.view(), e));
    } else {
      block.add(Population(std::span(expressions).subspan(e, 1))[0]);
    }
  }
  std::size_t tokens = 0;
  for (std::size_t e = 0; e < expressions.size(); ++e) {
    EXPECT_EQ(print(block[e].expression(), Language::kInfix), print(expressions[e], Language::kInfix));
    tokens += block[e].codes().size();
  }
  EXPECT_EQ(block.tokens(), tokens);
}

// Derivations of a population take a copy of it for each, so a copy must cost nothing.
TEST(TokenArrays, CopiesShareTheirMemoryUntilOneIsAddedTo) {
  const Expression first = Expression::create({Token::variable(0)}).value();
  const Expression second = Expression::create({Token::parameter(1)}).value();
  const Population before({&first, 1});
  Population after = before;
  EXPECT_EQ(after[0].codes().data(), before[0].codes().data());
  after.add(second);
  EXPECT_NE(after[0].codes().data(), before[0].codes().data());
  EXPECT_EQ(before.size(), 1U);
  EXPECT_EQ(before.parameterOffset(1), 0U);
  ASSERT_EQ(after.size(), 2U);
  EXPECT_EQ(after[0].expression(), first);
  EXPECT_EQ(after[1].expression(), second);
  EXPECT_EQ(after.parameterOffset(2), 2U);
}

TEST(TokenArrays, ArraysThatDoNotFitTogetherAreAnError) {
  const std::vector<std::int32_t> codes(3, variableCode(0));
  const std::vector<double> constants(2);
  const auto messageOf = [&](std::vector<std::int64_t> offsets, std::span<const double> values) {
    const Status checked = checkArrays({codes, values, offsets});
    return checked.ok() ? "valid" : checked.error().message;
  };
  EXPECT_EQ(messageOf({0, 1, 3}, {}), "valid");
  EXPECT_EQ(messageOf({0, 1, 3}, constants), "2 constants for 3 tokens: expected one for each, or none");
  EXPECT_EQ(messageOf({}, {}), "3 tokens, but no offsets");
  EXPECT_EQ(messageOf({1, 3}, {}), "offset 0 is 1, expected 0");
  EXPECT_EQ(messageOf({0, 2, 1, 3}, {}), "offset 2 is 1, less than the one before, 2");
  EXPECT_EQ(messageOf({0, -1, 3}, {}), "offset 1 is -1, less than the one before, 0");
  EXPECT_EQ(messageOf({0, 1, 1, 3}, {}), "valid");
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(),
                         kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(messageOf({0, kLeast, 3}, {}), "offset 1 is -9223372036854775808, less than the one before, 0");
  EXPECT_EQ(messageOf({0, kMost, 3}, {}), "offset 2 is 3, less than the one before, 9223372036854775807");
  EXPECT_EQ(messageOf({0, kMost, kLeast}, {}),
            "offset 2 is -9223372036854775808, less than the one before, 9223372036854775807");
  EXPECT_EQ(messageOf({0, 2}, {}), "the last offset is 2, but there are 3 tokens");
  EXPECT_TRUE(checkArrays({}).ok()) << "no expression at all";
}

}  // namespace
}  // namespace srjit

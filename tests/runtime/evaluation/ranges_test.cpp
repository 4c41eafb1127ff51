// Ranges of expressions that are compiled together: bounded lengths, order, and expressions that are too long.
#include "runtime/evaluation/ranges.h"

#include <numeric>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "ir/numbers/rounding.h"
#include "ir/ops.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// x0+x0+...: 2 n + 1 tokens, n additions.
Expression sumOf(std::size_t additions, const std::string& term = "x0") {
  std::string text = term;
  for (std::size_t i = 0; i < additions; ++i) text += "+" + term;
  return infix(text);
}

std::vector<std::uint32_t> allOf(const std::vector<Expression>& expressions) {
  std::vector<std::uint32_t> order(expressions.size());
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

ProgramSource sourceOf(const std::vector<Expression>& expressions) {
  ProgramSource source;
  source.expressions = Population(expressions);
  return source;
}

/// The ranges, and expressions that are too long.
struct Kernels {
  std::vector<Range> ranges;
  std::vector<std::uint32_t> too_long;
};

Kernels kernelsOf(const std::vector<Expression>& expressions, std::size_t longest = kMaxCodeLength) {
  Kernels made;
  made.ranges = rangesForDevice(sourceOf(expressions), allOf(expressions), codeWeights(Precision::kF32, Math::kPrecise),
                                made.too_long, longest);
  return made;
}

TEST(CodeLength, OperatorsCountAsTheirInstructionsOnAGpu) {
  const CodeWeights weights = codeWeights(Precision::kF32, Math::kPrecise);
  const auto lengthOf = [&](const char* text) { return deviceCodeLength(Population(infixes({text}))[0], weights); };
  EXPECT_EQ(lengthOf("x0"), 1u);
  EXPECT_EQ(lengthOf("x0+1"), 3u);
  EXPECT_EQ(lengthOf("neg(x0)"), 2u);  // an operator without instructions still counts as a token
  EXPECT_EQ(lengthOf("sin(x0)"), 1 + codeWeight(*findOp("sin"), Precision::kF32, Math::kPrecise));
  EXPECT_EQ(hostCodeLength(Population(infixes({"sin(x0)"}))[0]), 2u);
}

TEST(KernelRanges, KernelsHaveABoundedLengthAndAllExpressionsInOrder) {
  for (const std::size_t count : {1, 64, 65, 1000, 5000}) {
    for (const char* const text : {"x0", "x0*x1+1", "sin(x0)+exp(x1)"}) {
      const std::vector<Expression> expressions(count, infix(text));
      const Kernels made = kernelsOf(expressions);
      EXPECT_THAT(made.too_long, IsEmpty());
      std::vector<std::uint32_t> members;
      for (const Range& range : made.ranges) {
        EXPECT_LE(range.expressions.size(), kExpressionsPerKernel);
        EXPECT_LE(range.length, 1600U);
        members.insert(members.end(), range.expressions.begin(), range.expressions.end());
      }
      EXPECT_EQ(members, allOf(expressions));
      const std::size_t fit = made.ranges[0].expressions.size();
      EXPECT_EQ(made.ranges.size(), ceilDivide(count, fit)) << text;
    }
  }
}

TEST(KernelRanges, OneExpressionMayFillAKernelAndNoMore) {
  // Per sine: its variable, its instructions, and an addition.
  const std::size_t fit = (kMaxCodeLength + 1) / (codeWeight(Op::kSin, Precision::kF32, Math::kPrecise) + 2);
  const std::vector<Expression> expressions = {sumOf(2047), sumOf(2048), sumOf(fit - 1, "sin(x0)"),
                                               sumOf(fit, "sin(x0)")};
  const Kernels made = kernelsOf(expressions);
  EXPECT_THAT(made.too_long, ElementsAre(1, 3));
  ASSERT_EQ(made.ranges.size(), 2u);
  EXPECT_THAT(made.ranges[0].expressions, ElementsAre(0));
  EXPECT_THAT(made.ranges[1].expressions, ElementsAre(2));
  EXPECT_THAT(kernelsOf(expressions, 5000).too_long, IsEmpty());
  EXPECT_THAT(kernelsOf(expressions, 100).too_long, ElementsAre(0, 1, 2, 3));
}

TEST(HostRanges, GraphsThatAreCompiledHaveABoundedLength) {
  for (const std::size_t additions : {1, 100, 400, 2047}) {
    const std::vector<Expression> expressions(50, sumOf(additions));
    std::size_t next = 0;
    for (const Range& range : rangesForHost(sourceOf(expressions), Tier::kCompile)) {
      EXPECT_TRUE(range.is_compiled);
      EXPECT_EQ(range.expressions.front(), next);
      EXPECT_LE(range.expressions.size(), kCompiledPerRange);
      EXPECT_EQ(range.length, (range.expressions.size()) * (2 * additions + 1));
      EXPECT_LE(range.length, kMaxCodeLength);
      next += range.expressions.size();
    }
    EXPECT_EQ(next, expressions.size());
  }
}

TEST(HostRanges, TooLongExpressionsAreNotCompiled) {
  const std::vector<Expression> expressions = {sumOf(1), sumOf(2048), sumOf(2)};
  const std::vector<Range> ranges = rangesForHost(sourceOf(expressions), Tier::kCompile);
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_TRUE(ranges[0].is_compiled);
  EXPECT_FALSE(ranges[1].is_compiled);
  EXPECT_TRUE(ranges[2].is_compiled);
  for (const Range& range : rangesForHost(sourceOf(expressions), Tier::kCompile, 4097)) {
    EXPECT_TRUE(range.is_compiled);
  }
  for (const Range& range : rangesForHost(sourceOf(expressions), Tier::kInterpret)) {
    EXPECT_FALSE(range.is_compiled);
  }
}

}  // namespace
}  // namespace srjit

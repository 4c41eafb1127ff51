// Counted instructions of operators.
#include "compiler/lowering/code_weights.h"

#include <gtest/gtest.h>

#include "ir/functions/polynomials.h"
#include "ir/ops.h"

namespace srjit {
namespace {

unsigned weightIn(Math math, Op op, Precision precision = Precision::kF32) { return codeWeight(op, precision, math); }

TEST(CodeWeights, CountTheInstructionsOfRows) {
  EXPECT_EQ(weightIn(Math::kPrecise, Op::kAdd), 1U);
  EXPECT_EQ(weightIn(Math::kPrecise, Op::kAbs), 0U) << "a modifier of an operand";
  EXPECT_EQ(weightIn(Math::kPrecise, Op::kMin), 1U);
  EXPECT_GT(weightIn(Math::kPrecise, Op::kMin, Precision::kF64), 1U) << "no instruction of a GPU in f64";
  EXPECT_GT(weightIn(Math::kPrecise, Op::kDiv), weightIn(Math::kFast, Op::kDiv));
}

TEST(CodeWeights, CountTheInstructionsOfPrograms) {
  EXPECT_GT(weightIn(Math::kPrecise, Op::kExp), std::size(functions::kExp32));
  EXPECT_GT(weightIn(Math::kPrecise, Op::kExp, Precision::kF64), weightIn(Math::kPrecise, Op::kExp));
  EXPECT_GT(weightIn(Math::kPrecise, Op::kPow),
            weightIn(Math::kPrecise, Op::kLog) + weightIn(Math::kPrecise, Op::kExp));
}

TEST(CodeWeights, CountApproximationsInFastF32Alone) {
  EXPECT_EQ(weightIn(Math::kFast, Op::kExp), 2U);
  EXPECT_EQ(weightIn(Math::kFast, Op::kExpm1), weightIn(Math::kPrecise, Op::kExpm1)) << "no approximation";
  EXPECT_EQ(weightIn(Math::kFast, Op::kExp, Precision::kF64), weightIn(Math::kPrecise, Op::kExp, Precision::kF64));
}

TEST(CodeWeights, OfAHostTellFunctionsFromOperations) {
  const auto weightOf = [](Math math, Op op, Precision precision = Precision::kF32) {
    return codeWeight(op, precision, math, TargetKind::kHost);
  };
  EXPECT_EQ(weightOf(Math::kPrecise, Op::kDiv), 1U);
  EXPECT_EQ(weightOf(Math::kPrecise, Op::kSqrt), 1U);
  EXPECT_GE(weightOf(Math::kPrecise, Op::kExp), weightIn(Math::kPrecise, Op::kExp)) << "the same program";
  EXPECT_EQ(weightOf(Math::kFast, Op::kExp), 2U);
  EXPECT_EQ(weightOf(Math::kFast, Op::kSin), weightOf(Math::kPrecise, Op::kSin)) << "no instruction of a host";
}

}  // namespace
}  // namespace srjit

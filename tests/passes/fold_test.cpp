#include "passes/rules/fold.h"

#include <gtest/gtest.h>

#include "tests/generators/graphs.h"

namespace srjit {
namespace {

TEST(ApproximateSteps, AreReadFromTheTable) {
  for (const Op op : {Op::kAdd, Op::kMul, Op::kFma, Op::kCube, Op::kFloor, Op::kMin, Op::kLt, Op::kIf, Op::kAbs,
                      Op::kErf, Op::kCbrt, Op::kExpm1, Op::kMod}) {
    EXPECT_FALSE(hasApproximateStep(op)) << infoOf(op).name;
  }
  for (const Op op : {Op::kDiv, Op::kInv, Op::kSqrt, Op::kAq, Op::kPdiv, Op::kPsqrt, Op::kLooseInv, Op::kExp, Op::kPow,
                      Op::kLogistic, Op::kPlog, Op::kLoosePow, Op::kLog10, Op::kSin, Op::kTanh}) {
    EXPECT_TRUE(hasApproximateStep(op)) << infoOf(op).name;
  }
}

TEST(FixedBits, AreMissingInFastF32Alone) {
  EXPECT_FALSE(hasFixedBits(Op::kDiv, Precision::kF32, Math::kFast));
  EXPECT_TRUE(hasFixedBits(Op::kDiv, Precision::kF64, Math::kFast));
  EXPECT_TRUE(hasFixedBits(Op::kDiv, Precision::kF32, Math::kPrecise));
  EXPECT_TRUE(hasFixedBits(Op::kMul, Precision::kF32, Math::kFast));
  EXPECT_TRUE(hasFixedBits(Op::kSin, Precision::kF64, Math::kStrict));
  EXPECT_FALSE(hasFixedBits(Op::kSin, Precision::kF32, Math::kFast));
}

TEST(Fold, ComputesInThePrecisionOfTheGraph) {
  EXPECT_EQ(after("fold", "0.1 + 0.2", Math::kStrict, Precision::kF64), "0.30000000000000004");
  const Dag narrow = ran(graphOf({"0.1 + 0.2"}, Precision::kF32), "fold", Math::kStrict);
  EXPECT_EQ(narrow.node(narrow.roots()[0]).value, double{0.1f + 0.2f});
}

TEST(Fold, LeavesWhatFastKernelsApproximate) {
  EXPECT_EQ(after("fold", "floor(sin(1 + 1) * 8)"), "7");
  EXPECT_EQ(after("fold", "sin(1 + 1)", Math::kFast, Precision::kF32), "sin(2)");
  EXPECT_EQ(after("fold", "x0 + 1 / 4", Math::kPrecise), "x0 + 0.25");
  EXPECT_EQ(after("fold", "x0 + 1 / 4", Math::kFast), after("none", "x0 + 1 / 4"));
  EXPECT_EQ(after("fold", "x0 + 1 / 4", Math::kFast, Precision::kF64), "x0 + 0.25");
}

TEST(Fold, RemovesDeadNodes) { EXPECT_EQ(ran(graphOf({"(1 + 2) * 3"}), "fold").size(), 1u); }

TEST(FoldFunctions, GivesThePreciseValue) {
  const Dag narrow = ran(graphOf({"sin(1)"}, Precision::kF32), "fold-functions", Math::kFast);
  EXPECT_EQ(narrow.node(narrow.roots()[0]).value, double{real::sin(1.0F)});
  EXPECT_EQ(after("fold-functions", "floor(exp(1) * 2)", Math::kFast, Precision::kF32), "5");
}

TEST(FoldFunctions, ThresholdsAreThoseOfAKernel) {
  // 0.001 in f32 is above 0.001 in f64, but not above the f32 threshold of the row.
  EXPECT_EQ(after("fold-functions", "plog(0.001)", Math::kFast, Precision::kF32), "0");
}

/// Every operator over all pairs of special numbers: the folded value equals the row's in the kernel's precision.
template <class T>
void foldsWithTheKernelsBits(Precision precision) {
  const std::vector<T> numbers = specialNumbers<T>();
  for (std::size_t i = 0; i < allOps().size(); ++i) {
    const Op op = static_cast<Op>(i);
    if (!hasFixedBits(op, precision, Math::kStrict)) continue;
    for (const T x : numbers) {
      for (const T y : numbers) {
        const T z = numbers[(nameHashOf(op) + static_cast<std::size_t>(&y - numbers.data())) % numbers.size()];
        const std::array<double, 3> operands = {double{x}, double{y}, double{z}};
        const double value = valueOf(op, std::span(operands).first(static_cast<std::size_t>(arityOf(op))), precision);
        const T expected = applyRow<T>(op, x, arityOf(op) > 1 ? y : T(0), arityOf(op) > 2 ? z : T(0));
        ASSERT_TRUE(sameBits(static_cast<T>(value), expected)) << infoOf(op).name << ' ' << x << ' ' << y << ' ' << z;
      }
    }
  }
}

TEST(Fold, HasTheBitsOfTheKernelF32) { foldsWithTheKernelsBits<float>(Precision::kF32); }
TEST(Fold, HasTheBitsOfTheKernelF64) { foldsWithTheKernelsBits<double>(Precision::kF64); }

}  // namespace
}  // namespace srjit

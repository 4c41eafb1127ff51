#include <gtest/gtest.h>

#include "tests/generators/graphs.h"

namespace srjit {
namespace {

// The pass "fold" puts operands in their canonical order.
TEST(Fma, FusesTheThreeForms) {
  EXPECT_EQ(after("fold,fma", "x0 * x1 + x2"), "fma(x0, x1, x2)");
  EXPECT_EQ(after("fold,fma", "x0 * x1 - x2"), "fms(x0, x1, x2)");
  EXPECT_EQ(after("fold,fma", "x2 - x0 * x1"), "fnma(x0, x1, x2)");
}

TEST(Fma, FusesSquaresAndCubes) {
  EXPECT_EQ(after("fold,fma", "square(x0) + x1"), "fma(x0, x0, x1)");
  EXPECT_EQ(after("fold,fma", "x1 - cube(x0)"), after("fold", "fnma(square(x0), x0, x1)"));
  EXPECT_EQ(after("fold,fma", "sin(cube(x0)) + cube(x0)"), after("fold", "sin(cube(x0)) + cube(x0)"));
}

TEST(Fma, ANegatedFactorSelectsTheForm) {
  EXPECT_EQ(after("fold,fma", "-x0 * x1 + x2"), after("fold", "fnma(x0, x1, x2)"));
  EXPECT_EQ(after("fold,fma", "x2 - x0 * -x1"), after("fold", "fma(x0, x1, x2)"));
  EXPECT_EQ(after("fold,fma", "-x0 * x1 - x2"), after("fold", "fms(-x0, x1, x2)"));
}

TEST(Fma, FusesTheProductWithoutOtherUses) {
  // sin uses one product, so only fusing the other makes a multiplication dead.
  EXPECT_EQ(after("fold,fma", "(x0 * x1 + x2 * x3) + sin(x0 * x1)"),
            after("fold", "fma(x2, x3, x0 * x1) + sin(x0 * x1)"));
  EXPECT_EQ(after("fold,fma", "(x0 * x1 + x2 * x3) + sin(x2 * x3)"),
            after("fold", "fma(x0, x1, x2 * x3) + sin(x2 * x3)"));
  EXPECT_EQ(after("fold,fma", "(x0 * x1 - x2 * x3) / sin(x0 * x1)"),
            after("fold", "fnma(x2, x3, x0 * x1) / sin(x0 * x1)"));
}

TEST(Fma, ADifferenceOfEqualProductsIsNotFused) {
  EXPECT_EQ(after("fold,fma", "x0 * x1 - x0 * x1"), after("fold", "x0 * x1 - x0 * x1"));
  EXPECT_EQ(after("fold,fma", "square(x0) - square(x0)"), after("fold", "square(x0) - square(x0)"));
}

TEST(Fma, AProductThatUndoesItsFactorIsNotFused) {
  for (const std::string_view text : {"x0 - square(sqrt(x0))", "square(psqrt(x0)) - x0", "x0 - cube(cbrt(x0))",
                                      "x0 * inv(x0) - 1", "1 - inv(x0) * x0", "(x0 / x1) * x1 - x0"}) {
    EXPECT_EQ(after("fold,fma", text), after("fold", text));
  }
  EXPECT_EQ(after("fold,fma", "x0 * inv(x1) - 1"), after("fold", "fms(x0, inv(x1), 1)"));
}

TEST(Fma, UsesInOtherRootsDoNotCount) {
  const std::string alone = after("fold,fma", "x0 * x1 + x2 * x3");
  for (const std::string_view other : {"sin(x0 * x1)", "sin(x2 * x3)"}) {
    EXPECT_EQ(textOf(ran(graphOf({other, "x0 * x1 + x2 * x3", other}), "fold,fma"), 1), alone) << other;
  }
}

TEST(Fma, IsNotInStrictPipelines) {
  EXPECT_EQ(after("standard", "x0 * x1 + x2", Math::kStrict), after("fold", "x0 * x1 + x2"));
}

}  // namespace
}  // namespace srjit

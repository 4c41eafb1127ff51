#include <gtest/gtest.h>

#include "tests/generators/graphs.h"

namespace srjit {
namespace {

/// Root `root` after the pass, of a graph in its canonical order.
std::string fused(std::initializer_list<std::string_view> texts, std::size_t root = 0) {
  return textOf(ran(ordered(graphOf(texts, Precision::kF32)), "fma"), root);
}

TEST(Fma, FusesSumsOfProducts) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"x0 * x1 + x2", "fma(x0, x1, x2)"},
      {"x0 * x1 - x2", "fms(x0, x1, x2)"},
      {"x2 - x0 * x1", "fnma(x0, x1, x2)"},
      {"square(x0) + x1", "fma(x0, x0, x1)"},
      {"x1 - cube(x0)", "fnma(square(x0), x0, x1)"},
      {"sin(cube(x0)) + cube(x0)", "sin(cube(x0)) + cube(x0)"},
      // A negated factor selects the form.
      {"-x0 * x1 + x2", "fnma(x0, x1, x2)"},
      {"x2 - x0 * -x1", "fma(x0, x1, x2)"},
      {"-x0 * x1 - x2", "fms(-x0, x1, x2)"},
      // sin uses one product, so only fusing the other makes a multiplication dead.
      {"(x0 * x1 + x2 * x3) + sin(x0 * x1)", "fma(x2, x3, x0 * x1) + sin(x0 * x1)"},
      {"(x0 * x1 + x2 * x3) + sin(x2 * x3)", "fma(x0, x1, x2 * x3) + sin(x2 * x3)"},
      {"(x0 * x1 - x2 * x3) / sin(x0 * x1)", "fnma(x2, x3, x0 * x1) / sin(x0 * x1)"},
      // A difference of equal products is not fused.
      {"x0 * x1 - x0 * x1", "x0 * x1 - x0 * x1"},
      {"square(x0) - square(x0)", "square(x0) - square(x0)"},
      {"x0 * inv(x1) - 1", "fms(x0, inv(x1), 1)"}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(fused({text}), ordered(expected));
}

TEST(Fma, AProductThatUndoesItsFactorIsNotFused) {
  for (const std::string_view text : {"x0 - square(sqrt(x0))", "square(psqrt(x0)) - x0", "x0 - cube(cbrt(x0))",
                                      "x0 * inv(x0) - 1", "1 - inv(x0) * x0", "(x0 / x1) * x1 - x0"}) {
    EXPECT_EQ(fused({text}), ordered(text));
  }
}

TEST(Fma, UsesInOtherRootsDoNotCount) {
  const std::string alone = fused({"x0 * x1 + x2 * x3"});
  for (const std::string_view other : {"sin(x0 * x1)", "sin(x2 * x3)"}) {
    EXPECT_EQ(fused({other, "x0 * x1 + x2 * x3", other}, 1), alone) << other;
  }
}

TEST(Fma, IsNotInStrictPipelines) {
  EXPECT_EQ(after("standard", "x0 * x1 + x2", Math::kStrict), ordered("x0 * x1 + x2"));
}

}  // namespace
}  // namespace srjit

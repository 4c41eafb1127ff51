// When sums tell a scaled loss, and what is evaluated instead if they do not.
#include "runtime/evaluation/loss_value.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace srjit {
namespace {

/// Sums over four rows of a prediction with this mean and this mean of squares.
LossSums sumsOf(double mean, double square) {
  return {.terms = 4 * mean, .weights = 4, .rows = 4, .valid = 4, .more_terms = {4 * square, 0}};
}

TEST(Conditioning, SumsNearZeroAreGood) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    for (const double mean : {0.0, 1.0, -3.9}) {
      LossSums sums = sumsOf(mean, mean * mean + 1);
      EXPECT_FALSE(betterConditioning(sums, {}, precision)) << mean;
      EXPECT_FALSE(sums.is_constant);
    }
  }
}

TEST(Conditioning, FarFromZeroTheyAreTakenAboutTheMean) {
  LossSums sums = sumsOf(-1000, 1e6 + 1);
  const Conditioning better = betterConditioning(sums, {}, Precision::kF32).value();
  EXPECT_EQ(better.factor, 0x1p-9);
  EXPECT_EQ(better.offset, 1000 * 0x1p-9);
  // The mean was 10 off.
  LossSums again = sumsOf(10 * 0x1p-9, 100.25 * 0x1p-18);
  const Conditioning best = betterConditioning(again, better, Precision::kF32).value();
  EXPECT_EQ(best.factor, 0x1p-9);
  EXPECT_EQ(best.offset, 990 * 0x1p-9);
}

TEST(Conditioning, SquaresOutOfRangeAreTakenInAnother) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  LossSums large = sumsOf(1e25, kInfinity), small = sumsOf(1e-30, 0), unknown = sumsOf(kNaN, kInfinity);
  EXPECT_EQ(betterConditioning(large, {}, Precision::kF32), (Conditioning{.factor = 0x1p-96}));
  EXPECT_EQ(betterConditioning(large, {}, Precision::kF64), (Conditioning{.factor = 0x1p-768}));
  EXPECT_EQ(betterConditioning(small, {}, Precision::kF32), (Conditioning{.factor = 0x1p96}));
  EXPECT_EQ(betterConditioning(unknown, {}, Precision::kF32), (Conditioning{.factor = 0x1p-96}));
  EXPECT_FALSE(betterConditioning(large, {.factor = 0x1p-96}, Precision::kF32)) << "it is infinite";
  LossSums none = sumsOf(kNaN, kNaN), no_rows{.rows = 4};
  EXPECT_FALSE(betterConditioning(none, {}, Precision::kF32));
  EXPECT_FALSE(betterConditioning(no_rows, {}, Precision::kF32));
}

TEST(Conditioning, RoundingsOfAConstantAreConstant) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    const double unit = lastPlace(precision);
    const Conditioning about{.factor = 1, .offset = -1};
    LossSums exact = sumsOf(0, 0), rounded = sumsOf(0, unit * unit), varied = sumsOf(0, 16 * unit * unit);
    EXPECT_FALSE(betterConditioning(exact, about, precision));
    EXPECT_TRUE(exact.is_constant);
    EXPECT_FALSE(betterConditioning(rounded, about, precision));
    EXPECT_TRUE(rounded.is_constant);
    EXPECT_FALSE(betterConditioning(varied, about, precision));
    EXPECT_FALSE(varied.is_constant);
  }
  LossSums zero = sumsOf(0, 0);
  EXPECT_FALSE(betterConditioning(zero, {.factor = 0x1p96}, Precision::kF32));
  EXPECT_TRUE(zero.is_constant);
}

}  // namespace
}  // namespace srjit

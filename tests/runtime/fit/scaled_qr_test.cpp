#include "runtime/fit/least_squares.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace srjit::fit {
namespace {

using Numbers = std::vector<double>;

/// The columns x^k on 0, ..., rows - 1, and b.
Numbers powers(std::size_t rows, std::size_t count, const Numbers& b) {
  Numbers columns;
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t row = 0; row < rows; ++row) columns.push_back(std::pow(row, k));
  }
  columns.insert(columns.end(), b.begin(), b.end());
  return columns;
}

Numbers targetOf(std::size_t rows, const Numbers& coefficients) {
  Numbers b(rows, 0);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t k = coefficients.size(); k-- > 0;) {
      b[row] = b[row] * static_cast<double>(row) + coefficients[k];
    }
  }
  return b;
}

TEST(ScaledQr, SolvesWhatColumnsMeetExactly) {
  const Numbers expected = {3, -2, 0.5, 0.25};
  Numbers columns = powers(30, 4, targetOf(30, expected)), d(4);
  ScaledQr qr;
  qr.factor(columns, 30, 4, 1e-15);
  EXPECT_EQ(qr.rank(), 4U);
  qr.solve(Numbers(4, 0), 0, d);
  for (std::size_t k = 0; k < 4; ++k) EXPECT_NEAR(d[k], expected[k], 1e-11) << k;
  EXPECT_LT(qr.rest(4), 1e-16);
  EXPECT_GT(qr.rest(3), 1);
}

// The textbook's formulas of a straight line.
TEST(ScaledQr, InverseDiagonalIsThatOfRegression) {
  Numbers columns = powers(20, 2, Numbers(20, 1));
  ScaledQr qr;
  qr.factor(columns, 20, 2, 1e-15);
  const double mean = 9.5, squares = 665;
  EXPECT_NEAR(qr.inverseDiagonal(1), 1 / squares, 1e-15);
  EXPECT_NEAR(qr.inverseDiagonal(0), 1 / 20.0 + mean * mean / squares, 1e-13);
}

TEST(ScaledQr, DependentColumnsAreLeftOutAndTheirPartIsTaken) {
  Numbers b(10), columns;
  for (const double factor : {1.0, 3.0}) {
    for (std::size_t row = 0; row < 10; ++row) columns.push_back(factor * static_cast<double>(row + 1));
  }
  for (std::size_t row = 0; row < 10; ++row) b[row] = 2 * static_cast<double>(row + 1);
  columns.insert(columns.end(), b.begin(), b.end());
  ScaledQr qr;
  qr.factor(columns, 10, 2, 1e-14);
  EXPECT_EQ(qr.rank(), 1U);
  EXPECT_TRUE(qr.isDependent(1));
  EXPECT_TRUE(std::isnan(qr.inverseDiagonal(1)));
  Numbers d(2);
  qr.solve(Numbers{5, 4}, 0, d);  // p0 + 3 p1 is 17, and is to be 19
  EXPECT_EQ(d[1], -4);
  EXPECT_NEAR(d[0], 14, 1e-12);
}

TEST(ScaledQr, DampingKeepsTermsThatCancelSmall) {
  Numbers b(40, 1), columns;
  for (const double shift : {0.0, 1e-7}) {
    for (std::size_t row = 0; row < 40; ++row) columns.push_back(1 + shift * std::sin(static_cast<double>(row)));
  }
  b[3] = 1.01;
  columns.insert(columns.end(), b.begin(), b.end());
  ScaledQr qr;
  qr.factor(columns, 40, 2, 1e-12);
  EXPECT_EQ(qr.rank(), 2U);
  Numbers exact(2), damped(2);
  qr.solve(Numbers(2, 0), 0, exact);
  qr.solve(Numbers(2, 0), 1e-5, damped);
  EXPECT_GT(std::fabs(exact[1]), 100);
  EXPECT_LT(std::fabs(damped[1]), 10);
  EXPECT_NEAR(damped[0] + damped[1], 1, 1e-3);
}

TEST(ScaledQr, MoreColumnsThanRowsAndColumnsOfZerosDepend) {
  ScaledQr qr;
  Numbers columns = powers(2, 3, {1, 2});
  qr.factor(columns, 2, 3, 1e-15);
  EXPECT_EQ(qr.rank(), 2U);
  Numbers zeros(9, 0);
  qr.factor(zeros, 3, 2, 1e-15);
  EXPECT_EQ(qr.rank(), 0U);
  Numbers d(2, 7);
  qr.solve(Numbers(2, 0), 0.5, d);
  EXPECT_EQ(d, Numbers(2, 0));
}

// Errors that are orthogonal to the columns, and a million times larger than what these explain.
TEST(ScaledQr, AnExactGradientTellsSmallStepsUnderLargeResiduals) {
  const Numbers errors = {1, -3, 3, -1};  // orthogonal to polynomials of degree 2
  Numbers b = targetOf(4, {1e-3, 1e-3});
  for (std::size_t row = 0; row < 4; ++row) b[row] += 1e6 * errors[row];
  Numbers columns = powers(4, 2, b), gradient(2), d(2);
  for (std::size_t k = 0; k < 2; ++k) gradient[k] = exactDot(std::span(columns).subspan(4 * k, 4), b);
  ScaledQr qr;
  qr.factor(columns, 4, 2, 1e-15);
  qr.setGradient(gradient);
  qr.solve(Numbers(2, 0), 0, d);
  EXPECT_NEAR(d[0], 1e-3, 1e-9);
  EXPECT_NEAR(d[1], 1e-3, 1e-9);
  EXPECT_GT(qr.leastSine(), 0.1);
}

TEST(ScaledQr, ExactDotHasTheDigitsThatCancel) {
  EXPECT_EQ(exactDot(Numbers{1e16, 1, -1e16}, Numbers{1, 1, 1}), 1);
  EXPECT_EQ(exactDot(Numbers{1e8 + 1, 1e8}, Numbers{1e8 - 1, -1e8}), -1);
}

}  // namespace
}  // namespace srjit::fit

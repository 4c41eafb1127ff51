#include "runtime/fit/least_squares.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

namespace srjit::fit {
namespace {

constexpr double kThreshold = 1e-13;

/// Columns of J: 1, x and x^2 at x = 0, ..., 4, with units.
std::vector<double> gramOf(std::span<const std::array<double, 5>> columns) {
  std::vector<double> gram(triangleSize(columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      for (std::size_t row = 0; row < 5; ++row) gram[triangleIndex(i, j)] += columns[i][row] * columns[j][row];
    }
  }
  return gram;
}
constexpr std::array<double, 5> kOne{1, 1, 1, 1, 1}, kX{0, 1, 2, 3, 4}, kSquare{0, 1, 4, 9, 16};

std::array<double, 5> scaled(std::array<double, 5> column, double factor) {
  for (double& value : column) value *= factor;
  return column;
}

TEST(ScaledCholesky, SolvesWhateverTheUnits) {
  for (const double unit : {1e-120, 1e-3, 1.0, 1e120}) {
    const std::array columns{kOne, scaled(kX, unit), kSquare};
    const std::vector<double> gram = gramOf(columns), none(3);
    ScaledCholesky cholesky;
    cholesky.resize(3);
    cholesky.factor(gram, none, kThreshold);
    EXPECT_EQ(cholesky.rank(), 3U);
    // J' (3 + 2 x - x^2)
    const std::array right{5.0 * 3 + 2 * 10 - 30, unit * (3 * 10 + 2 * 30 - 100), 3.0 * 30 + 2 * 100 - 354};
    std::array<double, 3> solution{};
    cholesky.forward(right, solution);
    cholesky.backward(solution);
    EXPECT_NEAR(solution[0], 3, 1e-12);
    EXPECT_NEAR(solution[1] * unit, 2, 1e-12);
    EXPECT_NEAR(solution[2], -1, 1e-12);
  }
}

TEST(ScaledCholesky, TheFirstColumnsAlone) {
  const std::array columns{kOne, kX, kSquare};
  ScaledCholesky cholesky;
  cholesky.resize(3);
  cholesky.factor(gramOf(columns), std::vector<double>(3), kThreshold);
  const std::array right{5.0 * 3 + 2 * 10, 3.0 * 10 + 2 * 30, 0.0};  // J' (3 + 2 x), but for the last
  std::array<double, 3> solution{};
  cholesky.forward(right, solution);
  // By least squares, all of the square of 3 + 2 x is explained.
  EXPECT_NEAR(solution[0] * solution[0] + solution[1] * solution[1], 9 + 25 + 49 + 81 + 121, 1e-10);
  cholesky.backward(std::span(solution).first(2));
  EXPECT_NEAR(solution[0], 3, 1e-12);
  EXPECT_NEAR(solution[1], 2, 1e-12);
}

TEST(ScaledCholesky, LeavesOutColumnsThatDependOnThoseBefore) {
  std::array<double, 5> sum{};
  for (std::size_t row = 0; row < 5; ++row) sum[row] = 2 * kOne[row] - 7 * kX[row];
  const std::array<double, 5> zero{};
  const std::array columns{kOne, zero, kX, sum, kSquare};
  ScaledCholesky cholesky;
  cholesky.resize(5);
  cholesky.factor(gramOf(columns), std::vector<double>(5), kThreshold);
  EXPECT_EQ(cholesky.rank(), 3U);
  EXPECT_TRUE(cholesky.isDependent(1));
  EXPECT_TRUE(cholesky.isDependent(3));
  std::array<double, 5> solution{};
  const double minus = 2 * (15 + 20 - 30) - 7 * (30 + 60 - 100);
  cholesky.forward(std::array{15.0 + 20 - 30, 0.0, 30.0 + 60 - 100, minus, 90.0 + 200 - 354}, solution);
  cholesky.backward(solution);
  EXPECT_NEAR(solution[0], 3, 1e-11);
  EXPECT_EQ(solution[1], 0);
  EXPECT_NEAR(solution[2], 2, 1e-11);
  EXPECT_EQ(solution[3], 0);
  EXPECT_NEAR(solution[4], -1, 1e-11);
  std::array<double, 5> work{};
  EXPECT_TRUE(std::isnan(cholesky.inverseDiagonal(3, work)));
  EXPECT_TRUE(std::isfinite(cholesky.inverseDiagonal(4, work)));
}

TEST(ScaledCholesky, InverseAndRemainder) {
  const std::array columns{kOne, kX};
  const std::vector<double> gram = gramOf(columns);
  ScaledCholesky cholesky;
  cholesky.resize(2);
  cholesky.factor(gram, std::vector<double>(2), kThreshold);
  std::array<double, 2> work{};
  EXPECT_NEAR(cholesky.inverseDiagonal(0, work), 30.0 / 50, 1e-14);
  EXPECT_NEAR(cholesky.inverseDiagonal(1, work), 5.0 / 50, 1e-14);
  EXPECT_NEAR(cholesky.remainder(gram, 1, 0), 30, 1e-12);
  EXPECT_NEAR(cholesky.remainder(gram, 1, 1), 10, 1e-12);  // of x about its mean
}

TEST(ScaledCholesky, OfNothing) {
  ScaledCholesky cholesky;
  cholesky.resize(0);
  cholesky.factor({}, {}, kThreshold);
  EXPECT_EQ(cholesky.rank(), 0U);
  cholesky.forward({}, {});
  cholesky.backward({});
}

// One after another, larger and smaller.
TEST(ScaledCholesky, KeepsNothingOfTheMatrixBefore) {
  const std::array columns{kOne, kX, kSquare}, dependent{kOne, kOne, kX};
  ScaledCholesky again;
  for (const std::size_t count : {2, 3, 1, 3}) {
    for (const auto& all : {columns, dependent}) {
      const std::vector<double> gram = gramOf(std::span(all).first(count)), none(count), right(count, 1);
      ScaledCholesky once;
      std::vector<std::vector<double>> results;
      for (ScaledCholesky* const cholesky : {&once, &again}) {
        cholesky->resize(count);
        cholesky->factor(gram, none, kThreshold);
        std::vector<double> solution(count), work(count);
        cholesky->forward(right, solution);
        std::vector<double> result = solution;
        cholesky->backward(solution);
        result.insert(result.end(), solution.begin(), solution.end());
        for (std::size_t j = 0; j < count; ++j) {
          result.push_back(cholesky->remainder(gram, j, 0));
          result.push_back(cholesky->isDependent(j) ? -1 : cholesky->inverseDiagonal(j, work));
        }
        result.push_back(static_cast<double>(cholesky->rank()));
        results.push_back(std::move(result));
      }
      EXPECT_EQ(results[0], results[1]) << count;
    }
  }
}

}  // namespace
}  // namespace srjit::fit

// Rows of workloads, and the comparison of all results on two data sets.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/evaluation/dataset_state.h"
#include "tests/generators/derivatives.h"

namespace srjit {

/// The workload with some of its rows.
inline Workload rowsOf(const Workload& w, const std::vector<RowRun>& runs) {
  const auto chosen = [&](const std::vector<double>& all) {
    std::vector<double> some;
    if (all.empty()) return some;
    for (const RowRun& run : runs) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(run.first);
      some.insert(some.end(), first, first + static_cast<std::ptrdiff_t>(run.count));
    }
    return some;
  };
  Workload part = w;
  for (std::size_t c = 0; c < w.columns.size(); ++c) part.columns[c] = chosen(w.columns[c]);
  part.target = chosen(w.target);
  part.weights = chosen(w.weights);
  return part;
}

/// Expects equal descriptions of the data.
inline void expectSameDescription(const Dataset& got, const Dataset& expected) {
  const Dataset::State &a = got.state(), &b = expected.state();
  EXPECT_NE(a.serial, b.serial);
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.columns, b.columns);
  EXPECT_TRUE(std::ranges::equal(a.names.names(), b.names.names()));
  EXPECT_EQ(a.device, b.device);
  EXPECT_EQ(a.padded_rows, b.padded_rows);
  EXPECT_EQ(a.column_stride, b.column_stride);
  EXPECT_EQ(a.has_target, b.has_target);
  EXPECT_EQ(a.has_weights, b.has_weights);
  EXPECT_TRUE(sameBits(a.weight_sum, b.weight_sum)) << a.weight_sum << " and " << b.weight_sum;
  EXPECT_TRUE(sameBits(a.target_variance, b.target_variance)) << a.target_variance << " and " << b.target_variance;
  EXPECT_EQ(a.row_group_weights, b.row_group_weights);
}

/// Losses that read all of a data set: rows, weights and their sum, the target, its mean and its variance.
inline constexpr LossKind kLossesOfData[] = {LossKind::kMse, LossKind::kNmse, LossKind::kScaledR2, LossKind::kHuber};

/// Expects that a program gives the same bits on both: predictions, losses, gradients and fits.
inline void expectSameResults(const Engine& engine, const Dataset& got, const Dataset& expected, const Workload& w,
                              Tier tier = Tier::kInterpret) {
  expectSameDescription(got, expected);
  const Program program = engine.compile(w.expressions, {.tier = tier});
  expectSameBits(predict(engine, program, got, w.parameters), predict(engine, program, expected, w.parameters),
                 got.rows(), "predictions");
  for (const LossKind kind : kLossesOfData) {
    for (const NanPolicy nan : kNanPolicies) {
      const LossOptions options{kind, nan};
      const Losses a = engine.loss(program, got, w.parameters, options).value();
      const Losses b = engine.loss(program, expected, w.parameters, options).value();
      expectSameBits(a.values, b.values, 1, "losses");
      EXPECT_EQ(a.valid_rows, b.valid_rows);
    }
  }
  for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
    const GradientOptions options{.loss = {LossKind::kMse, nan}};
    expectSameGradients(engine.gradient(program, got, w.parameters, options).value(),
                        engine.gradient(program, expected, w.parameters, options).value(), "gradients");
  }
  const Fits a = engine.fit(program, got, w.parameters).value();
  const Fits b = engine.fit(program, expected, w.parameters).value();
  expectSameBits(a.parameters, b.parameters, 1, "fitted parameters");
  expectSameBits(a.losses.values, b.losses.values, 1, "losses of fits");
  expectSameBits(a.standard_errors, b.standard_errors, 1, "standard errors");
  EXPECT_EQ(a.statuses, b.statuses);
}

/// Ranges of rows that begin and end anywhere.
inline std::vector<RowRun> someRanges(std::size_t rows) {
  return {{0, rows}, {0, 1}, {rows - 1, 1}, {128, 256}, {0, 129}, {77, rows - 100}, {rows - 3, 3}};
}

/// Weights that are not multiples of each other, some of them 0.
inline std::vector<double> otherWeights(std::size_t rows) {
  std::vector<double> weights(rows);
  for (std::size_t r = 0; r < rows; ++r) weights[r] = r % 6 == 4 ? 0.0 : 0.1 + static_cast<double>(r % 11) / 3;
  return weights;
}

}  // namespace srjit

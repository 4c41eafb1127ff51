// Gradients and Jacobians of workloads, and their comparison.
#pragma once

#include <span>
#include <vector>

#include "tests/generators/workload.h"

namespace srjit {

inline Gradients gradientsOf(const Engine& engine, const Workload& w, Tier tier, const GradientOptions& options) {
  const Dataset data = engine.upload(w.view()).value();
  return engine.gradient(engine.compile(w.expressions, {.tier = tier}), data, w.parameters, options).value();
}

/// As doubles, which keeps every bit of a float.
inline std::vector<double> jacobianOf(const Engine& engine, const Workload& w, Tier tier, DerivativesBy by) {
  const Dataset data = engine.upload(w.view()).value();
  const Program program = engine.compile(w.expressions, {.tier = tier});
  const std::size_t count =
      by == DerivativesBy::kVariables ? w.columns.size() * w.expressions.size() : w.parameters.size();
  return withZeroOf(engine.options().precision, [&]<class T>(T) {
    std::vector<T> out(count * w.rows(), T(12345));
    const auto failures = engine.jacobian(program, data, w.parameters, std::span<T>(out), by);
    EXPECT_TRUE(failures.ok()) << failures.error().message;
    return std::vector<double>(out.begin(), out.end());
  });
}

inline void expectSameGradients(const Gradients& a, const Gradients& b, const char* what) {
  expectSameBits(a.losses.values, b.losses.values, 1, what);
  expectSameBits(a.derivatives, b.derivatives, 1, what);
  EXPECT_EQ(a.losses.valid_rows, b.losses.valid_rows) << what;
  EXPECT_EQ(a.losses.failures.size(), b.losses.failures.size()) << what;
}

}  // namespace srjit

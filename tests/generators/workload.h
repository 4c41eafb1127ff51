// Expressions with data and parameters for an engine, and comparisons of results.
#pragma once

#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/engine.h"
#include "tests/generators/data.h"
#include "tests/generators/population.h"

namespace srjit {

/// Owns all input of one evaluation. Columns are rounded to the precision.
struct Workload {
  std::vector<Expression> expressions{};
  std::vector<std::vector<double>> columns{};
  std::vector<double> target{}, weights{};  ///< empty: none
  std::vector<double> parameters{};

  static Workload random(const GeneratorOptions& options, std::size_t count, std::size_t rows, Spread spread,
                         Precision precision) {
    Random random(options.seed + 1000);
    Workload w;
    w.expressions = ExpressionGenerator(options).batch(count);
    w.columns = randomColumns(random, static_cast<std::size_t>(options.variables), rows, spread, precision);
    w.target = randomColumns(random, 1, rows, Spread::kTame, precision)[0];
    for (const Expression& e : w.expressions) {
      for (std::uint32_t i = 0; i < e.parameterCount(); ++i) w.parameters.push_back(randomValue(random, Spread::kTame));
    }
    return w;
  }

  std::size_t rows() const { return columns.empty() ? target.size() : columns[0].size(); }

  DataView view() const {
    DataView view;
    for (const auto& column : columns) view.columns.emplace_back(std::span<const double>(column));
    if (!target.empty()) view.target.emplace(std::span<const double>(target));
    if (!weights.empty()) view.weights.emplace(std::span<const double>(weights));
    return view;
  }

  /// The parameters of one expression.
  std::span<const double> parametersOf(const Program& program, std::size_t expression) const {
    return std::span(parameters)
        .subspan(program.parameterOffset(expression),
                 program.parameterOffset(expression + 1) - program.parameterOffset(expression));
  }
};

/// The same with targets between 0 and 1, which every loss has a meaning for.
inline Workload withShares(Workload w) {
  for (double& y : w.target) y = static_cast<double>(static_cast<float>(std::fabs(y) / (1 + std::fabs(y))));
  return w;
}

inline Engine cpuEngine(Precision precision, Math math = Math::kStrict) {
  return Engine::create({.device = "cpu", .precision = precision, .math = math, .threads = 2}).value();
}

/// A loss of the caller, by f, y and w.
inline LossOptions lossBy(std::string_view text, NanPolicy nan = NanPolicy::kPropagate) {
  return {.nan = nan, .custom = parse(text, Language::kInfix, {"f", "y", "w"}).value()};
}

inline Expression build(std::vector<Token> tokens) { return Expression::create(std::move(tokens)).value(); }

/// Predictions as doubles, which keeps every bit of a float.
inline std::vector<double> predict(const Engine& engine, const Program& program, const Dataset& data,
                                   std::span<const double> parameters, std::vector<Failure>* failures = nullptr) {
  const auto keep = [&](const Result<std::vector<Failure>>& result) {
    ASSERT_TRUE(result.ok()) << result.error().message;
    if (failures != nullptr) {
      *failures = *result;
    } else {
      EXPECT_TRUE(result->empty()) << result->front().error.message;
    }
  };
  if (engine.options().precision == Precision::kF64) {
    std::vector<double> out(program.size() * data.rows(), 12345.0);
    keep(engine.evaluate(program, data, parameters, std::span<double>(out)));
    return out;
  }
  std::vector<float> out(program.size() * data.rows(), 12345.0F);
  keep(engine.evaluate(program, data, parameters, std::span<float>(out)));
  return {out.begin(), out.end()};
}

inline std::vector<double> predict(const Engine& engine, const Workload& w, Tier tier) {
  const Dataset data = engine.upload(w.view()).value();
  return predict(engine, engine.compile(w.expressions, {.tier = tier}), data, w.parameters);
}

/// The data of a workload, and then a program of its expressions.
inline std::pair<Dataset, Program> prepared(const Engine& engine, const Workload& w,
                                            const CompileOptions& options = {}) {
  return {engine.upload(w.view()).value(), engine.compile(w.expressions, options)};
}

inline void expectSameBits(std::span<const double> a, std::span<const double> b, std::size_t rows,
                           const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(sameBits(a[i], b[i])) << what << ": expression " << i / rows << " row " << i % rows << ": " << a[i]
                                      << " and " << b[i];
  }
}

inline Losses lossesOf(const Engine& engine, const Workload& w, Tier tier, const LossOptions& options) {
  const auto [data, program] = prepared(engine, w, {.tier = tier});
  return engine.loss(program, data, w.parameters, options).value();
}

inline void expectSameLosses(const Losses& a, const Losses& b, const std::string& what) {
  expectSameBits(a.values, b.values, 1, what);
  EXPECT_EQ(a.valid_rows, b.valid_rows) << what;
  const auto expressionsOf = [](const Losses& losses) {
    std::vector<std::size_t> failed;
    for (const Failure& failure : losses.failures) failed.push_back(failure.expression);
    return failed;
  };
  EXPECT_EQ(expressionsOf(a), expressionsOf(b)) << what;
}

/// The same failures, of the same expressions.
inline void expectSameReasons(std::span<const Failure> a, std::span<const Failure> b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].expression, b[i].expression);
    EXPECT_EQ(a[i].error.code, b[i].error.code);
    EXPECT_EQ(a[i].error.message, b[i].error.message);
  }
}

inline Gradients gradientsOf(const Engine& engine, const Workload& w, Tier tier, const GradientOptions& options) {
  const auto [data, program] = prepared(engine, w, {.tier = tier});
  return engine.gradient(program, data, w.parameters, options).value();
}

/// As doubles, which keeps every bit of a float.
inline std::vector<double> jacobianOf(const Engine& engine, const Workload& w, Tier tier, DerivativesBy by) {
  const auto [data, program] = prepared(engine, w, {.tier = tier});
  const std::size_t count =
      by == DerivativesBy::kVariables ? w.columns.size() * w.expressions.size() : w.parameters.size();
  return withZeroOf(engine.options().precision, [&]<class T>(T) {
    std::vector<T> out(count * w.rows(), T(12345));
    const auto failures = engine.jacobian(program, data, w.parameters, std::span<T>(out), by);
    EXPECT_TRUE(failures.ok()) << failures.error().message;
    return std::vector<double>(out.begin(), out.end());
  });
}

inline void expectSameGradients(const Gradients& a, const Gradients& b, const std::string& what) {
  expectSameLosses(a.losses, b.losses, what);
  expectSameBits(a.derivatives, b.derivatives, 1, what);
}

inline void expectSameFits(const Fits& a, const Fits& b) {
  expectSameBits(a.parameters, b.parameters, 1, "parameters");
  expectSameBits(a.standard_errors, b.standard_errors, 1, "standard errors");
  expectSameLosses(a.losses, b.losses, "losses of fits");
  EXPECT_EQ(a.statuses, b.statuses);
  EXPECT_EQ(a.iterations, b.iterations);
  EXPECT_EQ(a.starts, b.starts);
}

}  // namespace srjit

// Starts that are drawn, and fits of generated expressions.
#include <cmath>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/numbers/random.h"
#include "ir/text.h"
#include "tests/generators/workload.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

TEST(DrawnStarts, DependOnTheSeedAndTheExpressionsNumber) {
  const Engine engine = cpuEngine(Precision::kF64);
  const Program program = engine.compile(infixes({"p0 + p1*x0", "p0*x0"}));
  const std::vector<double> given{2, 0, -5};
  const std::vector<double> starts = program.drawStarts(given, 100, 7).value();
  ASSERT_EQ(starts.size(), 300U);
  EXPECT_EQ(std::vector(starts.begin(), starts.begin() + 3), given) << "the first is the given one";
  std::size_t negative = 0;
  for (std::size_t i = 3; i < starts.size(); ++i) {
    const double unit = given[i % 3] == 0 ? 1 : std::fabs(given[i % 3]);
    EXPECT_GE(std::fabs(starts[i]), unit / 16);
    EXPECT_LT(std::fabs(starts[i]), unit * 16);
    negative += starts[i] < 0 ? 1 : 0;
  }
  EXPECT_GT(negative, 100U);
  EXPECT_LT(negative, 200U);
  EXPECT_NE(starts[5] / 5, starts[3] / 2) << "each expression has numbers of its own";
  EXPECT_EQ(fmt::format("{} {}", starts[3], starts[5]), "0.13016744336154168 7.923235843052754")
      << "the same on every machine";
  EXPECT_EQ(program.drawStarts(given, 100, 7).value(), starts);
  EXPECT_NE(program.drawStarts(given, 100, 8).value(), starts);
  const Program first = engine.compile(infixes({"p0 + p1*x0"}));
  const std::vector<double> own = first.drawStarts(std::span(given).first(2), 100, 7).value();
  EXPECT_EQ(std::vector(own.begin() + 2, own.begin() + 4), std::vector(starts.begin() + 3, starts.begin() + 5));
  const std::size_t numbers[] = {1, 0};
  const std::vector<double> exchanged = program.drawStarts(given, 2, 7, numbers).value();
  EXPECT_EQ(exchanged[3] / 2, starts[5] / 5) << "expression 0 as number 1";
  EXPECT_EQ(exchanged[5] / 5, starts[3] / 2);
  EXPECT_EQ(program.drawStarts(given, 2, 7, std::span(numbers).first(1)).error().message, "1 numbers of 2 expressions");
  EXPECT_EQ(program.drawStarts(std::vector{1.0}, 2, 7).error().message,
            "1 start values: expected the program's 3 parameters");
  EXPECT_EQ(program.drawStarts(given, 0, 7).error().message, "0 starts: expected at least 1");
}

// The least loss of a target that the expression itself has made is 0. FitOptions::step_tolerance leaves about its
// square.
TEST(GeneratedFits, FindsWhatMadeTheTarget) {
  const GeneratorOptions smooth{.seed = 61,
                                .min_nodes = 3,
                                .max_nodes = 12,
                                .variables = 3,
                                .parameters = 3,
                                .ops = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kExp, Op::kSqrt, Op::kSin},
                                .parameter_probability = 0.4};
  Workload w = Workload::random(smooth, 300, 100, Spread::kTame, Precision::kF64);
  const Engine engine = cpuEngine(Precision::kF64);
  std::size_t tried = 0, found = 0;
  for (const Expression& expression : w.expressions) {
    if (expression.parameterCount() == 0) continue;
    const Program program = engine.compile(std::vector{expression});
    Random random(62 + tried);
    std::vector<double> made_by, start;
    for (std::uint32_t p = 0; p < expression.parameterCount(); ++p) {
      made_by.push_back(random.between(0.5, 2.0));
      start.push_back(made_by.back() * random.between(0.95, 1.05));
    }
    w.target.clear();
    w.target = predict(engine, program, engine.upload(w.view()).value(), made_by);
    double squares = 0;
    for (const double y : w.target) squares += y * y;
    if (!std::isfinite(squares) || squares > 1e100) continue;
    const Fits fits =
        engine.fit(program, engine.upload(w.view()).value(), start, {.loss = {.kind = LossKind::kSse}}).value();
    if (fits.statuses[0] == FitStatus::kNotFinite) continue;
    ++tried;
    found += fits.losses.values[0] <= 1e-12 * squares ? 1 : 0;
  }
  EXPECT_GT(tried, 100U);
  EXPECT_GE(found, tried * 95 / 100) << "of " << tried;
}

// The best factor and offset at the start are tried, where no linear parameters are better.
TEST(GeneratedFits, OfAScaledLossEndBelowItsStart) {
  const GeneratorOptions some{.seed = 71,
                              .min_nodes = 3,
                              .max_nodes = 20,
                              .variables = 3,
                              .parameters = 4,
                              .ops = {Op::kAdd, Op::kSub, Op::kMul, Op::kExp, Op::kSin, Op::kCos},
                              .parameter_probability = 0.5};
  Workload w = Workload::random(some, 1000, 100, Spread::kTame, Precision::kF64);
  w.target.clear();
  for (const double x : w.columns[0]) w.target.push_back(x * x * x + x);
  const Engine engine = cpuEngine(Precision::kF64);
  const auto [data, program] = prepared(engine, w);
  const Losses plain = engine.loss(program, data, w.parameters, {.kind = LossKind::kMse}).value();
  constexpr double kFar = 1e12;  // y - f has few of y's digits
  for (const LossKind kind : {LossKind::kScaledMse, LossKind::kScaledNmse}) {
    const Losses before = engine.loss(program, data, w.parameters, {.kind = kind}).value();
    const Fits fits = engine.fit(program, data, w.parameters, {.loss = {.kind = kind}}).value();
    std::size_t compared = 0;
    for (std::size_t e = 0; e < w.expressions.size(); ++e) {
      if (!(plain.values[e] < kFar) || fits.statuses[e] == FitStatus::kNotFinite) continue;
      ++compared;
      EXPECT_LE(fits.losses.values[e], before.values[e] * (1 + 1e-6) + 1e-9)
          << print(w.expressions[e], Language::kInfix);
    }
    EXPECT_GT(compared, 500U);
  }
}

}  // namespace
}  // namespace srjit

// What one thread gets of a workload while there is no other.
#pragma once

#include <vector>

#include "tests/generators/token_arrays.h"
#include "tests/generators/workload.h"

namespace srjit {

struct Alone {
  static constexpr GradientOptions kGradient{.loss = {.kind = LossKind::kRmse, .nan = NanPolicy::kSkip}};
  static FitOptions fitOptions() { return {.iterations = 6}; }

  /// Evaluates the workload, which has a target and must outlive the result.
  static Alone of(const Engine& engine, const Workload& w) {
    const Dataset data = engine.upload(w.view()).value();
    const Program program = engine.compile(w.expressions, {.tier = Tier::kInterpret});
    Alone alone{.work = &w,
                .tokens = {},
                .data = data,
                .program = engine.compile(w.expressions, {.tier = Tier::kAuto, .expected_evaluations = 1e6}),
                .losses = engine.loss(program, data, w.parameters).value(),
                .predictions = predict(engine, program, data, w.parameters),
                .gradients = engine.gradient(program, data, w.parameters, kGradient).value(),
                .fits = engine.fit(program, data, w.parameters, fitOptions()).value()};
    for (const Expression& expression : w.expressions) alone.tokens.addPostfix(expression);
    return alone;
  }

  const Workload* work;
  TokenArrays tokens;
  Dataset data;
  Program program;  ///< of Tier::kAuto, whose tier changes while threads use it
  Losses losses;
  std::vector<double> predictions;
  Gradients gradients;
  Fits fits;
};

inline void compare(const Result<Losses>& got, const Losses& expected) {
  ASSERT_TRUE(got) << got.error().message;
  expectSameBits(got->values, expected.values, 1, "losses");
  EXPECT_EQ(got->valid_rows, expected.valid_rows);
  EXPECT_EQ(got->failures.size(), expected.failures.size());
}

inline void compare(const Result<Fits>& got, const Fits& expected) {
  ASSERT_TRUE(got) << got.error().message;
  expectSameBits(got->parameters, expected.parameters, 1, "fitted parameters");
  EXPECT_EQ(got->statuses, expected.statuses);
  compare(got->losses, expected.losses);
}

}  // namespace srjit

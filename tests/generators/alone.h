// What one thread gets of a workload while there is no other, and whether a test of several has failed.
#pragma once

#include <atomic>
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
    return {.work = &w,
            .tokens = tokensOf(w.expressions),
            .data = data,
            .program = engine.compile(w.expressions, {.tier = Tier::kAuto, .expected_evaluations = 1e6}),
            .losses = engine.loss(program, data, w.parameters).value(),
            .predictions = predict(engine, program, data, w.parameters),
            .gradients = engine.gradient(program, data, w.parameters, kGradient).value(),
            .fits = engine.fit(program, data, w.parameters, fitOptions()).value()};
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
  expectSameLosses(*got, expected, "losses");
}

inline void compare(const Result<Fits>& got, const Fits& expected) {
  ASSERT_TRUE(got) << got.error().message;
  expectSameFits(*got, expected);
}

/// Set by a failure of any thread since it was made. testing::Test::HasFailure() may not be asked while other threads
/// fail.
class FailureFlag {
 public:
  FailureFlag() { testing::UnitTest::GetInstance()->listeners().Append(listener_); }
  ~FailureFlag() { delete testing::UnitTest::GetInstance()->listeners().Release(listener_); }
  FailureFlag(const FailureFlag&) = delete;
  FailureFlag& operator=(const FailureFlag&) = delete;
  bool isSet() const { return listener_->failed; }

 private:
  struct Listener : testing::EmptyTestEventListener {
    void OnTestPartResult(const testing::TestPartResult& result) override { failed = failed || result.failed(); }
    std::atomic<bool> failed = false;
  };
  Listener* const listener_ = new Listener;  // the list of listeners owns it
};

}  // namespace srjit

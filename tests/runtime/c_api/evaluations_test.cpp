// Losses, gradients, predictions and fits through srjit.h are those of Engine, also in flight.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/c_api/caller.h"

namespace srjit::c_api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(CInterface, LossesAreThoseOfTheEngine) {
  const auto program = compile({"p0*x0 + 1", "x1", "x0 +", "sin(x0*p0) + p1"});
  std::vector<double> parameters = {2, 3, 1, 1, 0.5, 0};  // two vectors
  std::vector<double> values(8), derivatives(6);
  std::vector<std::uint64_t> valid(8);
  auto losses = sized<srjit_losses>();
  losses.count = 8;
  losses.values = values.data();
  losses.valid_rows = valid.data();
  auto options = sized<srjit_loss_options>();
  options.loss = "mae";
  srjit_error error = newError();
  ASSERT_EQ(srjit_loss(engine_.get(), program.get(), data_.get(), parameters.data(), 6, &options, &losses, &error),
            SRJIT_OK)
      << error.message;
  EXPECT_THAT(messages(losses.failures),
              ElementsAre(StartsWith("2: expected"), StartsWith("6: expected")));  // the parser's words

  const Engine& engine = engine_->engine;
  const Losses own = engine.loss(program->program, data_->data, parameters, {.kind = LossKind::kMae}).value();
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(values[i] == own.values[i] || (i % 4 == 2 && std::isnan(values[i]))) << i;
    EXPECT_EQ(valid[i], own.valid_rows[i]) << i;
  }
  EXPECT_EQ(values[0], 0);

  losses.derivative_count = 6;
  losses.derivatives = derivatives.data();
  ASSERT_EQ(srjit_gradient(engine_.get(), program.get(), data_.get(), parameters.data(), 6, &options, &losses, &error),
            SRJIT_OK)
      << error.message;
  messages(losses.failures);
  EXPECT_EQ(derivatives, engine.gradient(program->program, data_->data, parameters, {.loss = {.kind = LossKind::kMae}})
                             .value()
                             .derivatives);
}

TEST_F(CInterface, CustomLossesAndPoliciesAreText) {
  const auto program = compile({"x0"});
  const auto lossOf = [&](const char* text) {
    auto options = sized<srjit_loss_options>();
    options.loss = text;
    double value = 0;
    auto losses = sized<srjit_losses>();
    losses.count = 1;
    losses.values = &value;
    srjit_error error = newError();
    EXPECT_EQ(srjit_loss(engine_.get(), program.get(), data_.get(), nullptr, 0, &options, &losses, &error), SRJIT_OK)
        << error.message;
    return value;
  };
  EXPECT_EQ(lossOf(nullptr), lossOf("mse"));
  EXPECT_EQ(lossOf("abs(f - y)"), lossOf("mae"));
  EXPECT_NE(lossOf("huber:2"), lossOf("huber"));
  auto options = sized<srjit_loss_options>();
  auto losses = sized<srjit_losses>();
  const auto lossWith = [&](const char* text, int nan) {
    options.loss = text;
    options.nan = nan;
    return refusal(nan == 7 || std::strchr(text, '(') == nullptr ? SRJIT_ERROR_INVALID : SRJIT_ERROR_SYNTAX,
                   [&](auto error) {
                     return srjit_loss(engine_.get(), program.get(), data_.get(), nullptr, 0, &options, &losses, error);
                   });
  };
  EXPECT_THAT(lossWith("msx", 0), HasSubstr("is none of sse, mse"));
  EXPECT_THAT(lossWith("huber:x", 0), HasSubstr("expected a number behind the colon"));
  EXPECT_THAT(lossWith("abs(f", 0), HasSubstr("expected"));
  EXPECT_THAT(lossWith("mse", 7), HasSubstr("nan is 7, expected 0 to 2"));
}

TEST_F(CInterface, FitsAreThoseOfTheEngine) {
  const auto program = compile({"p0*x0 + p1", "p0*(x0 - x0)", "x1"});
  const double starts[] = {0, 0, 1, 1, 1, 1};
  std::vector<double> parameters(3), errors(3), values(3);
  std::vector<std::uint64_t> valid(3), won(3);
  std::vector<std::uint32_t> iterations(3);
  std::vector<std::int32_t> statuses(3);
  auto fits = sized<srjit_fits>();
  fits.count = fits.parameter_count = 3;
  fits.losses = values.data();
  fits.valid_rows = valid.data();
  fits.iterations = iterations.data();
  fits.statuses = statuses.data();
  fits.starts = won.data();
  fits.parameters = parameters.data();
  fits.standard_errors = errors.data();
  srjit_error error = newError();
  ASSERT_EQ(srjit_fit(engine_.get(), program.get(), data_.get(), starts, 6, nullptr, &fits, &error), SRJIT_OK)
      << error.message;
  messages(fits.failures);
  const Fits own = engine_->engine.fit(program->program, data_->data, starts).value();
  EXPECT_EQ(std::memcmp(parameters.data(), own.parameters.data(), 3 * sizeof(double)), 0);
  EXPECT_EQ(values, own.losses.values);
  EXPECT_EQ(valid, own.losses.valid_rows);
  EXPECT_EQ(iterations, own.iterations);
  EXPECT_TRUE(std::equal(won.begin(), won.end(), own.starts.begin(), own.starts.end()));
  EXPECT_EQ(std::memcmp(errors.data(), own.standard_errors.data(), 3 * sizeof(double)), 0);
  EXPECT_EQ(statuses[0], SRJIT_FIT_CONVERGED);
  EXPECT_EQ(statuses[1], SRJIT_FIT_SINGULAR);
  EXPECT_NEAR(parameters[0], 2, 1e-9);
  EXPECT_NEAR(parameters[1], 1, 1e-9);

  const auto stop = made<srjit_stop>([](auto to, auto e) { return srjit_stop_create(to, e); });
  srjit_stop_request(stop.get());
  auto options = sized<srjit_fit_options>();
  options.stop = stop.get();
  const auto pending = made<srjit_pending>([&](auto to, auto e) {
    return srjit_submit_fit(engine_.get(), program.get(), data_.get(), starts, 6, &options, to, e);
  });
  auto losses = sized<srjit_losses>();
  EXPECT_THAT(refusal(SRJIT_ERROR_INVALID, [&](auto e) { return srjit_pending_losses(pending.get(), &losses, e); }),
              HasSubstr("another kind than losses"));
  fits.count = 2;
  EXPECT_THAT(refusal(SRJIT_ERROR_INVALID, [&](auto e) { return srjit_pending_fits(pending.get(), &fits, e); }),
              HasSubstr("count is 2, expected 3"));
  fits.count = 3;  // what did not fit was kept
  ASSERT_EQ(srjit_pending_fits(pending.get(), &fits, &error), SRJIT_OK) << error.message;
  messages(fits.failures);
  EXPECT_EQ(statuses[0], SRJIT_FIT_CANCELLED);
  EXPECT_THAT(refusal(SRJIT_ERROR_INVALID, [&](auto e) { return srjit_pending_fits(pending.get(), &fits, e); }),
              HasSubstr("taken already"));
}

TEST_F(CInterface, WorkInFlight) {
  const auto program = compile({"p0*x0 + x1"});
  const double parameter = 2;
  std::vector<double> out(5), jacobian(5), again(5);
  srjit_failures* failures = nullptr;
  const auto predicted = made<srjit_pending>([&](auto to, auto e) {
    return srjit_submit_predict(engine_.get(), program.get(), data_.get(), &parameter, 1, SRJIT_F64, out.data(), 5, to,
                                e);
  });
  const auto derived = made<srjit_pending>([&](auto to, auto e) {
    return srjit_submit_jacobian(engine_.get(), program.get(), data_.get(), &parameter, 1, SRJIT_BY_PARAMETERS,
                                 SRJIT_F64, jacobian.data(), 5, to, e);
  });
  ASSERT_EQ(srjit_pending_failures(predicted.get(), &failures, nullptr), SRJIT_OK);
  EXPECT_EQ(failures, nullptr);
  ASSERT_EQ(srjit_pending_failures(derived.get(), &failures, nullptr), SRJIT_OK);
  EXPECT_EQ(out, (std::vector<double>{7, 8, 9, 10, 11}));
  EXPECT_EQ(jacobian, (std::vector<double>{1, 2, 3, 4, 5}));
  ASSERT_EQ(srjit_jacobian(engine_.get(), program.get(), data_.get(), &parameter, 1, SRJIT_BY_PARAMETERS, SRJIT_F64,
                           again.data(), 5, &failures, nullptr),
            SRJIT_OK);
  EXPECT_EQ(again, jacobian);

  double value = 0, derivative = 0;
  auto losses = sized<srjit_losses>();
  losses.count = losses.derivative_count = 1;
  losses.values = &value;
  losses.derivatives = &derivative;
  const auto gradient = made<srjit_pending>([&](auto to, auto e) {
    return srjit_submit_gradient(engine_.get(), program.get(), data_.get(), &parameter, 1, nullptr, to, e);
  });
  ASSERT_EQ(srjit_pending_losses(gradient.get(), &losses, nullptr), SRJIT_OK);
  EXPECT_EQ(value, 6);  // of residuals 4, 3, 2, 1, 0
  EXPECT_EQ(derivative, 8);
  const auto loss = made<srjit_pending>([&](auto to, auto e) {
    return srjit_submit_loss(engine_.get(), program.get(), data_.get(), &parameter, 1, nullptr, to, e);
  });
  EXPECT_THAT(refusal(SRJIT_ERROR_INVALID, [&](auto e) { return srjit_pending_losses(loss.get(), &losses, e); }),
              HasSubstr("no derivatives"));
}

TEST_F(CInterface, ObjectsAreFreedInAnyOrder) {
  auto program = compile({"p0*x0"});
  const double parameter = 2;
  const auto pending = made<srjit_pending>([&](auto to, auto e) {
    return srjit_submit_loss(engine_.get(), program.get(), data_.get(), &parameter, 1, nullptr, to, e);
  });
  engine_.reset();
  data_.reset();
  program.reset();
  double value = 0;
  auto losses = sized<srjit_losses>();
  losses.count = 1;
  losses.values = &value;
  ASSERT_EQ(srjit_pending_losses(pending.get(), &losses, nullptr), SRJIT_OK);
  EXPECT_EQ(value, 1);
}

}  // namespace
}  // namespace srjit::c_api

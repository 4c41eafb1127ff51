// Evaluations through srjit.h: failures of texts, losses as text, and what is refused. Numbers are those of Engine by
// tests/runtime/machines.
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

// In the parser's words, with each vector of parameters.
TEST_F(CInterface, FailuresOfTextsAreThoseOfLosses) {
  const auto program = compile({"p0*x0 + 1", "x1", "x0 +", "sin(x0*p0) + p1"});
  const std::vector<double> parameters = {2, 3, 1, 1, 0.5, 0};
  std::vector<double> values(8);
  auto losses = sized<srjit_losses>();
  losses.count = 8;
  losses.values = values.data();
  ASSERT_EQ(srjit_loss(engine_.get(), program.get(), data_.get(), parameters.data(), 6, nullptr, &losses, nullptr),
            SRJIT_OK);
  EXPECT_THAT(messages(losses.failures), ElementsAre(StartsWith("2: expected"), StartsWith("6: expected")));
  EXPECT_EQ(values[0], 0);
  EXPECT_TRUE(std::isnan(values[2]) && std::isnan(values[6]));
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

TEST_F(CInterface, ResultsAreTakenOnceAndInTheirKind) {
  const auto program = compile({"p0*x0 + p1", "p0*(x0 - x0)", "x1"});
  const double starts[] = {0, 0, 1};
  const auto stop = made<srjit_stop>([](auto to, auto e) { return srjit_stop_create(to, e); });
  srjit_stop_request(stop.get());
  auto options = sized<srjit_fit_options>();
  options.stop = stop.get();
  const auto pending = made<srjit_pending>([&](auto to, auto e) {
    return srjit_submit_fit(engine_.get(), program.get(), data_.get(), starts, 3, &options, to, e);
  });
  auto losses = sized<srjit_losses>();
  EXPECT_THAT(invalid([&](auto e) { return srjit_pending_losses(pending.get(), &losses, e); }),
              HasSubstr("another kind than losses"));
  std::vector<std::int32_t> statuses(3);
  auto fits = sized<srjit_fits>();
  fits.statuses = statuses.data();
  fits.count = 2;
  EXPECT_THAT(invalid([&](auto e) { return srjit_pending_fits(pending.get(), &fits, e); }),
              HasSubstr("count is 2, expected 3"));
  fits.count = 3;  // what did not fit was kept
  ASSERT_EQ(srjit_pending_fits(pending.get(), &fits, nullptr), SRJIT_OK);
  messages(fits.failures);
  EXPECT_EQ(statuses[0], SRJIT_FIT_CANCELLED);
  EXPECT_THAT(invalid([&](auto e) { return srjit_pending_fits(pending.get(), &fits, e); }), HasSubstr("taken already"));
  const auto loss = made<srjit_pending>([&](auto to, auto e) {
    return srjit_submit_loss(engine_.get(), program.get(), data_.get(), starts, 3, nullptr, to, e);
  });
  std::vector<double> derivatives(3);
  losses.derivative_count = 3;
  losses.derivatives = derivatives.data();
  EXPECT_THAT(invalid([&](auto e) { return srjit_pending_losses(loss.get(), &losses, e); }),
              HasSubstr("no derivatives"));
}

TEST_F(CInterface, BoundsOfFits) {
  const auto program = compile({"p0 + p1*x0"});
  const double starts[] = {9, 9}, bounds[] = {-INFINITY, INFINITY, 3, 4};
  auto options = sized<srjit_fit_options>();
  std::vector<double> parameters(2);
  auto fits = sized<srjit_fits>();
  fits.parameters = parameters.data();
  fits.parameter_count = 2;
  const auto fit = [&] {
    ASSERT_EQ(srjit_fit(engine_.get(), program.get(), data_.get(), starts, 2, &options, &fits, nullptr), SRJIT_OK);
    messages(fits.failures);
  };
  fit();
  const double free = parameters[1];
  options.bounds = bounds;
  options.bound_count = 4;
  fit();
  EXPECT_EQ(parameters[1], std::clamp(free, 3.0, 4.0));
  EXPECT_TRUE(free < 3 || free > 4) << free;
  options.size = 48;  // a caller that knows no bounds
  fit();
  EXPECT_EQ(parameters[1], free);
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

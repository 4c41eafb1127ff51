// Bad arguments of srjit.h, and what they leave.
#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/population.h"
#include "tests/runtime/c_api/caller.h"

namespace srjit::c_api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(CInterface, FailedCallsGiveNoLists) {
  const auto program = compile({"x0"});
  auto* const stale = reinterpret_cast<srjit_failures*>(0x10);
  srjit_failures* failures = stale;
  double out[5];
  EXPECT_NE(srjit_predict(engine_.get(), program.get(), data_.get(), nullptr, 0, SRJIT_F32, out, 5, &failures, nullptr),
            SRJIT_OK);
  EXPECT_EQ(failures, nullptr);
  failures = stale;
  EXPECT_NE(srjit_jacobian(engine_.get(), nullptr, data_.get(), nullptr, 0, 0, SRJIT_F64, out, 5, &failures, nullptr),
            SRJIT_OK);
  EXPECT_EQ(failures, nullptr);
  failures = stale;
  EXPECT_NE(srjit_pending_failures(nullptr, &failures, nullptr), SRJIT_OK);
  EXPECT_EQ(failures, nullptr);
  auto losses = sized<srjit_losses>();
  losses.failures = stale;
  EXPECT_NE(srjit_loss(engine_.get(), program.get(), nullptr, nullptr, 0, nullptr, &losses, nullptr), SRJIT_OK);
  EXPECT_EQ(losses.failures, nullptr);
  auto fits = sized<srjit_fits>();
  fits.failures = stale;
  EXPECT_NE(srjit_fit(engine_.get(), program.get(), nullptr, nullptr, 0, nullptr, &fits, nullptr), SRJIT_OK);
  EXPECT_EQ(fits.failures, nullptr);
}

TEST_F(CInterface, ArgumentsOutOfRange) {
  auto population = sized<srjit_population>();
  population.expressions = ~std::uint64_t{0};
  const std::int64_t offsets[] = {0};
  population.offsets = offsets;
  const auto refused = [&] {
    return invalid([&](auto error) {
      srjit_program* program = nullptr;
      return srjit_compile(engine_.get(), &population, nullptr, &program, error);
    });
  };
  EXPECT_THAT(refused(), HasSubstr("expressions"));
  population.expressions = 0;
  population.reserved = 1;
  EXPECT_THAT(refused(), HasSubstr("reserved of population is 1"));
  srjit_matrix columns = columns_;
  srjit_data view = view_;
  view.columns = &columns;
  const auto refusedData = [&] {
    return invalid([&](auto error) {
      srjit_dataset* data = nullptr;
      return srjit_dataset_create(engine_.get(), &view, &data, error);
    });
  };
  columns.rows = std::uint64_t{1} << 62;
  EXPECT_THAT(refusedData(), HasSubstr("rows and 2 columns"));
  columns = columns_;
  columns.row_stride = 3;
  EXPECT_THAT(refusedData(), HasSubstr("expected multiples of 8"));
  columns = columns_;
  columns.on_device = 2;
  EXPECT_THAT(refusedData(), HasSubstr("on_device is 2"));
  columns = columns_;
  view.stream = 1;
  EXPECT_THAT(refusedData(), HasSubstr("stream"));
  auto options = sized<srjit_fit_options>();
  options.loss_tolerance = NAN;
  const auto program = compile({"p0"});
  auto fits = sized<srjit_fits>();
  const double start = 1;
  const auto refusedFit = [&] {
    return invalid([&](auto error) {
      return srjit_fit(engine_.get(), program.get(), data_.get(), &start, 1, &options, &fits, error);
    });
  };
  EXPECT_THAT(refusedFit(), HasSubstr("NaN"));
  options.loss_tolerance = 0;
  options.bound_count = 3;
  EXPECT_THAT(refusedFit(), HasSubstr("bounds is NULL"));
  const double bounds[] = {2, 1, 0};
  options.bounds = bounds;
  EXPECT_THAT(refusedFit(), HasSubstr("odd number"));
  options.bound_count = 2;
  EXPECT_THAT(refusedFit(), HasSubstr("bounds 2 and 1 of p0"));
}

TEST_F(CInterface, CompileOptionsOutOfRangeAreRefused) {
  auto population = sized<srjit_population>();
  const std::int64_t offsets[] = {0};
  population.offsets = offsets;
  auto options = sized<srjit_compile_options>();
  const auto refused = [&] {
    return invalid([&](auto error) {
      srjit_program* program = nullptr;
      return srjit_compile(engine_.get(), &population, &options, &program, error);
    });
  };
  options.deferred = 2;
  EXPECT_THAT(refused(), HasSubstr("deferred"));
  options.deferred = 1;
  options.as_written = 2;
  EXPECT_THAT(refused(), HasSubstr("as_written"));
  options.as_written = 1;
  options.passes = "simplify";
  EXPECT_THAT(refused(), HasSubstr("as_written is 1, but there are passes"));
}

TEST_F(CInterface, NullsAreRefused) {
  const auto program = compile({"x0"});
  auto losses = sized<srjit_losses>();
  EXPECT_EQ(
      invalid([&](auto e) { return srjit_loss(nullptr, program.get(), data_.get(), nullptr, 0, nullptr, &losses, e); }),
      "engine is NULL");
  EXPECT_EQ(invalid([&](auto e) {
              return srjit_loss(engine_.get(), program.get(), nullptr, nullptr, 0, nullptr, &losses, e);
            }),
            "data is NULL");
  EXPECT_EQ(invalid([&](auto e) {
              return srjit_loss(engine_.get(), program.get(), data_.get(), nullptr, 2, nullptr, &losses, e);
            }),
            "parameters is NULL");
  EXPECT_EQ(invalid([&](auto e) { return srjit_engine_create(nullptr, nullptr, e); }), "engine is NULL");
  auto empty = sized<srjit_matrix>();
  empty.rows = empty.columns = 1;
  srjit_data view = view_;
  view.columns = &empty;
  EXPECT_EQ(invalid([&](auto e) {
              srjit_dataset* none = nullptr;
              return srjit_dataset_create(engine_.get(), &view, &none, e);
            }),
            "data of columns is NULL");
  srjit_engine_free(nullptr);
  srjit_pending_free(nullptr);
  EXPECT_EQ(srjit_failures_count(nullptr), 0U);
  EXPECT_EQ(srjit_pending_ready(nullptr), 1);
}

TEST_F(CInterface, LimitsRefuse) {
  auto options = sized<srjit_engine_options>();
  options.device = "cpu";
  options.precision = SRJIT_F64;
  options.max_nodes = 3;
  options.max_call_nodes = 5;
  options.max_seconds = 1000;
  const auto engine = made<srjit_engine>([&](auto to, auto error) { return srjit_engine_create(&options, to, error); });
  auto info = sized<srjit_engine_info>();
  ASSERT_EQ(srjit_engine_get_info(engine.get(), &info, nullptr), SRJIT_OK);
  EXPECT_EQ(info.max_nodes, 3U);
  EXPECT_EQ(info.max_call_nodes, 5U);
  EXPECT_EQ(info.max_seconds, 1000);
  const std::int32_t codes[] = {SRJIT_VARIABLE, SRJIT_VARIABLE, codeOf(Op::kAdd), codeOf(Op::kSin), SRJIT_VARIABLE, -2};
  const std::int64_t offsets[] = {0, 4, 5, 6};
  auto population = sized<srjit_population>();
  population.codes = codes;
  population.offsets = offsets;
  population.expressions = 2;
  const auto program = made<srjit_program>(
      [&](auto to, auto error) { return srjit_compile(engine.get(), &population, nullptr, to, error); });
  srjit_failures* failures = nullptr;
  ASSERT_EQ(srjit_program_failures(program.get(), &failures, nullptr), SRJIT_OK);
  EXPECT_THAT(messages(failures), ElementsAre(HasSubstr("0: 4 nodes, but an expression may have at most 3")));
  population.expressions = 3;
  srjit_program* none = nullptr;
  EXPECT_THAT(
      refusal(SRJIT_ERROR_LIMIT, [&](auto e) { return srjit_compile(engine.get(), &population, nullptr, &none, e); }),
      HasSubstr("max_call_nodes"));
  options.max_seconds = -1;
  srjit_engine* refused = nullptr;
  EXPECT_THAT(invalid([&](auto e) { return srjit_engine_create(&options, &refused, e); }),
              HasSubstr("max_seconds is -1"));
}

TEST_F(CInterface, ErrorsAreText) {
  auto options = sized<srjit_engine_options>();
  options.device = "tpu";
  srjit_engine* engine = nullptr;
  EXPECT_THAT(invalid([&](auto e) { return srjit_engine_create(&options, &engine, e); }), HasSubstr("tpu"));
  srjit_error error = newError();
  Error longest{Errc::kIo, std::string(979, 'x') + "\u00e9\u00e9\u00e9", Span{2, 3, 4}};
  writeError(longest, &error);
  EXPECT_EQ(std::string(error.message), std::string(979, 'x') + "...");
  EXPECT_EQ(error.code, SRJIT_ERROR_IO);
  EXPECT_EQ(error.has_place, 1);
  EXPECT_EQ(error.line, 2U);
  EXPECT_EQ(error.column, 3U);
  EXPECT_EQ(error.length, 4U);
  longest.message = std::string(983, 'x');
  writeError(longest, &error);
  EXPECT_EQ(std::string(error.message), longest.message);
  EXPECT_STREQ(srjit_version(), "0.1.0");

  // A later version's is longer; one whose size was never set is not written.
  struct {
    srjit_error known;
    char later[8];
  } newer{newError(), "later"};
  newer.known.size = sizeof newer;
  writeError(longest, &newer.known);
  EXPECT_EQ(newer.known.code, SRJIT_ERROR_IO);
  EXPECT_STREQ(newer.later, "later");
  srjit_error unset{};
  EXPECT_EQ(writeError(longest, &unset), SRJIT_ERROR_IO);
  EXPECT_EQ(unset.code, 0);
}

}  // namespace
}  // namespace srjit::c_api

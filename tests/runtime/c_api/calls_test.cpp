// Calls of srjit.h give what those of Engine give, and refuse bad arguments.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/ops.h"
#include "runtime/c_api/handles.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Free {
  void operator()(srjit_engine* p) const { srjit_engine_free(p); }
  void operator()(srjit_dataset* p) const { srjit_dataset_free(p); }
  void operator()(srjit_tokens* p) const { srjit_tokens_free(p); }
  void operator()(srjit_program* p) const { srjit_program_free(p); }
  void operator()(srjit_pending* p) const { srjit_pending_free(p); }
  void operator()(srjit_failures* p) const { srjit_failures_free(p); }
  void operator()(srjit_stop* p) const { srjit_stop_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

srjit_error newError() {
  srjit_error error{};
  error.size = sizeof error;
  return error;
}

template <class T>
T sized() {
  T value{};
  value.size = sizeof value;
  return value;
}

/// Calls `create(object, error)`, which must succeed.
template <class T, class Create>
Owned<T> made(const Create& create) {
  T* object = nullptr;
  srjit_error error = newError();
  EXPECT_EQ(create(&object, &error), SRJIT_OK) << error.message;
  return Owned<T>(object);
}

/// The code and message of a call that must fail.
template <class Call>
std::string refusal(std::int32_t code, const Call& call) {
  srjit_error error = newError();
  EXPECT_EQ(call(&error), code) << error.message;
  EXPECT_EQ(error.code, code);
  return error.message;
}

srjit_matrix columnOf(const std::vector<double>& values) {
  auto matrix = sized<srjit_matrix>();
  matrix.data = values.data();
  matrix.rows = values.size();
  matrix.columns = 1;
  matrix.type = SRJIT_F64;
  return matrix;
}

std::vector<std::string> messages(srjit_failures* list) {
  Owned<srjit_failures> failures(list);
  std::vector<std::string> found;
  for (std::uint64_t i = 0; i < srjit_failures_count(list); ++i) {
    srjit_error error = newError();
    std::uint64_t expression = 0;
    EXPECT_EQ(srjit_failures_get(list, i, &expression, &error), SRJIT_OK);
    found.push_back(std::to_string(expression) + ": " + error.message);
  }
  return found;
}

/// An engine in f64 on the processor, with columns x0 = 1..5 and x1 = 5..1, in rows, and the target 2 x0 + 1.
class CInterface : public ::testing::Test {
 protected:
  CInterface() {
    auto options = sized<srjit_engine_options>();
    options.device = "cpu";
    options.precision = SRJIT_F64;
    options.threads = 2;
    engine_ = made<srjit_engine>([&](auto to, auto error) { return srjit_engine_create(&options, to, error); });
    columns_.data = x_.data();
    columns_.rows = 5;
    columns_.columns = 2;
    columns_.row_stride = 2 * sizeof(double);
    columns_.column_stride = sizeof(double);
    columns_.type = SRJIT_F64;
    view_.columns = &columns_;
    view_.target = &target_;
    data_ = made<srjit_dataset>(
        [&](auto to, auto error) { return srjit_dataset_create(engine_.get(), &view_, to, error); });
  }

  Owned<srjit_program> compile(const std::vector<const char*>& texts) {
    srjit_failures* failures = nullptr;
    const auto tokens = made<srjit_tokens>([&](auto to, auto error) {
      return srjit_parse(texts.data(), texts.size(), SRJIT_TEXT_INFIX, nullptr, 0, to, &failures, error);
    });
    Owned<srjit_failures> owned(failures);
    return made<srjit_program>(
        [&](auto to, auto error) { return srjit_compile_tokens(engine_.get(), tokens.get(), nullptr, to, error); });
  }

  std::vector<double> x_ = {1, 5, 2, 4, 3, 3, 4, 2, 5, 1}, y_ = {3, 5, 7, 9, 11};
  srjit_matrix columns_ = sized<srjit_matrix>(), target_ = columnOf(y_);
  srjit_data view_ = sized<srjit_data>();
  Owned<srjit_engine> engine_;
  Owned<srjit_dataset> data_;
};

TEST_F(CInterface, MatricesMayHaveAnyStrides) {
  const auto program = compile({"x0 + 10*x1"});
  const std::vector<double> expected = {51, 42, 33, 24, 15};
  const auto predictions = [&](const srjit_matrix& columns) {
    srjit_data view = view_;
    view.columns = &columns;
    const auto data =
        made<srjit_dataset>([&](auto to, auto error) { return srjit_dataset_create(engine_.get(), &view, to, error); });
    std::vector<double> out(5);
    srjit_failures* failures = nullptr;
    srjit_error error = newError();
    EXPECT_EQ(srjit_predict(engine_.get(), program.get(), data.get(), nullptr, 0, SRJIT_F64, out.data(), 5, &failures,
                            &error),
              SRJIT_OK)
        << error.message;
    EXPECT_EQ(failures, nullptr);
    return out;
  };
  EXPECT_EQ(predictions(columns_), expected);

  const std::vector<double> by_column = {1, 2, 3, 4, 5, 5, 4, 3, 2, 1};
  srjit_matrix dense = columns_;
  dense.data = by_column.data();
  dense.row_stride = dense.column_stride = 0;
  EXPECT_EQ(predictions(dense), expected);

  srjit_matrix backwards = columns_;
  backwards.data = x_.data() + 8;
  backwards.row_stride = -backwards.row_stride;
  EXPECT_EQ(predictions(backwards), (std::vector<double>{15, 24, 33, 42, 51}));

  std::vector<char> odd(1 + 10 * sizeof(double));
  std::memcpy(odd.data() + 1, by_column.data(), 10 * sizeof(double));
  dense.data = odd.data() + 1;
  EXPECT_EQ(predictions(dense), expected);

  const std::vector<float> floats(by_column.begin(), by_column.end());
  dense.data = floats.data();
  dense.type = SRJIT_F32;
  EXPECT_EQ(predictions(dense), expected);
}

TEST_F(CInterface, ManyRowsAreGatheredInBlocks) {
  constexpr std::size_t kRows = 1000;
  std::vector<double> values(3 * kRows);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  auto matrix = sized<srjit_matrix>();
  matrix.data = values.data();
  matrix.rows = kRows;
  matrix.columns = 3;
  matrix.row_stride = 3 * sizeof(double);
  matrix.column_stride = sizeof(double);
  matrix.type = SRJIT_F64;
  auto view = sized<srjit_data>();
  view.columns = &matrix;
  const auto data =
      made<srjit_dataset>([&](auto to, auto error) { return srjit_dataset_create(engine_.get(), &view, to, error); });
  const auto program = compile({"x0", "x1", "x2"});
  std::vector<double> out(values.size());
  srjit_failures* failures = nullptr;
  ASSERT_EQ(srjit_predict(engine_.get(), program.get(), data.get(), nullptr, 0, SRJIT_F64, out.data(), out.size(),
                          &failures, nullptr),
            SRJIT_OK);
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(out[c * kRows + r], values[3 * r + c]) << r << ' ' << c;
  }
}

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

TEST_F(CInterface, PopulationsAreArrays) {
  // x0 * p0 + 1 in prefix; an operator without operands; 2 x0 + 1 with a constant.
  const std::vector<std::int32_t> codes = {1, 3, SRJIT_VARIABLE, SRJIT_PARAMETER, 0, 1, 1, 3, 0, -1, 0};
  const std::vector<double> constants = {0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 1};
  const std::vector<std::int64_t> offsets = {0, 5, 6, 11};
  auto population = sized<srjit_population>();
  population.expressions = 3;
  population.codes = codes.data();
  population.constants = constants.data();
  population.offsets = offsets.data();
  population.notation = SRJIT_PREFIX;
  const double parameter = 2;
  double values[3];
  auto losses = sized<srjit_losses>();
  losses.count = 3;
  losses.values = values;
  srjit_error error = newError();
  ASSERT_EQ(
      srjit_population_loss(engine_.get(), &population, data_.get(), &parameter, 1, nullptr, nullptr, &losses, &error),
      SRJIT_OK)
      << error.message;
  EXPECT_EQ(messages(losses.failures).size(), 1U);
  EXPECT_EQ(values[0], 0);
  EXPECT_TRUE(std::isnan(values[1]));
  EXPECT_EQ(values[2], 0);

  const auto pending = made<srjit_pending>([&](auto to, auto e) {
    return srjit_submit_population_loss(engine_.get(), &population, data_.get(), &parameter, 1, nullptr, nullptr, to,
                                        e);
  });
  srjit_pending_wait(pending.get());
  EXPECT_EQ(srjit_pending_ready(pending.get()), 1);
  double later[3];
  losses.values = later;
  ASSERT_EQ(srjit_pending_losses(pending.get(), &losses, &error), SRJIT_OK) << error.message;
  messages(losses.failures);
  EXPECT_EQ(later[2], 0);

  population.constants = nullptr;
  const auto program =
      made<srjit_program>([&](auto to, auto e) { return srjit_compile(engine_.get(), &population, nullptr, to, e); });
  srjit_failures* failures = nullptr;
  ASSERT_EQ(srjit_program_failures(program.get(), &failures, nullptr), SRJIT_OK);
  EXPECT_THAT(messages(failures),
              ElementsAre(HasSubstr("there are no constants"), testing::_, HasSubstr("there are no constants")));
}

TEST_F(CInterface, TextIsParsedPrintedAndSimplified) {
  const char* texts[] = {"mass*1 + (2 + 3)", "(`net weight`)"};
  const char* names[] = {"mass", "net weight"};
  const auto tokens = made<srjit_tokens>(
      [&](auto to, auto error) { return srjit_parse(texts, 2, SRJIT_TEXT_INFIX, names, 2, to, nullptr, error); });
  auto population = sized<srjit_population>();
  ASSERT_EQ(srjit_tokens_get(tokens.get(), &population, nullptr), SRJIT_OK);
  EXPECT_EQ(population.expressions, 2U);
  EXPECT_EQ(population.codes[0], SRJIT_VARIABLE);
  EXPECT_EQ(population.codes[population.offsets[1]], SRJIT_VARIABLE - 1);
  const auto simple = made<srjit_tokens>(
      [&](auto to, auto error) { return srjit_simplify(&population, SRJIT_MATH_FAST, to, nullptr, error); });
  ASSERT_EQ(srjit_tokens_get(simple.get(), &population, nullptr), SRJIT_OK);
  char text[16];
  std::uint64_t length = 0;
  ASSERT_EQ(srjit_print(&population, 0, SRJIT_TEXT_INFIX, names, 2, text, sizeof text, &length, nullptr), SRJIT_OK);
  EXPECT_STREQ(text, "mass + 5");
  EXPECT_EQ(length, 8U);
  ASSERT_EQ(srjit_print(&population, 0, SRJIT_TEXT_POSTFIX, names, 2, text, 4, &length, nullptr), SRJIT_OK);
  EXPECT_STREQ(text, "mas");
  EXPECT_EQ(length, 8U);
  EXPECT_THAT(refusal(SRJIT_ERROR_INVALID,
                      [&](auto error) {
                        return srjit_print(&population, 2, SRJIT_TEXT_INFIX, names, 2, text, 4, &length, error);
                      }),
              HasSubstr("expression 2 of 2"));
}

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

TEST_F(CInterface, OptionsReachTheEngine) {
  const auto tokens = made<srjit_tokens>([](auto to, auto error) {
    const char* texts[] = {"log(x1 - 1)", "x0 + 0*x1"};
    return srjit_parse(texts, 2, SRJIT_TEXT_INFIX, nullptr, 0, to, nullptr, error);
  });
  auto options = sized<srjit_compile_options>();
  const auto infoWith = [&] {
    const auto program = made<srjit_program>(
        [&](auto to, auto error) { return srjit_compile_tokens(engine_.get(), tokens.get(), &options, to, error); });
    auto info = sized<srjit_program_info>();
    EXPECT_EQ(srjit_program_get_info(program.get(), &info, nullptr), SRJIT_OK);
    return info;
  };
  options.tier = SRJIT_TIER_INTERPRET;
  EXPECT_EQ(infoWith().requested_tier, SRJIT_TIER_INTERPRET);
  options.tier = SRJIT_TIER_COMPILED;
  EXPECT_EQ(infoWith().requested_tier, SRJIT_TIER_COMPILED);
  const std::uint64_t nodes = infoWith().nodes_after;
  options.passes = "none";
  EXPECT_GT(infoWith().nodes_after, nodes);  // x0 + 0*x1 is as it was
  const auto refused = [&] {
    return refusal(SRJIT_ERROR_INVALID, [&](auto error) {
      srjit_program* program = nullptr;
      return srjit_compile_tokens(engine_.get(), tokens.get(), &options, &program, error);
    });
  };
  options.passes = "nine";
  EXPECT_THAT(refused(), HasSubstr("nine"));
  options.passes = nullptr;
  options.keep_order = 2;
  EXPECT_THAT(refused(), HasSubstr("keep_order is 2"));

  // log(x1 - 1) is -infinity in the last row.
  const auto program = compile({"log(x1 - 1)"});
  double value = 0;
  std::uint64_t valid = 0;
  auto losses = sized<srjit_losses>();
  losses.count = 1;
  losses.values = &value;
  losses.valid_rows = &valid;
  auto loss = sized<srjit_loss_options>();
  const auto withPolicy = [&](std::int32_t nan) {
    loss.nan = nan;
    EXPECT_EQ(srjit_loss(engine_.get(), program.get(), data_.get(), nullptr, 0, &loss, &losses, nullptr), SRJIT_OK);
  };
  withPolicy(SRJIT_NAN_SKIP);
  EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(valid, 4U);
  withPolicy(SRJIT_NAN_REJECT);
  EXPECT_TRUE(std::isinf(value));
  auto info = sized<srjit_engine_info>();
  ASSERT_EQ(srjit_engine_get_info(engine_.get(), &info, nullptr), SRJIT_OK);
  EXPECT_EQ(info.precision, SRJIT_F64);
  EXPECT_EQ(info.math, SRJIT_MATH_PRECISE);
  EXPECT_EQ(info.tier, SRJIT_TIER_AUTO);
  EXPECT_EQ(info.threads, 2U);
}

TEST_F(CInterface, ArgumentsOutOfRange) {
  auto population = sized<srjit_population>();
  population.expressions = ~std::uint64_t{0};
  const std::int64_t offsets[] = {0};
  population.offsets = offsets;
  const auto refused = [&] {
    return refusal(SRJIT_ERROR_INVALID, [&](auto error) {
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
    return refusal(SRJIT_ERROR_INVALID, [&](auto error) {
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
  EXPECT_THAT(refusal(SRJIT_ERROR_INVALID,
                      [&](auto error) {
                        return srjit_fit(engine_.get(), program.get(), data_.get(), &start, 1, &options, &fits, error);
                      }),
              HasSubstr("NaN"));
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

TEST_F(CInterface, OperatorsAndLossesAreListed) {
  ASSERT_EQ(srjit_op_count(), allOps().size());
  for (std::uint64_t i = 0; i < srjit_op_count(); ++i) {
    auto op = sized<srjit_op>();
    ASSERT_EQ(srjit_op_get(i, &op, nullptr), SRJIT_OK);
    EXPECT_EQ(op.name, allOps()[i].name);
    EXPECT_EQ(op.text, allOps()[i].text);
    EXPECT_EQ(op.arity, allOps()[i].arity);
    EXPECT_EQ(op.code, codeOf(static_cast<Op>(i)));
  }
  auto op = sized<srjit_op>();
  EXPECT_EQ(srjit_op_get(srjit_op_count(), &op, nullptr), SRJIT_ERROR_INVALID);
  for (std::size_t i = 0; i < allLosses().size(); ++i) EXPECT_EQ(srjit_loss_name(i), allLosses()[i].name);
  EXPECT_EQ(srjit_loss_name(allLosses().size()), nullptr);
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

TEST_F(CInterface, PartsOfData) {
  const auto program = compile({"x0"});
  const auto rowsOf = [](const srjit_dataset* data) {
    auto info = sized<srjit_dataset_info>();
    EXPECT_EQ(srjit_dataset_get_info(data, &info, nullptr), SRJIT_OK);
    EXPECT_EQ(info.columns, 2U);
    EXPECT_EQ(info.row_groups, 1U);
    return info.rows;
  };
  const auto rows =
      made<srjit_dataset>([&](auto to, auto e) { return srjit_dataset_rows(engine_.get(), data_.get(), 1, 3, to, e); });
  EXPECT_EQ(rowsOf(rows.get()), 3U);
  const auto sample = made<srjit_dataset>(
      [&](auto to, auto e) { return srjit_dataset_sample(engine_.get(), data_.get(), 1, 7, to, e); });
  EXPECT_EQ(rowsOf(sample.get()), 5U);
  const std::vector<double> w = {0, 0, 0, 0, 1};
  const srjit_matrix weights = columnOf(w);
  const auto weighted = made<srjit_dataset>(
      [&](auto to, auto e) { return srjit_dataset_with_weights(engine_.get(), data_.get(), &weights, 0, to, e); });
  double value = 0;
  auto losses = sized<srjit_losses>();
  losses.count = 1;
  losses.values = &value;
  ASSERT_EQ(srjit_prepare(engine_.get(), program.get(), weighted.get(), nullptr, nullptr), SRJIT_OK);
  ASSERT_EQ(srjit_loss(engine_.get(), program.get(), weighted.get(), nullptr, 0, nullptr, &losses, nullptr), SRJIT_OK);
  EXPECT_EQ(value, 36);
  EXPECT_THAT(refusal(SRJIT_ERROR_INVALID,
                      [&](auto e) {
                        srjit_dataset* none = nullptr;
                        return srjit_dataset_rows(engine_.get(), data_.get(), 4, 2, &none, e);
                      }),
              HasSubstr("row"));
}

/// A struct in two versions. The library here knows the second.
struct FirstVersion {
  std::uint64_t size;
  std::uint64_t old_member;
};
struct SecondVersion {
  std::uint64_t size;
  std::uint64_t old_member, new_member;
};
struct ThirdVersion {
  SecondVersion known;
  std::uint64_t unknown;
};

}  // namespace

namespace c_api {
template <>
inline constexpr std::size_t kFirstSize<SecondVersion> = sizeof(FirstVersion);
}  // namespace c_api

namespace {

TEST(CStructs, OfOtherVersions) {
  const FirstVersion first{sizeof first, 5};
  const auto read = [](const void* given) { return c_api::fromCaller(static_cast<const SecondVersion*>(given), "it"); };
  EXPECT_EQ(read(&first).old_member, 5U);
  EXPECT_EQ(read(&first).new_member, 0U);
  EXPECT_EQ(read(&first).size, sizeof(SecondVersion));
  EXPECT_EQ(read(nullptr).old_member, 0U);

  ThirdVersion third{{sizeof third, 6, 7}, 0};
  EXPECT_EQ(read(&third).new_member, 7U);
  third.unknown = 1;
  const auto codeOfRead = [&] {
    try {
      read(&third);
      return Errc::kSyntax;
    } catch (const ErrorException& refused) {
      return refused.error().code;
    }
  };
  EXPECT_EQ(codeOfRead(), Errc::kUnsupported);
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{4097}, ~std::uint64_t{0}}) {
    third.known.size = size;
    EXPECT_EQ(codeOfRead(), Errc::kInvalid) << size;
  }

  // What is written ends with the caller's struct, and with what is known; the rest may hold anything.
  const auto write = [](auto& to) {
    c_api::describeTo(reinterpret_cast<SecondVersion*>(&to), "it", [](SecondVersion& it) {
      it.old_member = 10;
      it.new_member = 11;
    });
  };
  struct {
    FirstVersion it;
    std::uint64_t behind;
  } old = {{sizeof(FirstVersion), 1}, 77};
  write(old);
  EXPECT_EQ(old.it.size, sizeof(FirstVersion));
  EXPECT_EQ(old.it.old_member, 10U);
  EXPECT_EQ(old.behind, 77U);
  third = {{sizeof third, 1, 2}, 88};
  write(third);
  EXPECT_EQ(third.known.new_member, 11U);
  EXPECT_EQ(third.unknown, 88U);
}

TEST_F(CInterface, NullsAreRefused) {
  const auto program = compile({"x0"});
  auto losses = sized<srjit_losses>();
  EXPECT_EQ(
      refusal(SRJIT_ERROR_INVALID,
              [&](auto e) { return srjit_loss(nullptr, program.get(), data_.get(), nullptr, 0, nullptr, &losses, e); }),
      "engine is NULL");
  EXPECT_EQ(refusal(SRJIT_ERROR_INVALID,
                    [&](auto e) {
                      return srjit_loss(engine_.get(), program.get(), nullptr, nullptr, 0, nullptr, &losses, e);
                    }),
            "data is NULL");
  EXPECT_EQ(refusal(SRJIT_ERROR_INVALID,
                    [&](auto e) {
                      return srjit_loss(engine_.get(), program.get(), data_.get(), nullptr, 2, nullptr, &losses, e);
                    }),
            "parameters is NULL");
  EXPECT_EQ(refusal(SRJIT_ERROR_INVALID, [&](auto e) { return srjit_engine_create(nullptr, nullptr, e); }),
            "engine is NULL");
  auto empty = sized<srjit_matrix>();
  empty.rows = empty.columns = 1;
  srjit_data view = view_;
  view.columns = &empty;
  EXPECT_EQ(refusal(SRJIT_ERROR_INVALID,
                    [&](auto e) {
                      srjit_dataset* none = nullptr;
                      return srjit_dataset_create(engine_.get(), &view, &none, e);
                    }),
            "data of columns is NULL");
  srjit_engine_free(nullptr);
  srjit_pending_free(nullptr);
  EXPECT_EQ(srjit_failures_count(nullptr), 0U);
  EXPECT_EQ(srjit_pending_ready(nullptr), 1);
}

TEST_F(CInterface, ErrorsAreText) {
  auto options = sized<srjit_engine_options>();
  options.device = "tpu";
  srjit_engine* engine = nullptr;
  EXPECT_THAT(refusal(SRJIT_ERROR_INVALID, [&](auto e) { return srjit_engine_create(&options, &engine, e); }),
              HasSubstr("tpu"));
  srjit_error error = newError();
  Error longest{Errc::kIo, std::string(979, 'x') + "\u00e9\u00e9\u00e9", Span{2, 3, 4}};
  c_api::writeError(longest, &error);
  EXPECT_EQ(std::string(error.message), std::string(979, 'x') + "...");
  EXPECT_EQ(error.code, SRJIT_ERROR_IO);
  EXPECT_EQ(error.has_place, 1);
  EXPECT_EQ(error.line, 2U);
  EXPECT_EQ(error.column, 3U);
  EXPECT_EQ(error.length, 4U);
  longest.message = std::string(983, 'x');
  c_api::writeError(longest, &error);
  EXPECT_EQ(std::string(error.message), longest.message);
  EXPECT_STREQ(srjit_version(), "0.1.0");

  // A later version's is longer; one whose size was never set is not written.
  struct {
    srjit_error known;
    char later[8];
  } newer{newError(), "later"};
  newer.known.size = sizeof newer;
  c_api::writeError(longest, &newer.known);
  EXPECT_EQ(newer.known.code, SRJIT_ERROR_IO);
  EXPECT_STREQ(newer.later, "later");
  srjit_error unset{};
  EXPECT_EQ(c_api::writeError(longest, &unset), SRJIT_ERROR_IO);
  EXPECT_EQ(unset.code, 0);
}

TEST_F(CInterface, ProgramsHaveFigures) {
  const auto program = compile({"p0*x0 + p1", "p1*x1"});
  std::vector<std::uint64_t> offsets(3);
  ASSERT_EQ(srjit_program_parameter_offsets(program.get(), offsets.data(), 3, nullptr), SRJIT_OK);
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{0, 2, 4}));
  EXPECT_THAT(refusal(SRJIT_ERROR_INVALID,
                      [&](auto e) { return srjit_program_parameter_offsets(program.get(), offsets.data(), 2, e); }),
              HasSubstr("count is 2, expected 3"));
  auto info = sized<srjit_program_info>();
  ASSERT_EQ(srjit_program_get_info(program.get(), &info, nullptr), SRJIT_OK);
  EXPECT_EQ(info.expressions, 2U);
  EXPECT_EQ(info.parameters, 4U);
  EXPECT_EQ(info.nodes_before, 8U);
  EXPECT_EQ(info.evaluations, 0U);
  EXPECT_EQ(srjit_program_status(program.get(), nullptr), SRJIT_OK);
  auto stats = sized<srjit_cache_stats>();
  ASSERT_EQ(srjit_engine_cache_stats(engine_.get(), &stats, nullptr), SRJIT_OK);
  EXPECT_EQ(stats.misses, 0U);
}

TEST(CInterfaceOnDevice, ColumnsAreUsedInPlace) {
  FakeMachine machine;
  const srjit_engine engine{machine.engine({.precision = Precision::kF64})};
  std::vector<double> x = {1, 2, 3, 4}, y = {2, 4, 6, 8};
  srjit_matrix columns = columnOf(x), target = columnOf(y);
  auto view = sized<srjit_data>();
  view.columns = &columns;
  view.target = &target;
  columns.on_device = 1;
  EXPECT_THAT(refusal(SRJIT_ERROR_INVALID,
                      [&](auto e) {
                        srjit_dataset* none = nullptr;
                        return srjit_dataset_create(&engine, &view, &none, e);
                      }),
              HasSubstr("some are on the device"));
  target.on_device = 1;
  const auto onDevice = [&](const std::vector<double>& values) {
    return reinterpret_cast<const void*>(machine.driver.allocateForeign(std::as_bytes(std::span(values))));
  };
  columns.data = onDevice(x);
  target.data = onDevice(y);
  const auto data = made<srjit_dataset>([&](auto to, auto e) { return srjit_dataset_create(&engine, &view, to, e); });
  const std::int32_t codes[] = {SRJIT_VARIABLE, SRJIT_PARAMETER, 3};
  const std::int64_t offsets[] = {0, 3};
  auto population = sized<srjit_population>();
  population.expressions = 1;
  population.codes = codes;
  population.offsets = offsets;
  const double parameter = 3;
  double value = 0;
  auto losses = sized<srjit_losses>();
  losses.count = 1;
  losses.values = &value;
  srjit_error error = newError();
  ASSERT_EQ(srjit_population_loss(&engine, &population, data.get(), &parameter, 1, nullptr, nullptr, &losses, &error),
            SRJIT_OK)
      << error.message;
  EXPECT_EQ(value, 7.5);  // of 1, 2, 3, 4

  const srjit_engine cpu{cpuEngine(Precision::kF64)};
  refusal(SRJIT_ERROR_UNSUPPORTED, [&](auto e) {
    srjit_dataset* none = nullptr;
    return srjit_dataset_create(&cpu, &view, &none, e);
  });
}

}  // namespace
}  // namespace srjit

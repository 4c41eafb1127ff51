// Expressions and programs through srjit.h: arrays, text, options and figures.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/ops.h"
#include "tests/runtime/c_api/caller.h"

namespace srjit::c_api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  EXPECT_THAT(invalid([&](auto error) {
                return srjit_print(&population, 2, SRJIT_TEXT_INFIX, names, 2, text, 4, &length, error);
              }),
              HasSubstr("expression 2 of 2"));
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
    return invalid([&](auto error) {
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

TEST_F(CInterface, ProgramsHaveFigures) {
  const auto program = compile({"p0*x0 + p1", "p1*x1"});
  std::vector<std::uint64_t> offsets(3);
  ASSERT_EQ(srjit_program_parameter_offsets(program.get(), offsets.data(), 3, nullptr), SRJIT_OK);
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{0, 2, 4}));
  EXPECT_THAT(invalid([&](auto e) { return srjit_program_parameter_offsets(program.get(), offsets.data(), 2, e); }),
              HasSubstr("count is 2, expected 3"));
  const std::vector<double> given{1, 2, 0, -4};
  std::vector<double> starts(12);
  ASSERT_EQ(srjit_program_draw_starts(program.get(), given.data(), 4, 3, 9, starts.data(), nullptr), SRJIT_OK);
  EXPECT_TRUE(std::ranges::equal(std::span(starts).first(4), given));
  for (std::size_t i = 4; i < 12; ++i) {
    const double unit = given[i % 4] == 0 ? 1 : std::fabs(given[i % 4]);
    EXPECT_GE(std::fabs(starts[i]), unit / 16);
    EXPECT_LT(std::fabs(starts[i]), unit * 16);
  }
  const auto refused = [&](std::uint64_t size, std::uint64_t count) {
    return [&, size, count](auto e) {
      return srjit_program_draw_starts(program.get(), given.data(), size, count, 9, starts.data(), e);
    };
  };
  EXPECT_THAT(invalid(refused(3, 3)), HasSubstr("3 start values: expected the program's 4"));
  EXPECT_THAT(invalid(refused(4, 0)), HasSubstr("0 starts: expected at least 1"));
  EXPECT_NE(refused(4, std::numeric_limits<std::uint64_t>::max())(nullptr), SRJIT_OK) << "more than memory holds";
  const auto none = compile({"x0"});
  EXPECT_EQ(
      srjit_program_draw_starts(none.get(), nullptr, 0, std::numeric_limits<std::uint64_t>::max(), 9, nullptr, nullptr),
      SRJIT_OK)
      << "no parameters, no starts";
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

}  // namespace
}  // namespace srjit::c_api

// What programs that were compiled with srjit.h rely on: sizes and offsets of structs, and values of enumerators. A
// change of a line here breaks them; new members and enumerators are new lines. Of a struct that grows,
// kFirstSize stays, and sizeof is compared with the new size.
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ir/losses.h"
#include "ir/population.h"
#include "runtime/c_api/arguments.h"
#include "runtime/c_api/srjit.h"
#include "runtime/fit_options.h"

namespace srjit {
namespace {

/// Where a member is.
struct Member {
  const char* name;
  std::size_t at, expected;
};

/// Of a struct of srjit.h: its size in its first version and now, and its members.
template <class Struct>
void expectLayout(std::size_t first, std::size_t now, std::initializer_list<Member> members) {
  EXPECT_EQ(c_api::kFirstSize<Struct>, first);
  EXPECT_EQ(sizeof(Struct), now);
  EXPECT_EQ(offsetof(Struct, size), 0U);
  for (const Member& member : members) EXPECT_EQ(member.at, member.expected) << member.name;
}

#define AT(member, expected) {#member, offsetof(Struct, member), expected}
#define EXPECT_LAYOUT(type, first, now, ...)         \
  do {                                               \
    using Struct = type;                             \
    expectLayout<Struct>(first, now, {__VA_ARGS__}); \
  } while (false)

TEST(Abi, Errors) {
  EXPECT_LAYOUT(srjit_error, 1024, 1024, AT(code, 8), AT(has_place, 12), AT(line, 16), AT(column, 24), AT(length, 32),
                AT(message, 40));
}

TEST(Abi, Engines) {
  EXPECT_LAYOUT(srjit_engine_options, 56, 80, AT(device, 8), AT(cache_directory, 16), AT(precision, 24), AT(math, 28),
                AT(tier, 32), AT(threads, 36), AT(device_bytes, 40), AT(subtree_bytes, 48), AT(max_nodes, 56),
                AT(max_call_nodes, 64), AT(max_seconds, 72));
  EXPECT_LAYOUT(srjit_engine_info, 40, 64, AT(precision, 8), AT(math, 12), AT(tier, 16), AT(threads, 20),
                AT(device_bytes, 24), AT(subtree_bytes, 32), AT(max_nodes, 40), AT(max_call_nodes, 48),
                AT(max_seconds, 56));
  EXPECT_LAYOUT(srjit_cache_stats, 104, 104, AT(memory_hits, 8), AT(disk_hits, 16), AT(misses, 24), AT(waits, 32),
                AT(memory_images, 40), AT(memory_bytes, 48), AT(disk_images, 56), AT(disk_bytes, 64), AT(evictions, 72),
                AT(damaged, 80), AT(compile_seconds, 88), AT(saved_seconds, 96));
}

TEST(Abi, Data) {
  EXPECT_LAYOUT(srjit_matrix, 56, 56, AT(data, 8), AT(rows, 16), AT(columns, 24), AT(row_stride, 32),
                AT(column_stride, 40), AT(type, 48), AT(on_device, 52));
  EXPECT_LAYOUT(srjit_data, 48, 48, AT(columns, 8), AT(target, 16), AT(weights, 24), AT(names, 32), AT(stream, 40));
  EXPECT_LAYOUT(srjit_dataset_info, 80, 80, AT(rows, 8), AT(columns, 16), AT(row_groups, 24), AT(subtree_capacity, 32),
                AT(subtrees_kept, 40), AT(subtree_bytes, 48), AT(subtrees_computed, 56), AT(subtrees_replaced, 64),
                AT(subtree_reads, 72));
}

TEST(Abi, Searches) {
  EXPECT_LAYOUT(srjit_formula, 80, 80, AT(text, 8), AT(latex, 16), AT(postfix, 24), AT(complexity, 32), AT(loss, 40),
                AT(held_out, 48), AT(evidence, 56), AT(bic, 64), AT(r2, 72));
}

TEST(Abi, Expressions) {
  EXPECT_LAYOUT(srjit_population, 48, 48, AT(expressions, 8), AT(codes, 16), AT(constants, 24), AT(offsets, 32),
                AT(notation, 40), AT(reserved, 44));
  EXPECT_LAYOUT(srjit_op, 32, 32, AT(name, 8), AT(text, 16), AT(code, 24), AT(arity, 28));
  EXPECT_LAYOUT(srjit_compile_options, 48, 56, AT(tier, 8), AT(keep_order, 12), AT(expected_evaluations, 16),
                AT(expected_rows, 24), AT(passes, 32), AT(data, 40), AT(deferred, 48), AT(as_written, 52));
  EXPECT_LAYOUT(srjit_program_info, 168, 168, AT(expressions, 8), AT(parameters, 16), AT(nodes_before, 24),
                AT(nodes_after, 32), AT(seconds_passes, 40), AT(seconds_codegen, 48), AT(subtrees_read, 56),
                AT(nodes_spared, 64), AT(recurring, 72), AT(tier, 80), AT(requested_tier, 84), AT(compiling, 88),
                AT(reserved, 92), AT(compiled, 96), AT(evaluations, 104), AT(served_interpreted, 112),
                AT(served_direct, 120), AT(served_compiled, 128), AT(seconds_compiling, 136), AT(seconds_reading, 144),
                AT(seconds_loading, 152), AT(device_seconds, 160));
}

TEST(Abi, Evaluations) {
  EXPECT_LAYOUT(srjit_loss_options, 24, 24, AT(loss, 8), AT(nan, 16), AT(by, 20));
  EXPECT_LAYOUT(srjit_losses, 56, 56, AT(count, 8), AT(values, 16), AT(valid_rows, 24), AT(derivative_count, 32),
                AT(derivatives, 40), AT(failures, 48));
  EXPECT_LAYOUT(srjit_fit_options, 48, 64, AT(loss, 8), AT(stop, 16), AT(loss_tolerance, 24), AT(step_tolerance, 32),
                AT(iterations, 40), AT(reserved, 44), AT(bounds, 48), AT(bound_count, 56));
  EXPECT_LAYOUT(srjit_fits, 88, 88, AT(count, 8), AT(losses, 16), AT(valid_rows, 24), AT(iterations, 32),
                AT(statuses, 40), AT(starts, 48), AT(parameter_count, 56), AT(parameters, 64), AT(standard_errors, 72),
                AT(failures, 80));
}

TEST(Abi, DeviceLosses) {
  EXPECT_LAYOUT(srjit_device_loss_options, 56, 56, AT(operators, 8), AT(operator_count, 16), AT(expressions, 24),
                AT(loss, 32), AT(bytes, 40), AT(most_tokens, 48), AT(reserved, 52));
  EXPECT_LAYOUT(srjit_device_population, 72, 72, AT(codes, 8), AT(values, 16), AT(tokens, 24), AT(expressions, 32),
                AT(offsets, 40), AT(stride, 48), AT(lengths, 56), AT(values_type, 64), AT(notation, 68));
  EXPECT_LAYOUT(srjit_device_loss_outputs, 40, 40, AT(losses, 8), AT(valid_rows, 16), AT(faults, 24), AT(type, 32),
                AT(reserved, 36));
}

#undef EXPECT_LAYOUT
#undef AT

TEST(Abi, Enumerators) {
  const std::vector<std::vector<int>> all = {
      {SRJIT_OK, SRJIT_ERROR_SYNTAX, SRJIT_ERROR_INVALID, SRJIT_ERROR_IO, SRJIT_ERROR_UNSUPPORTED, SRJIT_ERROR_COMPILE,
       SRJIT_ERROR_MACHINE, SRJIT_ERROR_CANCELLED, SRJIT_ERROR_LIMIT},
      {SRJIT_F32, SRJIT_F64},
      {SRJIT_MATH_PRECISE, SRJIT_MATH_STRICT, SRJIT_MATH_FAST},
      {SRJIT_TIER_OF_ENGINE, SRJIT_TIER_AUTO, SRJIT_TIER_INTERPRET, SRJIT_TIER_COMPILED, SRJIT_TIER_DIRECT},
      {SRJIT_POSTFIX, SRJIT_PREFIX},
      {SRJIT_TEXT_INFIX, SRJIT_TEXT_POSTFIX, SRJIT_TEXT_PREFIX, SRJIT_TEXT_JSON},
      {SRJIT_NAN_PROPAGATE, SRJIT_NAN_SKIP, SRJIT_NAN_REJECT},
      {SRJIT_BY_PARAMETERS, SRJIT_BY_VARIABLES}};
  for (const std::vector<int>& values : all) {
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<int>(i));
  }
  EXPECT_EQ(SRJIT_CONSTANT, 0);
  EXPECT_EQ(SRJIT_VARIABLE, -1);
  EXPECT_EQ(SRJIT_PARAMETER, -1073741824);
}

TEST(Abi, FaultsOfExpressions) {
  const std::pair<int, DeviceFault> faults[] = {
      {SRJIT_FAULT_NONE, DeviceFault::kNone},         {SRJIT_FAULT_LENGTH, DeviceFault::kLength},
      {SRJIT_FAULT_CODE, DeviceFault::kCode},         {SRJIT_FAULT_OPERATOR, DeviceFault::kOperator},
      {SRJIT_FAULT_VARIABLE, DeviceFault::kVariable}, {SRJIT_FAULT_OPERANDS, DeviceFault::kOperands},
      {SRJIT_FAULT_REST, DeviceFault::kRest},         {SRJIT_FAULT_SLOTS, DeviceFault::kSlots}};
  for (const auto& [fault, of_ir] : faults) {
    EXPECT_EQ(fault, static_cast<int>(of_ir));
    EXPECT_EQ(srjit_fault_text(fault), textOf(of_ir));
  }
  const int numbers[] = {0, 1, 2, 3, 4, 5, 6, 7};
  for (std::size_t i = 0; i < std::size(faults); ++i) EXPECT_EQ(faults[i].first, numbers[i]);
  EXPECT_EQ(srjit_fault_text(-1), nullptr);
  EXPECT_EQ(srjit_fault_text(SRJIT_FAULT_SLOTS + 1), nullptr);
}

TEST(Abi, StatusesOfFits) {
  EXPECT_EQ(srjit_fit_status_name(0), nullptr);
  EXPECT_EQ(srjit_fit_status_name(9), nullptr);
  for (int status = SRJIT_FIT_CONVERGED; status <= SRJIT_FIT_NO_PARAMETERS; ++status) {
    EXPECT_EQ(srjit_fit_status_name(status), nameOf(static_cast<FitStatus>(status)));
  }
  const std::pair<int, FitStatus> statuses[] = {
      {SRJIT_FIT_CONVERGED, FitStatus::kConverged},    {SRJIT_FIT_ITERATIONS, FitStatus::kIterations},
      {SRJIT_FIT_NO_PROGRESS, FitStatus::kNoProgress}, {SRJIT_FIT_NOT_FINITE, FitStatus::kNotFinite},
      {SRJIT_FIT_SINGULAR, FitStatus::kSingular},      {SRJIT_FIT_CANCELLED, FitStatus::kCancelled},
      {SRJIT_FIT_FAILED, FitStatus::kFailed},          {SRJIT_FIT_NO_PARAMETERS, FitStatus::kNoParameters}};
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(statuses[i].first, i + 1);
    EXPECT_EQ(static_cast<int>(statuses[i].second), i + 1);
  }
}

}  // namespace
}  // namespace srjit

// What programs that were compiled with srjit.h rely on: sizes and offsets of structs, and values of enumerators. A
// change of a line here breaks them; new members and enumerators are new lines. Of a struct that grows,
// kFirstSize stays, and sizeof is compared with the new size.
#include <cstddef>

#include <gtest/gtest.h>

#include "ir/losses.h"
#include "runtime/c_api/srjit.h"
#include "runtime/c_api/structs.h"
#include "runtime/fit_options.h"

namespace srjit {
namespace {

#define EXPECT_SIZE(type, bytes)                        \
  EXPECT_EQ(sizeof(type), std::size_t{bytes}) << #type; \
  EXPECT_EQ(c_api::kFirstSize<type>, std::size_t{bytes}) << #type
#define EXPECT_GROWN(type, first, now)                \
  EXPECT_EQ(sizeof(type), std::size_t{now}) << #type; \
  EXPECT_EQ(c_api::kFirstSize<type>, std::size_t{first}) << #type
#define EXPECT_AT(type, member, at) EXPECT_EQ(offsetof(type, member), std::size_t{at}) << #type "." #member

TEST(Abi, Errors) {
  EXPECT_SIZE(srjit_error, 1024);
  EXPECT_AT(srjit_error, size, 0);
  EXPECT_AT(srjit_error, code, 8);
  EXPECT_AT(srjit_error, has_place, 12);
  EXPECT_AT(srjit_error, line, 16);
  EXPECT_AT(srjit_error, column, 24);
  EXPECT_AT(srjit_error, length, 32);
  EXPECT_AT(srjit_error, message, 40);
}

TEST(Abi, Engines) {
  EXPECT_GROWN(srjit_engine_options, 56, 80);
  EXPECT_AT(srjit_engine_options, device, 8);
  EXPECT_AT(srjit_engine_options, cache_directory, 16);
  EXPECT_AT(srjit_engine_options, precision, 24);
  EXPECT_AT(srjit_engine_options, math, 28);
  EXPECT_AT(srjit_engine_options, tier, 32);
  EXPECT_AT(srjit_engine_options, threads, 36);
  EXPECT_AT(srjit_engine_options, device_bytes, 40);
  EXPECT_AT(srjit_engine_options, subtree_bytes, 48);
  EXPECT_AT(srjit_engine_options, max_nodes, 56);
  EXPECT_AT(srjit_engine_options, max_call_nodes, 64);
  EXPECT_AT(srjit_engine_options, max_seconds, 72);
  EXPECT_GROWN(srjit_engine_info, 40, 64);
  EXPECT_AT(srjit_engine_info, precision, 8);
  EXPECT_AT(srjit_engine_info, math, 12);
  EXPECT_AT(srjit_engine_info, tier, 16);
  EXPECT_AT(srjit_engine_info, threads, 20);
  EXPECT_AT(srjit_engine_info, device_bytes, 24);
  EXPECT_AT(srjit_engine_info, subtree_bytes, 32);
  EXPECT_AT(srjit_engine_info, max_nodes, 40);
  EXPECT_AT(srjit_engine_info, max_call_nodes, 48);
  EXPECT_AT(srjit_engine_info, max_seconds, 56);
  EXPECT_SIZE(srjit_cache_stats, 104);
  EXPECT_AT(srjit_cache_stats, memory_hits, 8);
  EXPECT_AT(srjit_cache_stats, disk_hits, 16);
  EXPECT_AT(srjit_cache_stats, misses, 24);
  EXPECT_AT(srjit_cache_stats, waits, 32);
  EXPECT_AT(srjit_cache_stats, memory_images, 40);
  EXPECT_AT(srjit_cache_stats, memory_bytes, 48);
  EXPECT_AT(srjit_cache_stats, disk_images, 56);
  EXPECT_AT(srjit_cache_stats, disk_bytes, 64);
  EXPECT_AT(srjit_cache_stats, evictions, 72);
  EXPECT_AT(srjit_cache_stats, damaged, 80);
  EXPECT_AT(srjit_cache_stats, compile_seconds, 88);
  EXPECT_AT(srjit_cache_stats, saved_seconds, 96);
}

TEST(Abi, Data) {
  EXPECT_SIZE(srjit_matrix, 56);
  EXPECT_AT(srjit_matrix, data, 8);
  EXPECT_AT(srjit_matrix, rows, 16);
  EXPECT_AT(srjit_matrix, columns, 24);
  EXPECT_AT(srjit_matrix, row_stride, 32);
  EXPECT_AT(srjit_matrix, column_stride, 40);
  EXPECT_AT(srjit_matrix, type, 48);
  EXPECT_AT(srjit_matrix, on_device, 52);
  EXPECT_SIZE(srjit_data, 48);
  EXPECT_AT(srjit_data, columns, 8);
  EXPECT_AT(srjit_data, target, 16);
  EXPECT_AT(srjit_data, weights, 24);
  EXPECT_AT(srjit_data, names, 32);
  EXPECT_AT(srjit_data, stream, 40);
  EXPECT_SIZE(srjit_dataset_info, 80);
  EXPECT_AT(srjit_dataset_info, rows, 8);
  EXPECT_AT(srjit_dataset_info, columns, 16);
  EXPECT_AT(srjit_dataset_info, row_groups, 24);
  EXPECT_AT(srjit_dataset_info, subtree_capacity, 32);
  EXPECT_AT(srjit_dataset_info, subtrees_kept, 40);
  EXPECT_AT(srjit_dataset_info, subtree_bytes, 48);
  EXPECT_AT(srjit_dataset_info, subtrees_computed, 56);
  EXPECT_AT(srjit_dataset_info, subtrees_replaced, 64);
  EXPECT_AT(srjit_dataset_info, subtree_reads, 72);
}

TEST(Abi, Expressions) {
  EXPECT_SIZE(srjit_population, 48);
  EXPECT_AT(srjit_population, expressions, 8);
  EXPECT_AT(srjit_population, codes, 16);
  EXPECT_AT(srjit_population, constants, 24);
  EXPECT_AT(srjit_population, offsets, 32);
  EXPECT_AT(srjit_population, notation, 40);
  EXPECT_AT(srjit_population, reserved, 44);
  EXPECT_SIZE(srjit_op, 32);
  EXPECT_AT(srjit_op, name, 8);
  EXPECT_AT(srjit_op, text, 16);
  EXPECT_AT(srjit_op, code, 24);
  EXPECT_AT(srjit_op, arity, 28);
  EXPECT_GROWN(srjit_compile_options, 48, 56);
  EXPECT_AT(srjit_compile_options, tier, 8);
  EXPECT_AT(srjit_compile_options, keep_order, 12);
  EXPECT_AT(srjit_compile_options, expected_evaluations, 16);
  EXPECT_AT(srjit_compile_options, expected_rows, 24);
  EXPECT_AT(srjit_compile_options, passes, 32);
  EXPECT_AT(srjit_compile_options, data, 40);
  EXPECT_AT(srjit_compile_options, deferred, 48);
  EXPECT_AT(srjit_compile_options, reserved, 52);
  EXPECT_GROWN(srjit_program_info, 168, 176);
  EXPECT_AT(srjit_program_info, expressions, 8);
  EXPECT_AT(srjit_program_info, parameters, 16);
  EXPECT_AT(srjit_program_info, nodes_before, 24);
  EXPECT_AT(srjit_program_info, nodes_after, 32);
  EXPECT_AT(srjit_program_info, seconds_passes, 40);
  EXPECT_AT(srjit_program_info, seconds_codegen, 48);
  EXPECT_AT(srjit_program_info, subtrees_read, 56);
  EXPECT_AT(srjit_program_info, nodes_spared, 64);
  EXPECT_AT(srjit_program_info, recurring, 72);
  EXPECT_AT(srjit_program_info, tier, 80);
  EXPECT_AT(srjit_program_info, requested_tier, 84);
  EXPECT_AT(srjit_program_info, compiling, 88);
  EXPECT_AT(srjit_program_info, reserved, 92);
  EXPECT_AT(srjit_program_info, compiled, 96);
  EXPECT_AT(srjit_program_info, evaluations, 104);
  EXPECT_AT(srjit_program_info, served_interpreted, 112);
  EXPECT_AT(srjit_program_info, served_direct, 120);
  EXPECT_AT(srjit_program_info, served_compiled, 128);
  EXPECT_AT(srjit_program_info, seconds_compiling, 136);
  EXPECT_AT(srjit_program_info, seconds_reading, 144);
  EXPECT_AT(srjit_program_info, seconds_loading, 152);
  EXPECT_AT(srjit_program_info, device_seconds, 160);
  EXPECT_AT(srjit_program_info, encoded_on_device, 168);
}

TEST(Abi, Evaluations) {
  EXPECT_SIZE(srjit_loss_options, 24);
  EXPECT_AT(srjit_loss_options, loss, 8);
  EXPECT_AT(srjit_loss_options, nan, 16);
  EXPECT_AT(srjit_loss_options, by, 20);
  EXPECT_SIZE(srjit_losses, 56);
  EXPECT_AT(srjit_losses, count, 8);
  EXPECT_AT(srjit_losses, values, 16);
  EXPECT_AT(srjit_losses, valid_rows, 24);
  EXPECT_AT(srjit_losses, derivative_count, 32);
  EXPECT_AT(srjit_losses, derivatives, 40);
  EXPECT_AT(srjit_losses, failures, 48);
  EXPECT_SIZE(srjit_fit_options, 48);
  EXPECT_AT(srjit_fit_options, loss, 8);
  EXPECT_AT(srjit_fit_options, stop, 16);
  EXPECT_AT(srjit_fit_options, loss_tolerance, 24);
  EXPECT_AT(srjit_fit_options, step_tolerance, 32);
  EXPECT_AT(srjit_fit_options, iterations, 40);
  EXPECT_AT(srjit_fit_options, reserved, 44);
  EXPECT_SIZE(srjit_fits, 88);
  EXPECT_AT(srjit_fits, count, 8);
  EXPECT_AT(srjit_fits, losses, 16);
  EXPECT_AT(srjit_fits, valid_rows, 24);
  EXPECT_AT(srjit_fits, iterations, 32);
  EXPECT_AT(srjit_fits, statuses, 40);
  EXPECT_AT(srjit_fits, starts, 48);
  EXPECT_AT(srjit_fits, parameter_count, 56);
  EXPECT_AT(srjit_fits, parameters, 64);
  EXPECT_AT(srjit_fits, standard_errors, 72);
  EXPECT_AT(srjit_fits, failures, 80);
}

#undef EXPECT_SIZE
#undef EXPECT_GROWN
#undef EXPECT_AT

TEST(Abi, Enumerators) {
  const int values[] = {SRJIT_OK,
                        SRJIT_ERROR_SYNTAX,
                        SRJIT_ERROR_INVALID,
                        SRJIT_ERROR_IO,
                        SRJIT_ERROR_UNSUPPORTED,
                        SRJIT_ERROR_COMPILE,
                        SRJIT_ERROR_MACHINE,
                        SRJIT_ERROR_CANCELLED,
                        SRJIT_ERROR_LIMIT};
  for (int i = 0; i < 9; ++i) EXPECT_EQ(values[i], i);
  EXPECT_EQ(SRJIT_F32, 0);
  EXPECT_EQ(SRJIT_F64, 1);
  EXPECT_EQ(SRJIT_MATH_PRECISE, 0);
  EXPECT_EQ(SRJIT_MATH_STRICT, 1);
  EXPECT_EQ(SRJIT_MATH_FAST, 2);
  EXPECT_EQ(SRJIT_TIER_OF_ENGINE, 0);
  EXPECT_EQ(SRJIT_TIER_AUTO, 1);
  EXPECT_EQ(SRJIT_TIER_INTERPRET, 2);
  EXPECT_EQ(SRJIT_TIER_COMPILED, 3);
  EXPECT_EQ(SRJIT_TIER_DIRECT, 4);
  EXPECT_EQ(SRJIT_CONSTANT, 0);
  EXPECT_EQ(SRJIT_VARIABLE, -1);
  EXPECT_EQ(SRJIT_PARAMETER, -1073741824);
  EXPECT_EQ(SRJIT_POSTFIX, 0);
  EXPECT_EQ(SRJIT_PREFIX, 1);
  EXPECT_EQ(SRJIT_TEXT_INFIX, 0);
  EXPECT_EQ(SRJIT_TEXT_POSTFIX, 1);
  EXPECT_EQ(SRJIT_TEXT_PREFIX, 2);
  EXPECT_EQ(SRJIT_TEXT_JSON, 3);
  EXPECT_EQ(SRJIT_NAN_PROPAGATE, 0);
  EXPECT_EQ(SRJIT_NAN_SKIP, 1);
  EXPECT_EQ(SRJIT_NAN_REJECT, 2);
  EXPECT_EQ(SRJIT_BY_PARAMETERS, 0);
  EXPECT_EQ(SRJIT_BY_VARIABLES, 1);
}

TEST(Abi, StatusesOfFits) {
  EXPECT_EQ(srjit_fit_status_name(0), nullptr);
  EXPECT_EQ(srjit_fit_status_name(9), nullptr);
  for (int status = SRJIT_FIT_CONVERGED; status <= SRJIT_FIT_NO_PARAMETERS; ++status) {
    EXPECT_EQ(srjit_fit_status_name(status), nameOf(static_cast<FitStatus>(status)));
  }
  EXPECT_EQ(SRJIT_FIT_CONVERGED, 1);
  EXPECT_EQ(static_cast<int>(FitStatus::kConverged), 1);
  EXPECT_EQ(SRJIT_FIT_ITERATIONS, 2);
  EXPECT_EQ(static_cast<int>(FitStatus::kIterations), 2);
  EXPECT_EQ(SRJIT_FIT_NO_PROGRESS, 3);
  EXPECT_EQ(static_cast<int>(FitStatus::kNoProgress), 3);
  EXPECT_EQ(SRJIT_FIT_NOT_FINITE, 4);
  EXPECT_EQ(static_cast<int>(FitStatus::kNotFinite), 4);
  EXPECT_EQ(SRJIT_FIT_SINGULAR, 5);
  EXPECT_EQ(static_cast<int>(FitStatus::kSingular), 5);
  EXPECT_EQ(SRJIT_FIT_CANCELLED, 6);
  EXPECT_EQ(static_cast<int>(FitStatus::kCancelled), 6);
  EXPECT_EQ(SRJIT_FIT_FAILED, 7);
  EXPECT_EQ(static_cast<int>(FitStatus::kFailed), 7);
  EXPECT_EQ(SRJIT_FIT_NO_PARAMETERS, 8);
  EXPECT_EQ(static_cast<int>(FitStatus::kNoParameters), 8);
}

}  // namespace
}  // namespace srjit

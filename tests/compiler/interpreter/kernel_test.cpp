// The text of the kernel's PTX: required and forbidden instructions.
#include "compiler/interpreter/kernel.h"

#include <iterator>
#include <regex>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/interpreter/handler_table.h"
#include "compiler/nvptx/options.h"
#include "ir/ops.h"

namespace srjit {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Interpreter, DispatchesThroughOneIndirectBranch) {
  const HandlerTable table({Precision::kF32, Math::kFast, {Op::kAdd, Op::kMul, Op::kExp}, 8, 4});
  DeviceOptions options;
  options.math = Math::kFast;
  options.rows_per_thread = 8;
  const auto ptx = interpreterPtx(table, options);
  ASSERT_TRUE(ptx.ok()) << ptx.error().message;
  const std::regex branch("brx\\.idx");
  EXPECT_EQ(std::distance(std::sregex_iterator(ptx->begin(), ptx->end(), branch), std::sregex_iterator()), 1);
  EXPECT_THAT(*ptx, Not(HasSubstr(".local")));
  EXPECT_THAT(*ptx, Not(HasSubstr(".f64")));
}

TEST(Interpreter, MovesItsWindowOnceAndWithinAWarp) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    DeviceOptions options;
    options.precision = precision;
    const HandlerTable table({precision, options.math, {Op::kAdd, Op::kMul}, options.rows_per_thread, 4});
    const std::string ptx = *interpreterPtx(table, options);
    const auto count = [&](const char* what) {
      const std::regex pattern(what);
      return std::distance(std::sregex_iterator(ptx.begin(), ptx.end(), pattern), std::sregex_iterator());
    };
    EXPECT_EQ(count("bar\\.warp\\.sync"), 2) << "before and after the copies";
    EXPECT_EQ(count("bar\\.sync|barrier\\.sync"), 1) << "the block's barrier at the start";
    EXPECT_EQ(count("pragma \"nounroll\""), 1) << "the copies take few registers";
  }
}

TEST(Interpreter, RejectsATableOfOtherOptions) {
  const HandlerTable table({Precision::kF32, Math::kFast, {Op::kAdd}, 8, 4});
  DeviceOptions options;
  options.rows_per_thread = 8;
  EXPECT_EQ(interpreterPtx(table, options).error().message,
            "the handler table was made for another precision, math mode or number of rows");
  const HandlerTable huge({Precision::kF64, Math::kPrecise, {Op::kAdd}, 16, 8});
  DeviceOptions wide;
  wide.precision = Precision::kF64;
  wide.rows_per_thread = 16;
  EXPECT_EQ(interpreterPtx(huge, wide).error().message,
            "depth 8 with 16 rows per thread in f64 takes 256 registers: expected at most 176");
  const HandlerTable flat({Precision::kF32, Math::kPrecise, {Op::kAdd}, 8, 2});
  DeviceOptions narrow;
  narrow.rows_per_thread = 8;
  EXPECT_EQ(interpreterPtx(flat, narrow).error().message, "stack depth 2: expected 3 to 15");
}

TEST(Interpreter, CopiesColumnsByCpAsyncWhereSupported) {
  DeviceOptions options;
  const HandlerTable table({options.precision, options.math, {Op::kAdd}, options.rows_per_thread, 4});
  EXPECT_THAT(*interpreterPtx(table, options), HasSubstr("cp.async.cg.shared.global"));
  options.strided_columns = true;
  EXPECT_THAT(*interpreterPtx(table, options), ContainsRegex("cp.async.ca.shared.global.*, 4;"));
  options.arch = "sm_75";
  EXPECT_THAT(*interpreterPtx(table, options), Not(HasSubstr("cp.async")));
}

TEST(Interpreter, SharedMemoryHoldsColumnsSlotsAndTokens) {
  // One team of four warps: a tile is 1024 rows. Four teams of one warp: tiles of 256 rows, slots for each.
  EXPECT_EQ(interpreterSharedBytes(Precision::kF32, {8, 4, 16}, 3, 2, 100), (3 + 2) * 4096 + (100 + 2) * 8U);
  EXPECT_EQ(interpreterSharedBytes(Precision::kF32, {8, 1, 16}, 3, 2, 100), (3 + 4 * 2) * 1024 + (100 + 8) * 8U);
  EXPECT_EQ(interpreterSharedBytes(Precision::kF64, {4, 2, 16}, 3, 2, 100), (3 + 2 * 2) * 2048 + (100 + 4) * 16U);
  // With a window, each of four warps has its own tokens, independent of the length of programs.
  EXPECT_EQ(interpreterSharedBytes(Precision::kF32, {8, 4, 16, 50}, 3, 2, 1000), (3 + 2) * 4096 + 4 * (50 + 2) * 8U);
}

std::size_t countOf(std::string_view text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// One sum of a row group takes five exchanges, two or four of them five and six. With two row groups per thread, as
// many items more are added together. Other losses have no such code, but traps.
TEST(Interpreter, AddsSeveralSumsOverTheLanesAtOnce) {
  const auto ptxOf = [](unsigned rows, LossTerm term) {
    const HandlerTable table({Precision::kF32, Math::kFast, {Op::kAdd, Op::kMul}, rows, 4});
    const DeviceOptions options{.math = Math::kFast, .rows_per_thread = rows, .loss = LossSpec{.term = term}};
    return interpreterPtx(table, options).value();
  };
  const std::string of_four = ptxOf(4, LossTerm::kPrediction), of_eight = ptxOf(8, LossTerm::kPrediction);
  EXPECT_EQ(countOf(of_four, "shfl.sync.bfly"), 5U + 5 + 6 + 6);
  EXPECT_EQ(countOf(of_eight, "shfl.sync.bfly"), 5U + 6 + 9 + 9);
  EXPECT_EQ(countOf(of_four, "trap;"), 0U);
  EXPECT_THAT(of_four, Not(HasSubstr(".local"))) << "kept sums are registers";
  const std::string of_squares = ptxOf(4, LossTerm::kSquared);
  EXPECT_EQ(countOf(of_squares, "shfl.sync.bfly"), 5U);
  EXPECT_GE(countOf(of_squares, "trap;"), 1U);
}

}  // namespace
}  // namespace srjit

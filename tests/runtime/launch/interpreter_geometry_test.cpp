// How many programs a warp of the interpreter runs, on a device like an H200.
#include <utility>

#include <gtest/gtest.h>

#include "compiler/interpreter/kernel.h"
#include "runtime/launch/run.h"

namespace srjit {
namespace {

InterpreterGeometry geometryOf(std::size_t programs, std::size_t rows, std::uint32_t tokens = 8,
                               std::uint32_t slots = 0, std::uint32_t columns = 2) {
  InterpreterCode code;
  for (std::size_t i = 0; i <= programs; ++i) code.offsets.push_back(static_cast<std::uint32_t>(i) * tokens);
  const InterpreterSection section{
      .programs = static_cast<std::uint32_t>(programs), .staged_columns = columns, .slots = slots};
  DeviceLimits limits;
  limits.multiprocessors = 132;
  limits.shared_bytes_per_multiprocessor = std::size_t{228} << 10;
  limits.shared_bytes_per_block = std::size_t{227} << 10;
  return chooseGeometry(code, section, rows, Precision::kF32, limits);
}

TEST(InterpreterGeometry, MuchWorkIsDividedIntoManyBlocks) {
  EXPECT_EQ(geometryOf(250'000, 362).programs_per_warp, 23U);  // of 2 teams: 40 blocks a multiprocessor
  EXPECT_EQ(geometryOf(10'000, 10'860).programs_per_warp, 20U);
  EXPECT_EQ(geometryOf(10'000, 1'000'000).programs_per_warp, 64U);
}

TEST(InterpreterGeometry, LittleWorkIsDividedIntoFewerBlocksOfSeveralPrograms) {
  EXPECT_EQ(geometryOf(30'000, 362).programs_per_warp, 8U);
  EXPECT_EQ(geometryOf(10'000, 1'000).programs_per_warp, 7U);
  EXPECT_EQ(geometryOf(10'000, 362).programs_per_warp, 3U);
  EXPECT_EQ(geometryOf(1'000, 362).programs_per_warp, 1U);
  EXPECT_EQ(geometryOf(1, 1).programs_per_warp, 1U);
}

TEST(InterpreterGeometry, LongProgramsLeaveRoomForOtherBlocks) {
  EXPECT_EQ(geometryOf(30'000, 10'860, 30).programs_per_warp, 62U);
  EXPECT_EQ(geometryOf(30'000, 10'860, 1000).programs_per_warp, 4U);
}

// With eight rows per thread, nine slots and six columns leave room for one warp per team.
TEST(InterpreterGeometry, WarpsShareProgramsRatherThanHaveEightRows) {
  const auto shape = [](std::size_t rows, std::uint32_t slots) {
    const InterpreterGeometry geometry = geometryOf(30'000, rows, 8, slots, 6);
    return std::pair(geometry.rows_per_thread, geometry.row_warps);
  };
  EXPECT_EQ(shape(1'000, 5), std::pair(8U, 4U));
  EXPECT_EQ(shape(1'000, 8), std::pair(8U, 2U));
  EXPECT_EQ(shape(1'000, 9), std::pair(4U, 4U));
  EXPECT_EQ(shape(256, 9), std::pair(8U, 1U));
}

}  // namespace
}  // namespace srjit

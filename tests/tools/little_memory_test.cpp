// Under any memory limit a command works or ends with a message, never by a signal.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/tools/process.h"

namespace srjit {
namespace {

constexpr rlim_t kMegabyte = rlim_t{1} << 20;

/// The least memory, in whole megabytes, in which the command starts: its libraries take most of it.
rlim_t leastMemory() {
  rlim_t least = 16 * kMegabyte;
  for (Outcome outcome; (outcome = runCommand({"passes", "x0"}, "/", {}, {}, -1, least)).status != 0;
       least += kMegabyte) {
    // 127: the dynamic loader has no memory for a library.
    if (least > 4096 * kMegabyte) {
      ADD_FAILURE() << "does not start: " << outcome.err;
      break;
    }
    EXPECT_THAT(outcome.status, testing::AnyOf(3, 127)) << least / kMegabyte << " MB: " << outcome.err;
  }
  return least;
}

class LittleMemorySlow : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(LittleMemorySlow, WorksOrEndsWithAMessage) {
  const Scratch scratch;
  std::string lines, table = "x0,y\n";
  for (int i = 0; i < 300; ++i) lines += fmt::format("sin(x0*{}.5)\n", i);
  for (int i = 0; i < 100; ++i) table += fmt::format("{},{}\n", i, i * i);
  scratch.write("lines", lines);
  scratch.write("table.csv", table);
  const rlim_t least = leastMemory();
  std::size_t refused = 0;
  for (const rlim_t more : {0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 56, 80}) {
    std::vector<std::string> words = GetParam();
    words.insert(words.end(), {"--exprs", "lines"});
    const Outcome outcome =
        runCommand(words, scratch.path(""), {}, scratch.write("out", ""), -1, least + more * kMegabyte);
    EXPECT_THAT(outcome.status, testing::AnyOf(0, 3)) << more << " MB: " << outcome.err;
    if (outcome.status != 3) continue;
    ++refused;
    EXPECT_THAT(outcome.err, testing::HasSubstr("sr-jit: ")) << more;
    EXPECT_THAT(outcome.err, testing::Not(testing::HasSubstr("JIT session error"))) << "printed by LLVM";
    EXPECT_THAT(scratch.list(), testing::Not(testing::Contains(testing::StartsWith(".")))) << "a temporary file";
  }
  EXPECT_GT(refused, 0u) << "no run had too little memory";
}

std::vector<std::string> evaluation(const std::string& command) {
  return {command, "--data", "table.csv", "--target", "y", "--tier", "compile", "--device", "cpu", "--out", "result"};
}

INSTANTIATE_TEST_SUITE_P(Command, LittleMemorySlow,
                         testing::Values(std::vector<std::string>{"llvm"}, std::vector<std::string>{"ptx"},
                                         std::vector<std::string>{"asm"}, evaluation("run"), evaluation("loss")),
                         [](const auto& words) { return words.param[0]; });

// An allocation inside of LLVM fails.
TEST(LittleMemoryMessageSlow, ReportsOutOfMemory) {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += fmt::format("sin(x0*{}.5)\n", i);
  const Outcome outcome =
      runCommand({"llvm", "--exprs", "-"}, "/", lines, scratch.write("out", ""), -1, leastMemory() + 8 * kMegabyte);
  EXPECT_EQ(outcome.status, 3);
  EXPECT_EQ(outcome.err, "sr-jit: out of memory\n");
}

}  // namespace
}  // namespace srjit

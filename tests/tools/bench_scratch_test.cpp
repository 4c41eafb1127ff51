#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/generators/environment.h"
#include "tests/tools/process.h"

namespace srjit {
namespace {

/// Runs the benchmark with a time limit that allows no measurement.
void runIn(const std::string& temporary) {
  const ScopedVariable directory("TMPDIR", temporary);
  runCommand({"bench", "mixed", "--device", "cpu", "--seconds", "1e-9"}, "/");
}

// Process ids on Linux are at most 4,194,304.
TEST(BenchScratchSlow, RemovesDirectoriesOfKilledRuns) {
  const Scratch scratch;
  for (const char* const name :
       {"srjit-bench-4194305-abcdef", "srjit-bench-notes", "srjit-bench-4194305", "srjit-bench-4194306-abcdef"}) {
    ASSERT_EQ(mkdir(scratch.path(name).c_str(), 0700), 0);
  }
  const std::string other = scratch.path("srjit-bench-4194306-abcdef");
  const bool is_given_away = chown(other.c_str(), 1000, 1000) == 0;
  runIn(scratch.path(""));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("srjit-bench-4194305-abcdef")));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("srjit-bench-notes")));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("srjit-bench-4194305"))) << "not a name of the benchmark";
  EXPECT_EQ(std::filesystem::exists(other), is_given_away);
}

}  // namespace
}  // namespace srjit

// Standard streams that are closed or full, and outputs that are no regular files.
#include <gmock/gmock.h>

#include <csignal>

#include "tests/tools/process.h"

namespace srjit {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kLosses = "index,loss,valid_rows,status\n0,0,2,ok\n";
// Not quiet, so that there is a message.
constexpr const char* kLoss = "\"$SRJIT\" loss a --data table.csv --target y --device cpu ";

class Streams : public testing::Test {
 protected:
  void SetUp() override { scratch_.write("table.csv", "a,y\n1,1\n2,2\n"); }
  Outcome shell(const std::string& script) const { return runShell(script, scratch_.path("")); }
  std::string content(const char* name) const { return contentOf(scratch_.path(name)); }
  Scratch scratch_;
};

TEST_F(Streams, ClosedStandardErrorDoesNotCorruptResults) {
  EXPECT_EQ(shell(std::string(kLoss) + "-o out.csv 2>&-").status, 0);
  EXPECT_EQ(content("out.csv"), kLosses);
  EXPECT_EQ(shell(std::string(kLoss) + "> out.csv 2>&-").status, 0);
  EXPECT_EQ(content("out.csv"), kLosses);
  EXPECT_EQ(shell(std::string(kLoss) + "-o out.csv <&- >&- 2>&-").status, 0);
  EXPECT_EQ(content("out.csv"), kLosses);
}

TEST_F(Streams, ClosedStandardErrorDoesNotCorruptTheOutputOfBadInput) {
  EXPECT_EQ(shell("\"$SRJIT\" run 'a +' a --data table.csv --keep-going -o out.csv 2>&-").status, 0);
  EXPECT_THAT(content("out.csv"), StartsWith("e0,e1\n"));
}

TEST_F(Streams, ClosedStandardOutputFailsBeforeEvaluation) {
  const Outcome outcome = shell(std::string(kLoss) + ">&-");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "sr-jit: cannot write standard output: Bad file descriptor\n");
}

TEST_F(Streams, ClosedStandardInputIsAnError) {
  const Outcome outcome = shell("\"$SRJIT\" parse --exprs - <&-");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "sr-jit: cannot read standard input: Bad file descriptor\n");
}

TEST_F(Streams, UnwritableMessagesDoNotAffectResults) {
  const Outcome full = shell(std::string(kLoss) + "2>/dev/full");
  EXPECT_EQ(full.status, 0);
  EXPECT_EQ(full.out, kLosses);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  const Outcome gone = runCommand({"loss", "a", "--data", "table.csv", "--target", "y", "--device", "cpu"},
                                  scratch_.path(""), {}, {}, ends[1]);
  close(ends[1]);
  EXPECT_EQ(gone.status, 0);
  EXPECT_EQ(gone.out, kLosses);
}

TEST_F(Streams, ClosedPipeEndsTheCommandSilently) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  const std::string out = scratch_.write("err", "");
  for (const char* const word : {"ops", "--help"}) {
    const int status = inChild([&] {
      dup2(ends[1], STDOUT_FILENO);
      dup2(open(out.c_str(), O_WRONLY), STDERR_FILENO);
      execl(SRJIT_COMMAND, SRJIT_COMMAND, word, static_cast<char*>(nullptr));
      return 127;
    });
    EXPECT_EQ(status, 128 + SIGPIPE) << word;
    EXPECT_EQ(content("err"), "") << word;
  }
  close(ends[1]);
}

TEST_F(Streams, FullStandardOutputFailsEveryCommand) {
  for (const std::string words : {"--help", "--version", "ops", "loss --help", "parse x0"}) {
    const Outcome outcome = shell("\"$SRJIT\" " + words + " > /dev/full");
    EXPECT_EQ(outcome.status, 1) << words;
    EXPECT_THAT(outcome.err, HasSubstr("sr-jit: cannot write standard output")) << words;
  }
}

using StreamsSlow = Streams;  // sanitizers do not build the benchmark programs

TEST_F(StreamsSlow, FullStandardOutputFailsTheBenchmarks) {
  const Outcome outcome = shell("\"$SRJIT\" bench all --help > /dev/full");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("sr-jit: cannot write standard output"));
}

TEST_F(Streams, DevStdoutIsTheStreamNotItsFile) {
  for (const std::string name : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    scratch_.write("log", "old\n");
    const Outcome outcome = shell(std::string(kLoss) + "--quiet -o " + name + " >> log");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(content("log"), std::string("old\n") + kLosses) << name;
  }
  const Outcome piped = shell(std::string(kLoss) + "--quiet -o /dev/stdout | cat");
  EXPECT_EQ(piped.out, kLosses);
}

TEST_F(Streams, LinksAreKeptAndTheirTargetIsWritten) {
  std::filesystem::create_directory(scratch_.path("results"));
  std::filesystem::create_symlink("results/real.csv", scratch_.path("dangling"));
  std::filesystem::create_symlink("dangling", scratch_.path("link"));
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(shell(std::string(kLoss) + "--quiet -o link").status, 0);
    EXPECT_EQ(content("results/real.csv"), kLosses);
    EXPECT_TRUE(std::filesystem::is_symlink(scratch_.path("link")));
    EXPECT_TRUE(std::filesystem::is_symlink(scratch_.path("dangling")));
  }
  std::filesystem::create_symlink("loop", scratch_.path("loop"));
  EXPECT_THAT(shell(std::string(kLoss) + "-o loop").err, HasSubstr("loop: Too many levels of symbolic links"));
}

}  // namespace
}  // namespace srjit

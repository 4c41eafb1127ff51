// `sr-jit search` as a process: how it ends, goes on, and shows its progress.
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ir/numbers/random.h"
#include "tests/tools/search/small_command.h"

namespace srjit {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

TEST(SearchCommandSlow, AKilledSearchGoesOnFromItsCheckpoint) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  RunningSearch running(scratch);
  ASSERT_TRUE(appears(scratch.path("search.json")));
  EXPECT_EQ(running.end(SIGKILL), 128 + SIGKILL);
  EXPECT_NE(access(scratch.path("front.csv").c_str(), F_OK), 0);
  const json before = json::parse(contentOf(scratch.path("search.json")));
  const std::uint64_t generations = before.at("generations");
  ASSERT_GT(generations, 0u);
  const Outcome resumed = runCommand(
      commandOf({"--generations", std::to_string(generations + 2), "--checkpoint", "search.json"}), scratch.path("."));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr(fmt::format("in {} generations", generations + 2)));
  const json after = json::parse(contentOf(scratch.path("search.json")));
  EXPECT_GT(after.at("candidates").get<std::uint64_t>(), before.at("candidates").get<std::uint64_t>());
  EXPECT_LE(after.at("front").back().at("loss").get<double>(), before.at("front").back().at("loss").get<double>());
  const Outcome unbroken = runCommand(commandOf({"--generations", std::to_string(generations + 2)}), scratch.path("."));
  EXPECT_EQ(resumed.out, unbroken.out);
}

#ifndef SRJIT_SANITIZED  // which report crashes themselves
TEST(SearchCommandSlow, ACrashSaysWhereItWas) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  RunningSearch running(scratch);
  ASSERT_TRUE(appears(scratch.path("search.json")));
  EXPECT_EQ(running.end(SIGSEGV), 128 + SIGSEGV);
  const std::string err = contentOf(scratch.path("err"));
  EXPECT_THAT(err, HasSubstr("sr-jit: crashed; please report these lines and the command:\n"));
  EXPECT_THAT(err.substr(err.find("crashed")), HasSubstr("sr-jit(+0x"));
  EXPECT_NE(access(scratch.path("front.csv").c_str(), F_OK), 0);
}
#endif

class SearchCommandEndedSlow : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, SearchCommandEndedSlow, testing::Values(SIGINT, SIGTERM),
                         [](const auto& tested) { return tested.param == SIGINT ? "Interrupt" : "Terminate"; });

// What it writes is what an unbroken search of as many generations would have given.
TEST_P(SearchCommandEndedSlow, WritesTheFrontFoundSoFar) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  RunningSearch running(scratch);
  ASSERT_TRUE(appears(scratch.path("search.json")));
  EXPECT_EQ(running.end(GetParam()), 0);
  EXPECT_THAT(contentOf(scratch.path("err")), HasSubstr("; stopped\n"));
  const std::uint64_t generations = json::parse(contentOf(scratch.path("search.json"))).at("generations");
  const Outcome unbroken = runCommand(commandOf({"--generations", std::to_string(generations)}), scratch.path("."));
  EXPECT_THAT(unbroken.out, StartsWith("complexity,loss,held_out,evidence,bic,r2,formula\n1,"));
  // A busy machine has no time to round all formulas; the checkpoint has what a search at its limit needs for that.
  if (contentOf(scratch.path("err")).find("more digits than they need") == std::string::npos) {
    EXPECT_EQ(contentOf(scratch.path("front.csv")), unbroken.out);
  }
  const Outcome resumed = runCommand(
      commandOf({"--generations", std::to_string(generations), "--checkpoint", "search.json"}), scratch.path("."));
  EXPECT_EQ(resumed.out, unbroken.out);
}

TEST(SearchCommandSlow, ACheckpointThatCannotBeWrittenLosesNoResult) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  ASSERT_EQ(runCommand(commandOf({"--generations", "2", "--checkpoint", "search.json"}), scratch.path(".")).status, 0);
  const std::string before = contentOf(scratch.path("search.json"));
  const int limit = 4096;  // bytes of a file
  const Outcome outcome =
      runProgram({"/bin/bash",   "-c",           fmt::format("ulimit -f {}; exec \"$0\" \"$@\"", limit / 1024),
                  SRJIT_COMMAND, "search",       "--data",
                  "table.csv",   "--target",     "energy",
                  "--device",    "cpu",          "--islands",
                  "4",           "--population", "60",
                  "--offspring", "120",          "--generations",
                  "4",           "--checkpoint", "search.json"},
                 scratch.path("."));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("search.json"));
  EXPECT_THAT(outcome.out, StartsWith("complexity,loss,held_out,evidence,bic,r2,formula\n1,"));
  EXPECT_EQ(contentOf(scratch.path("search.json")), before);
}

/// A terminal of 200 columns, whose other side a test reads.
class Terminal {
 public:
  Terminal() : own_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (own_ < 0 || grantpt(own_) != 0 || unlockpt(own_) != 0) return;
    other_ = open(ptsname(own_), O_RDWR | O_NOCTTY);
    const winsize size{.ws_row = 24, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(other_, TIOCSWINSZ, &size);
  }
  ~Terminal() {
    close(other_);
    close(own_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  int descriptor() const { return other_; }
  /// Whether all that was written matches, within half a minute.
  bool shows(const testing::Matcher<const std::string&>& wanted) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!wanted.Matches(written_) && std::chrono::steady_clock::now() < deadline) {
      pollfd ready{.fd = own_, .events = POLLIN, .revents = 0};
      std::array<char, 4096> some{};
      if (poll(&ready, 1, 30'000) <= 0) return false;
      const ssize_t count = read(own_, some.data(), some.size());
      if (count <= 0) return false;
      written_.append(some.data(), static_cast<std::size_t>(count));
    }
    return wanted.Matches(written_);
  }
  const std::string& written() const { return written_; }

 private:
  int own_, other_ = -1;
  std::string written_;
};

TEST(SearchCommandSlow, ATerminalShowsTheBestFormulaSoFar) {
  Terminal terminal;
  ASSERT_GE(terminal.descriptor(), 0);
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  RunningSearch running(scratch, terminal.descriptor());
  // The first formulas may be constants.
  ASSERT_TRUE(terminal.shows(
      testing::ContainsRegex("\r[0-9]+ s, [0-9.e+]+ trees, [0-9.e+]+/s, [0-9]+ formulas, loss [0-9.e+-]+: "
                             "[^\r]*(mass|speed)[^\r]*\x1b\\[K")))
      << terminal.written();
  EXPECT_EQ(running.end(SIGTERM), 0);
  ASSERT_TRUE(terminal.shows(HasSubstr("; stopped"))) << terminal.written();
  EXPECT_THAT(terminal.written(), HasSubstr("\r\x1b[Ksr-jit: ")) << "the line is cleared before the summary";
  EXPECT_THAT(contentOf(scratch.path("front.csv")), StartsWith("complexity,loss,held_out,evidence,bic,r2,formula\n1,"));
}

Outcome searchOf(const Scratch& scratch, std::vector<std::string> more) {
  std::vector<std::string> words = {"search", "--data", "table.csv", "--target", "y", "--device", "cpu"};
  words.insert(words.end(), more.begin(), more.end());
  return runCommand(words, scratch.path("."));
}

/// 200,000 rows of a law of exponentials and sines.
std::string largeTable() {
  std::string text = "a,b,z,y\n";
  Random random(1000);
  for (int r = 0; r < 200'000; ++r) {
    const double a = random.between(1.0, 5.0), b = random.between(1.0, 5.0), z = random.between(1.0, 5.0);
    text += fmt::format("{},{},{},{}\n", a, b, z, std::exp(-a) * std::sin(b) * z);
  }
  return text;
}

std::size_t lineCount(const std::string& text) { return static_cast<std::size_t>(std::ranges::count(text, '\n')); }

TEST(SearchCommandTimeSlow, ASecondIsASecond) {
  const Scratch scratch;
  scratch.write("table.csv", largeTable());
  const std::vector<std::string> slow[] = {{"--rows", "200000"}, {"--islands", "1000"}, {"--offspring", "100000"}};
  for (std::vector<std::string> words : slow) {
    words.insert(words.end(), {"--seconds", "1"});
    const auto begun = std::chrono::steady_clock::now();
    const Outcome outcome = searchOf(scratch, words);
    // At most 2.2 seconds on a machine that does nothing else. A generation takes minutes.
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(), 20) << words[0];
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("; the time is over\n"));
    EXPECT_GT(lineCount(outcome.out), 2U) << outcome.out;
  }
}

TEST(SearchCommandTimeSlow, AnInterruptEndsAGeneration) {
  const Scratch scratch;
  scratch.write("table.csv", largeTable());
  const Outcome outcome = runShell(
      "\"$SRJIT\" search --data table.csv --target y --device cpu --rows 200000 --seconds 100 --out front.csv & "
      "sleep 4; kill -INT $!; begun=$(date +%s%N); wait $!; echo $? $(( ($(date +%s%N) - begun) / 1000000 ))",
      scratch.path("."));
  int status = -1, milliseconds = -1;
  ASSERT_EQ(std::sscanf(outcome.out.c_str(), "%d %d", &status, &milliseconds), 2) << outcome.out << outcome.err;
  EXPECT_EQ(status, 0) << outcome.err;
  EXPECT_LT(milliseconds, 15000);  // a second on a machine that does nothing else
  EXPECT_THAT(outcome.err, HasSubstr("; stopped\n"));
  EXPECT_GT(lineCount(contentOf(scratch.path("front.csv"))), 2U);
}

}  // namespace
}  // namespace srjit

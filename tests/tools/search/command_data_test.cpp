// `sr-jit search` on data with missing values, on large data with little time, and where no formula has a loss.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <fmt/format.h>

#include "ir/numbers/random.h"
#include "tests/tools/search/small_command.h"

namespace srjit {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Two columns and their product, in some rows with `cell` instead of a.
std::string productTable(std::size_t rows, std::vector<std::size_t> missing, const std::string& cell) {
  std::string text = "a,b,y\n";
  Random random(4);
  for (std::size_t r = 0; r < rows; ++r) {
    const double a = random.between(1.0, 5.0), b = random.between(1.0, 5.0);
    const bool is_missing = std::ranges::find(missing, r) != missing.end();
    text += fmt::format("{},{},{}\n", is_missing ? cell : fmt::format("{}", a), b, a * b);
  }
  return text;
}

Outcome searchOf(const Scratch& scratch, std::vector<std::string> more) {
  std::vector<std::string> words = {"search", "--data", "table.csv", "--target", "y", "--device", "cpu"};
  words.insert(words.end(), more.begin(), more.end());
  return runCommand(words, scratch.path("."));
}

Outcome searchProduct(const Scratch& scratch, std::vector<std::string> more) {
  more.insert(more.end(), {"--islands", "4"});
  return searchOf(scratch, more);
}

TEST(SearchCommandData, MissingValuesAreRefusedOrLeftOut) {
  const Scratch scratch;
  for (const char* const cell : {"nan", "", "NA"}) {
    scratch.write("table.csv", productTable(1000, {17, 20}, cell));
    const Outcome refused = searchProduct(scratch, {});
    EXPECT_EQ(refused.status, 1);
    EXPECT_EQ(refused.out, "");
    EXPECT_THAT(refused.err, AllOf(HasSubstr("table.csv:"), HasSubstr("'a'"), HasSubstr("--drop-missing")));
    const Outcome left = searchProduct(scratch, {"--drop-missing"});
    EXPECT_EQ(left.status, 0) << left.err;
    EXPECT_THAT(left.err, HasSubstr("table.csv: 2 of 1000 rows left out, since they have missing values"));
    EXPECT_THAT(left.out, testing::ContainsRegex("\n3,[0-9.e-]+,,(a \\* b|b \\* a)\n")) << left.out;
  }
  scratch.write("table.csv", productTable(1000, {17, 20}, "nan"));
  EXPECT_THAT(searchProduct(scratch, {}).err,
              HasSubstr("2 of 1000 rows have a value that is NaN or infinite, the first NaN in row 18, column 'a'"));
  EXPECT_THAT(searchProduct(scratch, {"--drop-missing", "--quiet"}).err, "");
}

TEST(SearchCommandData, InfiniteValuesAreRefused) {
  const Scratch scratch;
  scratch.write("table.csv", productTable(100, {3}, "inf"));
  const Outcome outcome = searchProduct(scratch, {"--drop-missing"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("the first inf in row 4, column 'a'"), Not(HasSubstr("--drop-missing"))));
}

TEST(DropMissing, IsAnOptionOfAllThatReadATarget) {
  const Scratch scratch;
  scratch.write("table.csv", productTable(100, {3}, "") + "1,2,nan\n");
  const auto outcome = [&](const char* command, std::vector<std::string> more) {
    std::vector<std::string> words = {command,    "a*b + p0", "--params", "0",   "--data",      "table.csv",
                                      "--target", "y",        "--device", "cpu", "--precision", "f64"};
    words.insert(words.end(), more.begin(), more.end());
    return runCommand(words, scratch.path("."));
  };
  for (const char* const command : {"loss", "fit"}) {
    EXPECT_THAT(outcome(command, {}).err, HasSubstr("; --drop-missing leaves out rows with missing values\n"));
    const Outcome left = outcome(command, {"--drop-missing"});
    EXPECT_EQ(left.status, 0) << left.err;
    EXPECT_THAT(left.err, HasSubstr("table.csv: 2 of 101 rows left out, since they have missing values\n"));
    EXPECT_THAT(left.out, HasSubstr(",99,"));
  }
  EXPECT_THAT(runCommand({"run", "a", "--data", "table.csv", "--drop-missing"}, scratch.path(".")).err,
              HasSubstr("--drop-missing"))
      << "predictions are of all rows";
  scratch.write("table.csv", "a,b,y\n1,2,nan\n");
  EXPECT_THAT(outcome("loss", {}).err, HasSubstr("--drop-missing leaves out rows with missing values\n"));
  EXPECT_THAT(outcome("loss", {"--drop-missing"}).err, HasSubstr("leaves no row"));
}

TEST(SearchCommandData, NoFormulaWithAFiniteLossIsAnError) {
  const Scratch scratch;
  std::string text = "a,b,y\n";
  for (int i = 0; i < 200; ++i) text += fmt::format("{},{},{}\n", 1 + 0.01 * i, 2 + i % 7, std::sin(1e4 * i));
  scratch.write("table.csv", text);
  const Outcome outcome = searchProduct(scratch, {"--loss", "log(f/y)^2", "--generations", "2"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("no formula has a finite loss"));
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

// Options of a search in words.
#include "tools/search/interface/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace srjit::search {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<double> ramp() {
  std::vector<double> numbers(20);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 1.0 + static_cast<double>(i);
  return numbers;
}

TEST(SearchOptionsInWords, MeanWhatTheirMembersMean) {
  const std::vector<double> x = ramp();
  const DataView data{.columns = {ColumnView(x)}, .target = ColumnView(x)};
  SearchOptions expected{.loss = {.kind = LossKind::kHuber, .tuning = 1.5}, .seconds = 0, .generations = 7};
  expected.grammar = {.operators = parseOperators("add,mul,sqrt:2").value(),
                      .nesting = {{Op::kSqrt, Op::kAdd, 0}},
                      .max_complexity = 30,
                      .allow_self_nesting = true};
  expected.engine = {.device = "cpu", .precision = Precision::kF64, .threads = 2};
  expected.links = {"identity", "log"};
  expected.choice = {Choice::Rule::kComplexity, 9};
  expected.held_out = 0.25;
  expected.island.population = 77;
  const std::vector<std::string> words = {"--loss",
                                          "huber:1.5",
                                          "--seconds",
                                          "0",
                                          "--generations=7",
                                          "--ops",
                                          "add, mul sqrt:2",
                                          "--nesting",
                                          "sqrt:add:0",
                                          "--max-complexity",
                                          "30",
                                          "--self-nesting",
                                          "--precision",
                                          "f64",
                                          "--device",
                                          "cpu",
                                          "--threads",
                                          "2",
                                          "--links",
                                          "identity,log",
                                          "--choose",
                                          "9",
                                          "--held-out",
                                          "0.25",
                                          "--population",
                                          "77"};
  std::string text;
  for (const std::string& word : words) text += word.find(' ') == std::string::npos ? word + "  " : "'" + word + "' ";
  for (const SearchOptions& parsed : {parseSearchOptions(words).value(), parseSearchOptions(text).value()}) {
    EXPECT_EQ(fingerprintOf(data, parsed), fingerprintOf(data, expected));
    EXPECT_NE(fingerprintOf(data, parsed), fingerprintOf(data, SearchOptions()));
    EXPECT_EQ(parsed.seconds, 0);
    EXPECT_EQ(parsed.generations, 7u);
    EXPECT_EQ(parsed.engine.device, "cpu");
    EXPECT_EQ(parsed.engine.threads, 2u);
    EXPECT_EQ(parsed.choice.complexity, 9u);
  }
  EXPECT_EQ(fingerprintOf(data, parseSearchOptions("").value()), fingerprintOf(data, SearchOptions()));
}

TEST(SearchOptionsInWords, ErrorsNameTheOption) {
  const struct {
    std::vector<std::string> words;
    const char *option, *reason;
  } cases[] = {{{"--ops", "add,foo"}, "--ops:1:5:", "unknown operator 'foo'"},
               {{"--ops="}, "--ops:", "no operator is named"},
               {{"--nesting", "sin"}, "--nesting:1:1:", "OUTER:INNER:MOST"},
               {{"--loss", "abs(f - "}, "--loss:1:9:", "expected an operand"},
               {{"--loss", "foo"}, "--loss:", "'foo' is none of"},
               {{"--choose", "best"}, "--choose:", "'best'"},
               {{"--max-complexity", "-1"}, "--max-complexity:", "no whole number from 1"},
               {{"--seconds"}, "--seconds", "needs a value"},
               {{"--held-out", "0.95"}, "--held-out:", "to 0.9"},
               {{"--device", "tpu"}, "--device:", "none of auto, cpu"},
               {{"--data", "table.csv"}, "unknown option", "'--data'"},
               {{"--help"}, "unknown option", "'--help'"},
               {{"--seed", "1", "add"}, "unexpected word", "'add'"}};
  for (const auto& [words, option, reason] : cases) {
    const Result<SearchOptions> parsed = parseSearchOptions(words);
    ASSERT_FALSE(parsed) << words[0];
    EXPECT_THAT(parsed.error().message, StartsWith(option));
    EXPECT_THAT(parsed.error().message, HasSubstr(reason));
    EXPECT_THAT(parsed.error().code, testing::AnyOf(Errc::kInvalid, Errc::kSyntax));
  }
}

}  // namespace
}  // namespace srjit::search

// Commands that show kernels: many expressions are divided into several kernels, and a too long expression is rejected.
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "compiler/kernels/assembler.h"
#include "compiler/lowering/code_weights.h"
#include "ir/ops.h"
#include "runtime/evaluation/code_groups.h"
#include "tests/tools/process.h"

namespace srjit {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// Expressions sin(x1), sin(x2), ..., from number `first`.
std::string sines(std::size_t first, std::size_t count) {
  std::string lines;
  for (std::size_t i = first; i < first + count; ++i) lines += fmt::format("sin(x{})\n", i + 1);
  return lines;
}

std::string sumOfSines(std::size_t count) {
  std::string text = "sin(x1)";
  for (std::size_t i = 1; i < count; ++i) text += fmt::format("+sin(x{})", i + 1);
  return text;
}

Outcome show(std::vector<std::string> words, const std::string& lines) {
  words.insert(words.end(), {"--exprs", "-"});
  return runCommand(words, "/", lines);
}

/// The bodies of the kernels that a module of LLVM's IR defines, in order, without the numbers of the module's
/// metadata. The module's other functions are not kernels: the host's code calls one per function of expressions.
std::vector<std::string> bodiesOf(const std::string& ir) {
  std::vector<std::string> bodies;
  for (std::size_t at = 0; (at = ir.find("\ndefine ", at)) != std::string::npos;) {
    const std::size_t begin = ir.find('\n', at + 1), end = ir.find("\n}\n", begin);
    const std::string head = ir.substr(at, begin - at);
    if (head.find("@srjit_rows_") != std::string::npos) {
      bodies.push_back(std::regex_replace(ir.substr(begin, end - begin), std::regex("![0-9]+"), "!"));
    }
    at = end;
  }
  return bodies;
}

const std::size_t kSineInstructions = codeWeight(Op::kSin, Precision::kF32, Math::kPrecise);
/// A kernel of several expressions has at most 1,600 instructions.
const std::size_t kSinesPerKernel = 1600 / kSineInstructions;
/// Sines of a sum that is too long for a kernel, and its length: per sine also a variable and an addition.
const std::size_t kTooManySines = (kMaxCodeLength + 1) / (kSineInstructions + 2) + 1;
const std::size_t kTooLong = kTooManySines * (kSineInstructions + 2) - 1;

TEST(KernelDivision, KernelsHaveTheirPartOfTheExpressionsInOrder) {
  const std::vector<std::string> command = {"llvm", "--unoptimized"};
  const std::size_t n = kSinesPerKernel, count = 2 * n + 8;
  const Outcome all = show(command, sines(0, count));
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_THAT(all.out, StartsWith(fmt::format("; srjit_rows_0: expressions 1 to {}\n"
                                              "; srjit_rows_1: expressions {} to {}\n"
                                              "; srjit_rows_2: expressions {} to {}\n",
                                              n, n + 1, 2 * n, 2 * n + 1, count)));
  const std::vector<std::string> bodies = bodiesOf(all.out);
  ASSERT_EQ(bodies.size(), 3u);
  for (std::size_t k = 0; k < 3; ++k) {
    const std::size_t first = k * n;
    const Outcome part = show(command, sines(first, std::min(n, count - first)));
    EXPECT_TRUE(bodiesOf(part.out) == std::vector{bodies[k]}) << k;
    EXPECT_THAT(part.out, Not(HasSubstr("expressions")));
  }
}

// On a processor, 16 expressions form one kernel.
TEST(KernelDivision, HostKernelsHaveTheirPartOfTheExpressionsInOrder) {
  const Outcome all = show({"llvm", "--host"}, sines(0, 40));
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_THAT(all.out, StartsWith("; srjit_rows_0: expressions 1 to 16\n; srjit_rows_1: expressions 17 to 32\n"));
  const std::vector<std::string> bodies = bodiesOf(all.out);
  ASSERT_EQ(bodies.size(), 3u);
  EXPECT_TRUE(bodiesOf(show({"llvm", "--host"}, sines(16, 16)).out) == std::vector{bodies[1]});
  const std::string assembly = show({"asm"}, sines(0, 40)).out;
  EXPECT_THAT(assembly, StartsWith("# srjit_rows_0: expressions 1 to 16\n"));
  EXPECT_THAT(assembly, AllOf(HasSubstr("\nsrjit_rows_0:"), HasSubstr("\nsrjit_rows_2:")));
}

// The size of the output is linear in the number of expressions.
TEST(KernelDivisionSlow, CodeGrowsWithTheNumberOfExpressions) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"llvm", "--unoptimized"}, std::vector<std::string>{"llvm", "--host"}}) {
    const auto sizes = [&](std::size_t kernels) {
      std::string lines;  // lines that are the same in every kernel
      for (std::size_t i = 0; i < kernels * kSinesPerKernel * 16; ++i) lines += fmt::format("sin(x{})\n", i % 16 + 1);
      std::vector<std::string> bodies = bodiesOf(show(command, lines).out);
      std::size_t all = 0, largest = 0;
      for (const std::string& body : bodies) {
        const auto length = static_cast<std::size_t>(std::ranges::count(body, '\n'));
        all += length;
        largest = std::max(largest, length);
      }
      return std::pair(all, largest);
    };
    const auto [small, small_kernel] = sizes(1);
    const auto [large, large_kernel] = sizes(4);
    ASSERT_GT(small, 0u);
    EXPECT_EQ(large, 4 * small);
    EXPECT_EQ(large_kernel, small_kernel);
  }
}

TEST(KernelDivision, BadExpressionsKeepTheirNumbers) {
  const std::size_t n = kSinesPerKernel;
  const Outcome outcome = show({"llvm", "--unoptimized"}, "sin(\n" + sines(0, n + 4));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, StartsWith(fmt::format("; srjit_rows_0: expressions 2 to {}\n"
                                                  "; srjit_rows_1: expressions {} to {}\n",
                                                  n + 1, n + 2, n + 5)));
}

// What the processor interprets: eight expressions a program.
TEST(KernelDivision, ProgramsOfTheProcessorHaveTheirPartToo) {
  const Outcome all = show({"bytecode", "--host"}, sines(0, 9));
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_THAT(all.out, StartsWith("# expressions 1 to 8\nroot0 = sin x1\nroot1 = sin x2\n"));
  EXPECT_THAT(all.out, testing::EndsWith("root7 = sin x8\n# expression 9\nroot0 = sin x9\n"));
}

TEST(KernelDivision, CubinListsTheExpressionsOfItsKernels) {
  if (assemblerName().empty()) GTEST_SKIP() << "no assembler";
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 70; ++i) lines += fmt::format("x{}\n", i);
  const Outcome outcome = runCommand({"cubin", "--exprs", "-", "-o", "k.cubin", "--json"}, scratch.path(""), lines);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json facts = json::parse(outcome.out);
  EXPECT_EQ(facts["kernels"].size(), 2u);
  EXPECT_EQ(facts["expressions"], json::parse(R"({"srjit_rows_0": [0, 63], "srjit_rows_1": [64, 69]})"));
}

TEST(KernelDivision, TooLongExpressionsAreRejected) {
  const Scratch scratch;
  const std::string text = sumOfSines(kTooManySines);
  for (std::vector<std::string> words :
       {std::vector<std::string>{"llvm", text}, {"ptx", text}, {"sass", text}, {"cubin", text, "-o", "k.cubin"}}) {
    const Outcome outcome = runCommand(words, scratch.path(""));
    EXPECT_EQ(outcome.status, 1) << words[0];
    EXPECT_EQ(outcome.out, "") << words[0];
    EXPECT_EQ(outcome.err,
              fmt::format("sr-jit: expression 1:1: the expression has {0} instructions, but a kernel has at most 4096; "
                          "--max-length {0} allows it\n",
                          kTooLong));
  }
  EXPECT_THAT(scratch.list(), IsEmpty());
  EXPECT_EQ(runCommand({"llvm", "--unoptimized", text, "--max-length", fmt::to_string(kTooLong)}, "/").status, 0);
  EXPECT_EQ(runCommand({"llvm", "--unoptimized", text, "--max-length", fmt::to_string(kTooLong - 1)}, "/").status, 1);
}

TEST(KernelDivision, TheHostCountsTokens) {
  std::string text = "x0";
  for (int i = 0; i < 2048; ++i) text += "*x0";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"asm", text}, std::vector<std::string>{"llvm", "--host", text}}) {
    const Outcome outcome = runCommand(words, "/");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, HasSubstr("has 4097 tokens, but a kernel has at most 4096; --max-length 4097 allows it"));
  }
  EXPECT_EQ(runCommand({"asm", text, "--max-length", "4097"}, "/").status, 0);
}

TEST(KernelDivision, OtherExpressionsAreStillShown) {
  const Outcome outcome = show({"llvm", "--unoptimized", "--keep-going"}, sumOfSines(kTooManySines) + "\nx1\n");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("standard input:1: "));
  EXPECT_EQ(bodiesOf(outcome.out).size(), 1u);
}

TEST(KernelDivision, LinearCommandsHaveNoLimit) {
  const std::string text = sumOfSines(500);
  EXPECT_EQ(runCommand({"bytecode", text}, "/").status, 0);
  EXPECT_EQ(runCommand({"passes", text}, "/").status, 0);
  EXPECT_EQ(runCommand({"ptx", "--kernel", "interpreter", text}, "/").status, 0);
  EXPECT_EQ(runCommand({"sass", "--tier", "direct", "--math", "fast", text}, "/").status, 0);
}

}  // namespace
}  // namespace srjit

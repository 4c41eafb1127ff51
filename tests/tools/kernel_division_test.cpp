// Commands that show kernels divide many expressions into several, whose code is that of their part.
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "compiler/lowering/code_weights.h"
#include "ir/ops.h"
#include "runtime/evaluation/ranges.h"
#include "tests/tools/process.h"

namespace srjit {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Expressions sin(x1), sin(x2), ..., from number `first`.
std::string sines(std::size_t first, std::size_t count) {
  std::string lines;
  for (std::size_t i = first; i < first + count; ++i) lines += fmt::format("sin(x{})\n", i + 1);
  return lines;
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

}  // namespace
}  // namespace srjit

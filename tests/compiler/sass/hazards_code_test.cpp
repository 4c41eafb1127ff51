// The rules of the hazard verifier are not too strict: the assembler's own code keeps them.
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include "compiler/kernels/assembler.h"
#include "compiler/nvptx/kernels.h"
#include "compiler/nvptx/options.h"
#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"
#include "ir/ops.h"
#include "passes/pass.h"
#include "tests/generators/population.h"
#include "tests/sass_verifier/hazards.h"

namespace srjit {
namespace {

/// PTX of rows kernels for an architecture that LLVM may not support.
std::string retargeted(std::string ptx, unsigned architecture) {
  const auto replaceLine = [&](std::string_view begin, const std::string& line) {
    const std::size_t at = ptx.find(begin);
    ptx.replace(at, ptx.find('\n', at) - at, line);
  };
  replaceLine(".version", ".version 8.7");
  replaceLine(".target", fmt::format(".target sm_{}", architecture));
  return ptx;
}

class AssembledCodeSlow : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(, AssembledCodeSlow,
                         ::testing::ValuesIn(directArchitectures().begin(), directArchitectures().end()),
                         [](const auto& made) { return fmt::format("sm_{}", made.param); });

/// Operators in one kernel, each with the one before as operand.
Dag everyOperator(std::size_t step, Precision precision) {
  Dag dag(precision);
  NodeId last = dag.variable(0);
  const std::vector<Op> ops = allOperators();
  for (std::size_t i = 0; i < ops.size(); i += step) {
    const Op op = ops[i];
    const NodeId operands[] = {last, dag.variable(static_cast<std::uint32_t>(i % 3)), dag.variable(2)};
    last = dag.apply(op, std::span(operands, static_cast<std::size_t>(arityOf(op))));
    dag.addRoot(last);
  }
  return dag;
}

struct Known {
  std::size_t instructions = 0, known = 0;  ///< those of the table
};

// Adds the assembler's code of a graph, which must keep the rules.
void checkRules(const Dag& dag, Math math, bool loss, unsigned architecture, Known& total) {
  DeviceOptions options;
  options.math = math;
  if (loss) options.loss = LossSpec{LossTerm::kSquared, true, true};
  const auto ptx = rowsPtx({&dag, 1}, options);
  ASSERT_TRUE(ptx.ok()) << ptx.error().message;
  const auto cubin = assemble(retargeted(*ptx, architecture), fmt::format("sm_{}", architecture));
  ASSERT_TRUE(cubin.ok()) << cubin.error().message;
  const auto contents = readCubin(cubin->code);
  ASSERT_TRUE(contents.ok()) << contents.error().message;
  for (const CubinKernel& kernel : contents->kernels) {
    const auto code = sass::decodeAll(kernel.body(), architecture);
    total.instructions += code.size();
    total.known += static_cast<std::size_t>(std::ranges::count_if(code, [](const auto& i) { return i.has_value(); }));
    if (!kernel.name.starts_with("srjit")) continue;  // a subroutine, which returns by an unknown instruction
    const auto found = sass::findHazards({code, architecture, kernel.registers, {}, true}, 5);
    for (const auto& [at, rule] : found) {
      ADD_FAILURE() << kernel.name << " " << at << ": " << rule << "\n" << sass::print(*code[at], true);
    }
  }
}

TEST_P(AssembledCodeSlow, KeepsTheRules) {
  if (assemblerName().empty()) GTEST_SKIP() << "no CUDA toolkit on this machine";
  Known total;
  for (const Math math : {Math::kFast, Math::kPrecise}) {
    const Dag dag = everyOperator(math == Math::kFast ? 2 : 5, Precision::kF32);
    for (const bool loss : {false, true}) checkRules(dag, math, loss, GetParam(), total);
  }
  EXPECT_GT(total.instructions, 3'000U);
  EXPECT_GT(total.known * 10, total.instructions * 6) << "most instructions are of the table";
}

// Double instructions signal barriers on some architectures, and have fixed delays on the others.
TEST_P(AssembledCodeSlow, OfDoublesKeepsTheRules) {
  if (assemblerName().empty()) GTEST_SKIP() << "no CUDA toolkit on this machine";
  Known total;
  for (const bool loss : {false, true}) {
    checkRules(everyOperator(9, Precision::kF64), Math::kPrecise, loss, GetParam(), total);
  }
  EXPECT_GT(total.instructions, 3'000U);
  EXPECT_GT(total.known * 10, total.instructions * 6) << "most instructions are of the table";
}

}  // namespace
}  // namespace srjit

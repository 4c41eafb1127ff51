// Every operator, precision, math mode and kind of kernel assembles, without a GPU.
#include "compiler/kernels/assembler.h"
#include "compiler/interpreter/kernel.h"
#include "compiler/lowering/source_map.h"
#include "compiler/nvptx/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/nvptx/options.h"
#include "ir/ops.h"
#include "passes/pass.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

using ::testing::HasSubstr;

#define SRJIT_NEEDS_ASSEMBLER()                                                                 \
  if (assemblerName().empty()) {                                                                \
    GTEST_SKIP() << "no CUDA toolkit on this machine: GPU code is generated but not assembled"; \
  }

struct Case {
  Precision precision;
  Math math;
};

std::string nameOfCase(const ::testing::TestParamInfo<Case>& info) {
  return std::string(nameOf(info.param.precision)) + "_" + nameOf(info.param.math);
}

class AssemblerSlow : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(, AssemblerSlow,
                         ::testing::Values(Case{Precision::kF32, Math::kStrict}, Case{Precision::kF32, Math::kPrecise},
                                           Case{Precision::kF32, Math::kFast}, Case{Precision::kF64, Math::kStrict},
                                           Case{Precision::kF64, Math::kPrecise}, Case{Precision::kF64, Math::kFast}),
                         nameOfCase);

/// One root per operator, applied to columns.
Dag callsOf(std::span<const Op> ops, Precision precision) {
  Dag dag(precision);
  const NodeId columns[] = {dag.variable(0), dag.variable(1), dag.variable(2)};
  for (const Op op : ops) {
    dag.addRoot(dag.apply(op, std::span(columns, static_cast<std::size_t>(arityOf(op)))));
  }
  return dag;
}

TEST_P(AssemblerSlow, RowsKernelsOfEveryOperator) {
  SRJIT_NEEDS_ASSEMBLER();
  const std::vector<Op> ops = allOperators();
  constexpr std::size_t kBatch = 8;
  for (std::size_t first = 0; first < ops.size(); first += kBatch) {
    const auto batch = std::span(ops).subspan(first, std::min(kBatch, ops.size() - first));
    DeviceOptions options;
    options.precision = GetParam().precision;
    options.math = GetParam().math;
    for (const bool loss : {false, true}) {
      if (loss) options.loss = LossSpec{LossTerm::kSquared, true, true};
      const Dag dag = callsOf(batch, options.precision);
      const auto ptx = rowsPtx({&dag, 1}, options);
      ASSERT_TRUE(ptx.ok()) << ptx.error().message;
      const auto cubin = assemble(*ptx, options.arch);
      ASSERT_TRUE(cubin.ok()) << infoOf(batch[0]).name << " ...: " << cubin.error().message;
      ASSERT_EQ(cubin->kernels.size(), 1u);
      EXPECT_EQ(cubin->kernels[0].name, rowsKernelName(0));
      EXPECT_GT(cubin->kernels[0].registers, 0u);
      EXPECT_EQ(cubin->kernels[0].stack_bytes, 0u) << infoOf(batch[0]).name;
      EXPECT_EQ(cubin->kernels[0].spill_store_bytes, 0u) << infoOf(batch[0]).name;
    }
  }
}

TEST_P(AssemblerSlow, InterpretersOfEveryOperatorStayInRegisters) {
  SRJIT_NEEDS_ASSEMBLER();
  for (const bool loss : {false, true}) {
    DeviceOptions options;
    options.precision = GetParam().precision;
    options.math = GetParam().math;
    options.rows_per_thread = loss == (options.precision == Precision::kF32) ? 8 : 4;
    if (loss) options.loss = LossSpec{LossTerm::kAbsolute, true, true};
    const HandlerTable table({options.precision, options.math, allOperators(), options.rows_per_thread, 5});
    const auto ptx = interpreterPtx(table, options);
    ASSERT_TRUE(ptx.ok()) << ptx.error().message;
    const auto cubin = assemble(*ptx, options.arch);
    ASSERT_TRUE(cubin.ok()) << cubin.error().message;
    ASSERT_EQ(cubin->kernels.size(), 1u);
    EXPECT_EQ(cubin->kernels[0].name, kInterpreterKernel);
    EXPECT_EQ(cubin->kernels[0].stack_bytes, 0u);
    EXPECT_EQ(cubin->kernels[0].spill_store_bytes, 0u);
    EXPECT_EQ(cubin->kernels[0].spill_load_bytes, 0u);
  }
}

TEST(Assembler, AssemblesForEveryArchitecture) {
  SRJIT_NEEDS_ASSEMBLER();
  for (const std::string_view arch : ptxArchitectures()) {
    DeviceOptions options;
    options.arch = arch;
    const std::vector<Op> ops = {Op::kMin, Op::kSin, Op::kDiv, Op::kRound};
    const Dag dag = callsOf(ops, options.precision);
    const auto rows = assemble(*rowsPtx({&dag, 1}, options), arch);
    EXPECT_TRUE(rows.ok()) << rows.error().message;
    const HandlerTable table({options.precision, options.math, ops, options.rows_per_thread, 4});
    const auto interpreter = assemble(*interpreterPtx(table, options), arch);
    EXPECT_TRUE(interpreter.ok()) << interpreter.error().message;
    options.strided_columns = true;
    const auto strided = assemble(*interpreterPtx(table, options), arch);
    EXPECT_TRUE(strided.ok()) << strided.error().message;
    const auto totals = assemble(*totalsPtx(options), arch);
    EXPECT_TRUE(totals.ok()) << totals.error().message;
  }
}

TEST(Assembler, AssemblesSeveralKernelsOfOneModule) {
  SRJIT_NEEDS_ASSEMBLER();
  const std::vector<Op> first = {Op::kAdd}, second = {Op::kMul, Op::kSin};
  const std::vector<Dag> dags = {callsOf(first, Precision::kF32), callsOf(second, Precision::kF32)};
  const auto cubin = assemble(*rowsPtx(dags, {}), "sm_90");
  ASSERT_TRUE(cubin.ok()) << cubin.error().message;
  ASSERT_EQ(cubin->kernels.size(), 2U);
  const std::vector<std::string> names = {cubin->kernels[0].name, cubin->kernels[1].name};
  EXPECT_THAT(names, ::testing::UnorderedElementsAre(rowsKernelName(0), rowsKernelName(1)));
}

TEST(Assembler, ReportsTheAssemblersMessage) {
  SRJIT_NEEDS_ASSEMBLER();
  const auto refused = assemble(".version 7.8\n.target sm_90\n.address_size 64\nnonsense\n", "sm_90");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kCompile);
  EXPECT_THAT(refused.error().message, HasSubstr("cannot assemble for sm_90"));
  EXPECT_THAT(refused.error().message, HasSubstr("nonsense"));
}

TEST(Assembler, DisassemblesItsOwnCubins) {
  SRJIT_NEEDS_ASSEMBLER();
  if (findToolkit().nvdisasm.empty()) GTEST_SKIP() << "no nvdisasm on this machine";
  const std::vector<Op> ops = {Op::kAdd};
  const Dag dag = callsOf(ops, Precision::kF32);
  const auto cubin = assemble(*rowsPtx({&dag, 1}, {}), "sm_90");
  ASSERT_TRUE(cubin.ok());
  const auto text = disassemble(cubin->code);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_THAT(*text, HasSubstr("FADD"));
}

}  // namespace
}  // namespace srjit

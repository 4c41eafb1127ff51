// The text of PTX: required and forbidden instructions. Assembling is tested in
// tests/compiler/kernels/assembler_test.cpp.
#include "compiler/nvptx/kernels.h"
#include "compiler/lowering/source_map.h"
#include "compiler/nvptx/options.h"

#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/SourceMgr.h>

#include "compiler/lowering/llvm_modules.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Dag prepared(std::string_view text, Precision precision, Math math) {
  return Pipeline::standard(math).run(graphOf({text}, precision), {math});
}

std::string ptxOf(std::string_view text, const DeviceOptions& options) {
  const Dag dag = prepared(text, options.precision, options.math);
  const auto ptx = rowsPtx({&dag, 1}, options);
  return ptx.ok() ? *ptx : "error: " + ptx.error().message;
}

TEST(RowsKernel, HasNoImplicitFusion) {
  DeviceOptions options;
  options.math = Math::kStrict;
  const std::string strict = ptxOf("x0*x1+x2*x3-x4", options);
  EXPECT_THAT(strict, HasSubstr("mul.rn.f32"));
  EXPECT_THAT(strict, HasSubstr("add.rn.f32"));
  EXPECT_THAT(strict, HasSubstr("sub.rn.f32"));
  EXPECT_THAT(strict, Not(HasSubstr("fma")));
  EXPECT_THAT(strict, Not(ContainsRegex("(add|sub|mul)\\.f32")));
  options.math = Math::kPrecise;
  EXPECT_THAT(ptxOf("x0*x1+x2", options), HasSubstr("fma.rn.f32"));
}

TEST(RowsKernel, StaysInItsPrecision) {
  DeviceOptions options;
  for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
    options.math = math;
    options.precision = Precision::kF32;
    EXPECT_THAT(ptxOf("aq(x0,x1)+loose_log(x2)*logistic(x3)/0.1", options), Not(HasSubstr(".f64")));
    options.precision = Precision::kF64;
    EXPECT_THAT(ptxOf("x0*0.1+abs(x1)/x2", options), Not(HasSubstr(".f32")));
  }
}

TEST(RowsKernel, FastUsesApproximateInstructions) {
  DeviceOptions options;
  options.math = Math::kFast;
  const std::string ptx = ptxOf("exp(x0)/log(x1)+sqrt(x2)*tanh(x3)+inv(x4)", options);
  for (const char* const instruction : {"ex2.approx.ftz.f32", "lg2.approx.ftz.f32", "div.approx.ftz.f32",
                                        "sqrt.approx.ftz.f32", "tanh.approx.f32", "rcp.approx.ftz.f32"}) {
    EXPECT_THAT(ptx, HasSubstr(instruction));
  }
  options.math = Math::kPrecise;
  EXPECT_THAT(ptxOf("x0/x1+sqrt(x2)", options), HasSubstr("div.rn.f32"));
  EXPECT_THAT(ptxOf("x0/x1+sqrt(x2)", options), HasSubstr("sqrt.rn.f32"));
}

TEST(RowsKernel, PreventsPtxasFromMergingReciprocals) {
  DeviceOptions options;
  options.math = Math::kFast;
  const auto raw = [&](std::string_view text) {
    const Dag dag = graphOf({text}, Precision::kF32);
    return *rowsPtx({&dag, 1}, options);
  };
  for (const char* const text :
       {"inv(inv(x0))", "inv(exp2(x0))", "x1/exp(x0)", "inv(abs(exp(x0)))", "inv(exp2(x0)*1)", "inv(logistic(x0))"}) {
    EXPECT_THAT(raw(text), HasSubstr("selp.f32")) << text;
  }
  EXPECT_THAT(raw("inv(x0)+exp(x1)"), Not(HasSubstr("selp.f32")));
}

TEST(RowsKernel, LoadsAndStoresSixteenBytes) {
  DeviceOptions options;
  EXPECT_THAT(ptxOf("x0+x1", options), HasSubstr("ld.global.nc.v4.f32"));
  EXPECT_THAT(ptxOf("x0+x1", options), HasSubstr("st.global.v4.f32"));
  options.precision = Precision::kF64;
  EXPECT_THAT(ptxOf("x0+x1", options), HasSubstr("ld.global.nc.v2.f64"));
  EXPECT_THAT(ptxOf("x0+x1", options), HasSubstr("st.global.v2.f64"));
}

TEST(RowsKernel, ReadsStridedColumnsOneRowAtATime) {
  DeviceOptions options;
  options.strided_columns = true;
  const std::string ptx = ptxOf("x0+x1", options);
  EXPECT_THAT(ptx, HasSubstr("ld.global.nc.f32"));
  EXPECT_THAT(ptx, Not(HasSubstr("ld.global.nc.v4")));
  EXPECT_THAT(ptx, HasSubstr("st.global.v4.f32")) << "outputs are still packed";
}

TEST(RowsKernel, ModulesHaveOneKernelPerGraph) {
  const std::vector<Dag> dags = {graphOf({"x0+x1"}, Precision::kF32), graphOf({"x0*x1", "x0-x1"}, Precision::kF32)};
  const auto ptx = rowsPtx(dags, {});
  ASSERT_TRUE(ptx.ok()) << ptx.error().message;
  EXPECT_THAT(*ptx, HasSubstr(".entry srjit_rows_0("));
  EXPECT_THAT(*ptx, HasSubstr(".entry srjit_rows_1("));
  EXPECT_THAT(*ptx, Not(HasSubstr("srjit_rows_2")));
  EXPECT_EQ(rowsKernelName(1), "srjit_rows_1");
}

// A sum over 32 lanes takes 5 exchanges, four sums together take 2 + 1 + 1 + 1 + 1.
TEST(RowsKernel, LanesShareTheWorkOfSeveralSums) {
  const auto countsOf = [](const LossSpec& spec) {
    DeviceOptions options;
    options.loss = spec;
    const std::string ptx = ptxOf("x0*x1", options);
    const auto countOf = [&](const char* instruction) {
      const std::regex found(instruction);
      return std::distance(std::sregex_iterator(ptx.begin(), ptx.end(), found), std::sregex_iterator());
    };
    return std::pair(countOf("st\\.global\\.f32"), countOf("shfl\\.sync"));
  };
  EXPECT_EQ(countsOf({LossTerm::kSquared, false, false}), std::pair(1L, 5L));
  EXPECT_EQ(countsOf({LossTerm::kSquared, true, false}), std::pair(1L, 5L));
  EXPECT_EQ(countsOf({LossTerm::kSquared, false, true}), std::pair(2L, 10L)) << "and the count";
  EXPECT_EQ(countsOf({LossTerm::kAbsolute, true, true}), std::pair(2L, 10L));
  EXPECT_EQ(countsOf({LossTerm::kMoments, true, false}), std::pair(1L, 6L));
  EXPECT_EQ(countsOf({LossTerm::kMoments, true, true}), std::pair(2L, 14L)) << "of eight sums: 4 + 2 + 1 + 1 + 1";
}

TEST(RowsKernel, NumbersAreNotInTheCode) {
  const DeviceOptions options;
  EXPECT_EQ(ptxOf("x0*2.5+1.5", options), ptxOf("x0*3.5+0.25", options));
}

TEST(RowsKernel, EveryArchitectureIsNamedInItsPtx) {
  for (const std::string_view arch : ptxArchitectures()) {
    DeviceOptions options;
    options.arch = arch;
    EXPECT_THAT(ptxOf("x0+x1", options), HasSubstr(".target " + std::string(arch)));
  }
}

TEST(RowsKernel, RefusesOptionsOutOfRange) {
  DeviceOptions options;
  options.arch = "sm_42";
  EXPECT_EQ(ptxOf("x0", options),
            "error: unknown architecture 'sm_42': expected one of sm_75, sm_80, sm_86, sm_87, sm_89, sm_90");
  options.arch = "sm_90";
  options.rows_per_thread = 3;
  EXPECT_EQ(ptxOf("x0", options), "error: 3 rows per thread: expected 4, 8 or 16");
}

TEST(RowsKernel, FunctionsAreInlined) {
  DeviceOptions options;
  const std::string ptx = ptxOf("sin(x0)+erf(x1)", options);
  EXPECT_THAT(ptx, Not(HasSubstr("call")));
  EXPECT_THAT(ptx, Not(HasSubstr(".local")));
}

TEST(TotalsKernel, AddsInDouble) {
  DeviceOptions options;
  const auto single = totalsPtx(options);
  ASSERT_TRUE(single.ok()) << single.error().message;
  EXPECT_THAT(*single, HasSubstr(".entry srjit_totals("));
  EXPECT_THAT(*single, HasSubstr("ld.global.nc.f32"));
  EXPECT_THAT(*single, HasSubstr("add.rn.f64"));
  EXPECT_THAT(*single, Not(HasSubstr("add.rn.f32")));
  options.precision = Precision::kF64;
  EXPECT_THAT(*totalsPtx(options), HasSubstr("ld.global.nc.f64"));
}

}  // namespace
}  // namespace srjit

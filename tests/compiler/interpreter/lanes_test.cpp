// The kernels of compiler/interpreter/lanes/arguments.h as code.
#include <sstream>

#include <gmock/gmock.h>

#include "compiler/interpreter/kernel.h"
#include "compiler/interpreter/lanes/arguments.h"
#include "compiler/kernels/assembler.h"
#include "compiler/nvptx/module.h"

namespace srjit {
namespace {

using testing::HasSubstr;
using testing::Not;

Result<std::string> lanesPtxFor(std::string_view arch) {
  DeviceOptions options;
  options.arch = arch;
  return lanesPtx(options);
}

TEST(LanesPtx, HasBothKernelsAndNeedsNothingElse) {
  if (lanesBitcode().empty()) GTEST_SKIP() << "no clang++-19 where this was built";
  for (const std::string arch : {"sm_75", "sm_90"}) {
    const Result<std::string> ptx = lanesPtxFor(arch);
    ASSERT_TRUE(ptx.ok()) << ptx.error().message;
    EXPECT_THAT(*ptx, HasSubstr(".target " + arch));
    EXPECT_THAT(*ptx, HasSubstr(std::string(".visible .entry ") + kTreesKernel + "("));
    EXPECT_THAT(*ptx, HasSubstr(std::string(".visible .entry ") + kLossesKernel + "("));
    EXPECT_THAT(*ptx, HasSubstr(".extern .shared")) << "the words of lanes";
    EXPECT_THAT(*ptx, Not(HasSubstr(".extern .func"))) << arch << ": a function that no one defines";
    EXPECT_THAT(*ptx, HasSubstr("bar.sync"));
    if (arch != "sm_90" || assemblerName().empty()) continue;
    const Result<KernelImage> cubin = assemble(*ptx, "sm_90");
    ASSERT_TRUE(cubin.ok()) << cubin.error().message;
    for (const KernelFacts& kernel : cubin->kernels) {
      EXPECT_LE(kernel.spill_store_bytes, 8u) << kernel.name << ": spills under kTreesRegisters";
      EXPECT_LE(kernel.registers, kernel.name == kTreesKernel ? kTreesRegisters : 64) << kernel.name;
    }
  }
}

TEST(LanesPtx, RefusesAnUnknownArchitecture) {
  if (lanesBitcode().empty()) GTEST_SKIP() << "no clang++-19 where this was built";
  const Result<std::string> ptx = lanesPtxFor("sm_1");
  ASSERT_FALSE(ptx.ok());
  EXPECT_EQ(ptx.error().code, Errc::kInvalid);
  EXPECT_THAT(ptx.error().message, HasSubstr("unknown architecture 'sm_1'"));
}

/// Without the numbers of calls, which LLVM counts over all modules of a process.
std::string withoutCallNumbers(const std::string& ptx) {
  std::string kept;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("callseq") == std::string::npos) kept += line + "\n";
  }
  return kept;
}

TEST(LanesPtx, DependsOnTheArchitectureAlone) {
  if (lanesBitcode().empty()) GTEST_SKIP() << "no clang++-19 where this was built";
  DeviceOptions options;
  options.precision = Precision::kF64;
  options.math = Math::kFast;
  EXPECT_TRUE(withoutCallNumbers(lanesPtx(options).value()) ==
              withoutCallNumbers(lanesPtxFor(DeviceOptions().arch).value()));
}

TEST(DeviceModuleBitcode, IsCheckedWhenItIsRead) {
  for (const std::string_view bytes : {"", "this is no bitcode", "BC\xc0\xde and no more"}) {
    const Result<std::string> ptx = ptxOf([&]() -> Result<DeviceModule> {
      Result<DeviceModule> module = DeviceModule::create({});
      if (Status read = module->readBitcode(bytes, {}); !read) return std::move(read).error();
      return module;
    });
    ASSERT_FALSE(ptx.ok()) << bytes;
    EXPECT_EQ(ptx.error().code, Errc::kCompile);
    EXPECT_THAT(ptx.error().message, testing::StartsWith("unreadable bitcode: "));
  }
}

}  // namespace
}  // namespace srjit

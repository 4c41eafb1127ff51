// The kernels of compiler/interpreter/lanes/arguments.h as code.
#include <gmock/gmock.h>

#include "compiler/interpreter/kernel.h"
#include "compiler/interpreter/lanes/arguments.h"
#include "compiler/kernels/assembler.h"

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
      EXPECT_EQ(kernel.spill_store_bytes, 0u) << kernel.name;
      EXPECT_LE(kernel.registers, 128u) << kernel.name << ": a block has 256 threads";
    }
  }
}

TEST(LanesPtx, RefusesAnUnknownArchitecture) {
  if (lanesBitcode().empty()) GTEST_SKIP() << "no clang++-19 where this was built";
  const Result<std::string> ptx = lanesPtxFor("sm_1");
  ASSERT_FALSE(ptx.ok());
  EXPECT_THAT(ptx.error().message, HasSubstr("unknown architecture 'sm_1'"));
}

}  // namespace
}  // namespace srjit

// Code that names the lines of its source has the instructions of code that does not.
#include <algorithm>
#include <string>

#include <gmock/gmock.h>

#include "compiler/kernels/assembler.h"
#include "compiler/kernels/image_maker.h"
#include "compiler/nvptx/kernels.h"
#include "compiler/sass/cubin.h"
#include "ir/ops.h"

namespace srjit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string bytesIn(const KernelImage& cubin) {
  return {reinterpret_cast<const char*>(cubin.code.data()), cubin.code.size()};
}

TEST(Lines, ChangeNoInstruction) {
  if (assemblerName().empty()) GTEST_SKIP() << "no CUDA toolkit on this machine";
  Dag dag(Precision::kF32);
  const NodeId operands[] = {dag.variable(0), dag.variable(1)};
  const NodeId quotient = dag.apply(Op::kDiv, operands);
  dag.addRoot(dag.apply(Op::kSin, {&quotient, 1}));
  const GraphListing listing = listGraphs({&dag, 1}, "/somewhere/graphs.txt");
  const KernelImage plain = assemble(rowsPtx({&dag, 1}, {}).value(), "sm_90").value();
  const std::string ptx = rowsPtx({&dag, 1}, {}, listing.sources).value();
  const KernelImage with_lines = assemble(ptx, "sm_90", true).value();
  EXPECT_THAT(bytesIn(with_lines), HasSubstr(".debug_line"));
  EXPECT_THAT(bytesIn(with_lines), HasSubstr("graphs.txt"));
  EXPECT_THAT(bytesIn(plain), Not(HasSubstr(".debug_line")));
  const CubinContents expected = readCubin(plain.code).value(), got = readCubin(with_lines.code).value();
  ASSERT_EQ(got.kernels.size(), expected.kernels.size());  // a subroutine counts
  for (const CubinKernel& kernel : expected.kernels) {
    const auto same = std::ranges::find(got.kernels, kernel.name, &CubinKernel::name);
    ASSERT_NE(same, got.kernels.end()) << kernel.name;
    EXPECT_TRUE(std::ranges::equal(same->code, kernel.code)) << kernel.name;
  }
}

}  // namespace
}  // namespace srjit

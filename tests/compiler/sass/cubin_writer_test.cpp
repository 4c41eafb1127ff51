// Images of writeCubin() against those of the assembler.
#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include "compiler/kernels/assembler.h"

namespace srjit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string twoKernels(unsigned architecture) {
  return fmt::format(R"(.version 8.7
.target sm_{}
.address_size 64
.visible .entry first(.param .u64 X, .param .u32 N, .param .u64 Y)
.maxntid 256,1,1
{{.reg .b32 t,m; .reg .f32 a; .reg .pred p; .reg .b64 x,o; ld.param.u64 x,[X]; ld.param.u32 m,[N];
mov.u32 t,%tid.x; setp.ge.u32 p,t,m; @p bra E; mul.wide.u32 o,t,4; add.u64 x,x,o; ld.global.nc.f32 a,[x];
add.f32 a,a,a; st.global.f32 [x],a; E: ret;}}
.visible .entry second(.param .u64 X)
{{.reg .b64 x; .reg .f32 a; ld.param.u64 x,[X]; ld.global.f32 a,[x]; mul.f32 a,a,a; st.global.f32 [x+4],a; ret;}}
)",
                     architecture);
}

class CubinWriter : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(, CubinWriter, ::testing::ValuesIn(directArchitectures().begin(), directArchitectures().end()),
                         [](const auto& made) { return fmt::format("sm_{}", made.param); });

KernelDescription described(const CubinKernel& kernel) {
  KernelDescription description;
  description.name = kernel.name;
  description.code = {kernel.body().first(kernel.body().size() / 2), kernel.body().subspan(kernel.body().size() / 2)};
  description.registers = kernel.registers;
  description.parameter_bytes = kernel.parameter_bytes;
  description.max_threads = kernel.max_threads;
  description.exits = kernel.exits;
  return description;
}

TEST_P(CubinWriter, RewritesAssembledKernelsUnchanged) {
  if (assemblerName().empty()) GTEST_SKIP() << "no CUDA toolkit on this machine";
  const auto cubin = assemble(twoKernels(GetParam()), fmt::format("sm_{}", GetParam()));
  ASSERT_TRUE(cubin.ok()) << cubin.error().message;
  const auto original = readCubin(cubin->code);
  ASSERT_TRUE(original.ok()) << original.error().message;
  EXPECT_EQ(original->architecture, GetParam());
  ASSERT_EQ(original->kernels.size(), 2U);
  std::vector<KernelDescription> kernels;
  for (const CubinKernel& kernel : original->kernels) kernels.push_back(described(kernel));
  const std::vector<std::byte> image = writeCubin(kernels, GetParam());
  // What memory held before does not matter.
  std::vector<std::byte> used(2 * image.size(), std::byte{0xa5});
  writeCubin(kernels, GetParam(), used);
  EXPECT_EQ(used, image);
  const auto written = readCubin(image);
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(written->architecture, GetParam());
  ASSERT_EQ(written->kernels.size(), 2U);
  for (std::size_t k = 0; k < 2; ++k) {
    const CubinKernel &theirs = original->kernels[k], &ours = written->kernels[k];
    SCOPED_TRACE(theirs.name);
    EXPECT_EQ(ours.name, theirs.name);
    EXPECT_EQ(ours.code, theirs.code);
    EXPECT_EQ(ours.registers, theirs.registers);
    EXPECT_EQ(ours.parameter_bytes, theirs.parameter_bytes);
    EXPECT_EQ(ours.parameter_base, theirs.parameter_base);
    EXPECT_EQ(ours.parameter_base, architectureOf(GetParam()).parameters);
    EXPECT_TRUE(std::ranges::equal(ours.constants, theirs.constants));
    EXPECT_EQ(ours.max_threads, theirs.max_threads);
    EXPECT_EQ(ours.exits, theirs.exits);
    EXPECT_FALSE(ours.exits.empty());
    EXPECT_EQ(ours.code.size() * sizeof(sass::Word) % 128, 0U);
  }
  const auto first = std::ranges::find(written->kernels, "first", &CubinKernel::name);
  ASSERT_NE(first, written->kernels.end());
  EXPECT_THAT(first->parameter_bytes, ElementsAre(8, 4, 8));
  EXPECT_THAT(first->max_threads, ElementsAre(256U, 1U, 1U));
}

TEST_P(CubinWriter, DisassemblersAcceptTheImage) {
  if (findToolkit().nvdisasm.empty()) GTEST_SKIP() << "no nvdisasm on this machine";
  sass::Instruction exit;
  exit.form = sass::Form::kExit;
  exit.control.stall = 5;
  const std::vector<sass::Word> code = {sass::encode(exit, GetParam())};
  KernelDescription kernel;
  kernel.name = "srjit_direct";
  kernel.code = {code};
  kernel.registers = 64;
  kernel.parameter_bytes = {8, 8, 4};
  kernel.exits = {0};
  const auto text = disassemble(writeCubin({&kernel, 1}, GetParam()));
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_THAT(*text, HasSubstr("srjit_direct"));
  EXPECT_THAT(*text, HasSubstr("EXIT"));
}

// Identity, type, machine and version, then flags and sizes of records: each byte as ptxas of CUDA 13.0 writes it.
TEST(CubinHeader, IsThatOfCuda13) {
  const sass::Word word = sass::encode({}, 90);
  KernelDescription kernel;
  kernel.name = "k";
  kernel.code = {{&word, 1}};
  const std::vector<std::byte> image = writeCubin({&kernel, 1}, 90);
  constexpr std::uint8_t kIdentity[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x41, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 190, 0, 1};
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(kIdentity)), std::span(image).first(sizeof kIdentity)));
  constexpr std::size_t kFlagsAt = 48;
  constexpr std::uint8_t kFlags[] = {4, 90, 0, 6, 64, 0, 56, 0};
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(kFlags)), std::span(image).subspan(kFlagsAt, sizeof kFlags)));
}

TEST(CubinReader, RejectsTruncatedAndForeignImages) {
  const sass::Word word = sass::encode({}, 90);
  KernelDescription kernel;
  kernel.name = "k";
  kernel.code = {{&word, 1}};
  kernel.registers = 16;
  const std::vector<std::byte> image = writeCubin({&kernel, 1}, 90);
  ASSERT_TRUE(readCubin(image).ok());
  for (std::size_t size = 0; size < image.size(); size += 7) {
    const auto read = readCubin(std::span(image).first(size));
    if (!read.ok()) {
      EXPECT_THAT(read.error().message, HasSubstr("not a cubin"));
    }
  }
  EXPECT_FALSE(readCubin(std::span(image).first(200)).ok());
  EXPECT_FALSE(readCubin(std::vector<std::byte>(500)).ok());
}

}  // namespace
}  // namespace srjit

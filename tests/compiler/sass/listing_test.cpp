#include "compiler/sass/cubin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace srjit::sass {
namespace {

using ::testing::HasSubstr;

TEST(SassListing, LabelsAndFacts) {
  Instruction add, back, exit;
  add.form = Form::kFAddRR;
  add.destination = 5;
  add.sources = {0, 7, kZero};
  back.form = Form::kBra;
  back.guard = kNot;
  back.immediate = 0U - 32U;
  back.control.stall = 5;
  exit.form = Form::kExit;
  std::vector<Word> words;
  for (const Instruction& i : {add, add, back, exit}) words.push_back(encode(i, 90));
  words.push_back({0x123, 0});
  KernelDescription kernel;
  kernel.name = "k";
  kernel.code = {words};
  kernel.registers = 24;
  kernel.parameter_bytes = {8, 4};
  kernel.exits = {48};
  const auto image = writeCubin({&kernel, 1}, 90);
  const auto text = listing(image);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_THAT(*text, HasSubstr("k: sm_90, 24 registers, 12 bytes of parameters at c[0x0][0x210], 16 instructions\n"
                               "  0x0000  FADD R5, R0, R7 "));
  EXPECT_THAT(*text, HasSubstr(".L0:\n  0x0010  FADD R5, R0, R7"));
  EXPECT_THAT(*text, HasSubstr("0x0020  @!P0 BRA .L0   "));
  EXPECT_THAT(*text, HasSubstr("stall 5\n  0x0030  EXIT"));
  EXPECT_THAT(*text, HasSubstr("0x0040  0x0000000000000123 0x0000000000000000"));
  const auto contents = readCubin(image);
  const std::uint32_t target[] = {3};
  const std::string plain = listing(contents->kernels[0], 90, target, false);
  EXPECT_THAT(plain, HasSubstr("  0x0020  @!P0 BRA .L0\n.T0:\n  0x0030  EXIT\n"));
  EXPECT_FALSE(listing(std::vector<std::byte>(100)).ok());
}

}  // namespace
}  // namespace srjit::sass

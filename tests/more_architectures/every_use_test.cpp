// A new architecture needs only a row of architectures.def: here a second table adds one, and whatever depends on an
// architecture must know it. The source that reads the table is compiled only for this program (CMakeLists.txt), as if
// architectures.def had the row.
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "compiler/direct/emitter.h"
#include "compiler/nvptx/kernels.h"
#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"
#include "passes/pass.h"
#include "tests/gpu_model/direct_machine.h"

namespace srjit {
namespace {

constexpr unsigned kNew = 121;

TEST(MoreArchitectures, HaveTheFactsOfTheirRow) {
  EXPECT_EQ(allArchitectures().back().number, kNew);
  EXPECT_EQ(architectureOf(kNew).name, "sm_121");
  EXPECT_EQ(architectureOf("sm_121").number, kNew);
  EXPECT_EQ(directArchitectures().back(), kNew);
  EXPECT_EQ(sass::timingOf(sass::Form::kDAddRR, kNew), sass::Timing::kFixed);
  EXPECT_EQ(sass::timingOf(sass::Form::kDAddRR, 120), sass::Timing::kVariable) << "which 121 had without a row";
}

// The row says that LLVM writes no PTX for it.
TEST(MoreArchitectures, PtxIsRefused) {
  const Dag dag = Dag::fromExpressions(std::vector{build({Token::variable(0)})}, Precision::kF32);
  EXPECT_EQ(ptxArchitectures().back(), "sm_90");
  const auto refused = rowsPtx({&dag, 1}, {.arch = "sm_121", .loss = {}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kInvalid);
  EXPECT_THAT(refused.error().message, testing::StartsWith("unknown architecture 'sm_121': expected one of sm_75, "));
}

/// The machine code of x0 * x1 + 2 as a cubin.
std::vector<std::byte> imageFor(unsigned architecture, Precision precision) {
  const std::vector expressions = {build({Token::variable(0), Token::variable(1), Token::operation(Op::kMul),
                                          Token::constant(2), Token::operation(Op::kAdd)})};
  const DirectOptions options{.architecture = architecture, .precision = precision, .math = Math::kStrict};
  const Dag dag = Pipeline::standard(options.math).run(Dag::fromExpressions(expressions, precision), {options.math});
  const DirectPart part = DirectEmitter::create(options).value().emit(dag);
  EXPECT_TRUE(part.refused.empty());
  const DirectImage image = joinDirect({&part, 1}, options).value();
  const KernelDescription kernel = directKernel(image);
  return writeCubin({&kernel, 1}, architecture);
}

/// The listing of an image, which names `architecture`.
std::string listingOf(const std::vector<std::byte>& image, unsigned architecture) {
  const CubinContents contents = readCubin(image).value();
  EXPECT_EQ(contents.architecture, architecture);
  std::string listing;
  for (const sass::Word& word : contents.kernels.at(0).body()) {
    const auto instruction = sass::decode(word, contents.architecture);
    EXPECT_TRUE(instruction);
    if (instruction) listing += sass::print(*instruction, true) + "\n";
  }
  return listing;
}

TEST(MoreArchitectures, ImagesNameThemAndHaveListings) {
  const std::vector<std::byte> image = imageFor(kNew, Precision::kF32);
  constexpr std::size_t kFlagsAt = 48;
  EXPECT_EQ(image.at(kFlagsAt), std::byte{2});
  EXPECT_EQ(image.at(kFlagsAt + 1), std::byte{kNew});
  const std::string listing = listingOf(image, kNew);
  EXPECT_THAT(listing, testing::AllOf(testing::HasSubstr("FMUL"), testing::HasSubstr("EXIT")));
  EXPECT_EQ(listing, listingOf(imageFor(120, Precision::kF32), 120)) << "floats have the same latencies";
  EXPECT_NE(listingOf(imageFor(kNew, Precision::kF64), kNew), listingOf(imageFor(120, Precision::kF64), 120))
      << "doubles need no barriers";
}

// Totals are added by a kernel of LLVM's, whose PTX the driver translates: the device is newer than sm_90.
TEST(MoreArchitectures, ModelsOfAGpuRunTheirCode) {
  for (const Precision precision : kPrecisions) {
    DirectMachine machine({.devices = {FakeDevice{.capability = kNew}}}, "proved", precision);
    machine.images->makes_ptx = true;
    const Engine gpu = machine.engine(machine.strict());
    const Engine cpu = cpuEngine(precision);
    const Workload w = directWorkload(61, 20, 300, true, precision);
    const Dataset data = gpu.upload(w.view()).value();
    const Program program = gpu.compile(w.expressions, {.tier = Tier::kDirect});
    expectSameBits(predict(gpu, program, data, w.parameters), predict(cpu, w, Tier::kInterpret), 300, "predictions");
    expectSameLosses(gpu.loss(program, data, w.parameters).value(), lossesOf(cpu, w, Tier::kInterpret, {}), "losses");
    expectDirect(program, w.expressions.size());
    EXPECT_EQ(machine.launches(), 2U);
  }
}

}  // namespace
}  // namespace srjit

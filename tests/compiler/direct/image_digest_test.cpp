// The bytes of whole images of direct code, for a fixed population: a change of them is a change of every program's
// machine code.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/BLAKE3.h>

#include "compiler/direct/emitter.h"
#include "compiler/sass/cubin_writer.h"
#include "compiler/target/architecture.h"
#include "passes/pass.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

// Operators whose rows of ir/ops.def call one function. A compiler may evaluate the arguments of several calls in any
// order, and the instructions of other operators, as sign and aq, are in that order.
constexpr Op kOperators[] = {Op::kAdd, Op::kSub,    Op::kMul,  Op::kDiv, Op::kNeg, Op::kAbs, Op::kMin,
                             Op::kMax, Op::kSquare, Op::kSqrt, Op::kInv, Op::kExp, Op::kLog, Op::kPow};

struct ImageForm {
  const char* name;
  Precision precision;
  Math math;
  std::optional<LossSpec> loss;
  bool subroutines = false;
};

const ImageForm kImageForms[] = {
    {"f32 precise predictions", Precision::kF32, Math::kPrecise, {}},
    {"f32 fast loss", Precision::kF32, Math::kFast, LossSpec{.weighted = true, .skip_invalid = true}},
    {"f32 precise loss, subroutines", Precision::kF32, Math::kPrecise, LossSpec{}, true},
    {"f64 fast loss", Precision::kF64, Math::kFast, LossSpec{.term = LossTerm::kAbsolute}},
};

/// Digest of the image by the architecture and the form.
using Digests = std::map<std::tuple<unsigned, std::string>, std::string>;

const Digests kDigests = {
    {{80, "f32 fast loss"}, "0ffd28d2dba1aba9dda3a8baa6cfdd3b"},
    {{80, "f32 precise loss, subroutines"}, "2728d61ea6b561b9e30d9b48f0ea222f"},
    {{80, "f32 precise predictions"}, "446922cd30449cffa35ea1afe021353f"},
    {{80, "f64 fast loss"}, "6786ddd96ab2c8f46ce68612d8646632"},
    {{86, "f32 fast loss"}, "77fb53c376f8c4584422bb3dfed5a1f9"},
    {{86, "f32 precise loss, subroutines"}, "5c2d7999ec363ca66fb4af2cac9cb3b8"},
    {{86, "f32 precise predictions"}, "6f0b3b047db953e9fbcf41c7bc96bb2b"},
    {{86, "f64 fast loss"}, "c367955ff981af92ce16a2aff9001489"},
    {{89, "f32 fast loss"}, "aede2350207913b4947eeb2fe24e88ad"},
    {{89, "f32 precise loss, subroutines"}, "32632ba7bf7d593db596c729be23f98a"},
    {{89, "f32 precise predictions"}, "f8ddb09e307055d1b1f5e018cebd9d00"},
    {{89, "f64 fast loss"}, "db171eca784d17e52af765a766b1528a"},
    {{90, "f32 fast loss"}, "87b83f3272e7c3e48d610174e71b028a"},
    {{90, "f32 precise loss, subroutines"}, "c6e9e329db8bc3b809d034426e182b37"},
    {{90, "f32 precise predictions"}, "edc6a513419a1a103691579ebe38897c"},
    {{90, "f64 fast loss"}, "a1319f2949262ad3fbb535771030bc04"},
    {{100, "f32 fast loss"}, "e93578c00df9feaef8a3b936e8d21db0"},
    {{100, "f32 precise loss, subroutines"}, "39e7650e133d4d6cf3e4a03a1aa96960"},
    {{100, "f32 precise predictions"}, "e353dca66131b3617abecd4d05606699"},
    {{100, "f64 fast loss"}, "3daad7069dd27246d69a1eee7365b673"},
    {{120, "f32 fast loss"}, "844a0348480e1906e9fbf3da5d327f2d"},
    {{120, "f32 precise loss, subroutines"}, "8d727e5907f2a3876b13e7adae44863b"},
    {{120, "f32 precise predictions"}, "6c204bdf425e391833a079073ce30b09"},
    {{120, "f64 fast loss"}, "e5a867647ec1fb22635e18827f37b2a9"},
};

Dag directPopulation(const ImageForm& form) {
  GeneratorOptions options;
  options.seed = 20261123;
  options.parameters = 3;
  options.parameter_probability = 0.2;
  options.ops.assign(std::begin(kOperators), std::end(kOperators));
  const std::vector<Expression> batch = ExpressionGenerator(options).batch(300);
  const Pipeline standard = Pipeline::parse("standard", form.math).value();
  return standard.run(Dag::fromExpressions(batch, form.precision), {form.math});
}

std::string digestOfImage(const Dag& dag, const DirectOptions& options) {
  const DirectPart part = DirectEmitter::create(options).value().emit(dag);
  EXPECT_EQ(part.refused, std::vector<std::uint32_t>{});
  const DirectImage image = joinDirect({&part, 1}, options).value();
  const KernelDescription kernel = directKernel(image);
  const std::vector<std::byte> bytes = writeCubin({&kernel, 1}, options.architecture);
  const llvm::ArrayRef data(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  return llvm::toHex(llvm::BLAKE3::hash<16>(data), true);
}

TEST(DirectImages, MatchPinnedDigests) {
  Digests digests;
  for (const ImageForm& form : kImageForms) {
    const Dag dag = directPopulation(form);
    for (const unsigned architecture : directArchitectures()) {
      const DirectOptions options{.architecture = architecture,
                                  .precision = form.precision,
                                  .math = form.math,
                                  .loss = form.loss,
                                  .window = form.subroutines ? 1 : DirectOptions().window,
                                  .subroutines = form.subroutines};
      digests[{architecture, form.name}] = digestOfImage(dag, options);
    }
  }
  std::string rows;
  for (const auto& [key, digest] : digests) {
    rows += fmt::format("    {{{{{}, \"{}\"}}, \"{}\"}},\n", std::get<0>(key), std::get<1>(key), digest);
  }
  EXPECT_EQ(digests, kDigests) << "The machine code of existing programs changed. If it was meant to, say so in "
                                  "docs/changelog.md and write these rows down:\n"
                               << rows;
}

}  // namespace
}  // namespace srjit

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
    {{80, "f32 precise loss, subroutines"}, "456a453dec81c19b01dfc454cc6a4c49"},
    {{80, "f32 precise predictions"}, "aec3e8d6a1d07a1c2364b630b97021a4"},
    {{80, "f64 fast loss"}, "220c3e7a1efb1488f045583d1528eb55"},
    {{86, "f32 fast loss"}, "77fb53c376f8c4584422bb3dfed5a1f9"},
    {{86, "f32 precise loss, subroutines"}, "3b765ac1f9aa2ad6b8f74d0e1e7e2a7e"},
    {{86, "f32 precise predictions"}, "bebad3e55cd1847ddec2f1fcdad82f7a"},
    {{86, "f64 fast loss"}, "b2dcda2d7fd8a348fdd3ebbdfc3c88b9"},
    {{89, "f32 fast loss"}, "aede2350207913b4947eeb2fe24e88ad"},
    {{89, "f32 precise loss, subroutines"}, "9bf4fddd5de4c7fa114e1056e5d47b39"},
    {{89, "f32 precise predictions"}, "812b779435ae16370db68799c80497a8"},
    {{89, "f64 fast loss"}, "37f98c84f87482cc598512634aed9d1b"},
    {{90, "f32 fast loss"}, "87b83f3272e7c3e48d610174e71b028a"},
    {{90, "f32 precise loss, subroutines"}, "77b44b0333c4e855c9c57833e7305086"},
    {{90, "f32 precise predictions"}, "7e837dcac97877b6a63badd26108403e"},
    {{90, "f64 fast loss"}, "749e3d943576cbcfeac7a75fdefe9504"},
    {{100, "f32 fast loss"}, "e93578c00df9feaef8a3b936e8d21db0"},
    {{100, "f32 precise loss, subroutines"}, "e3fd3b4d21440d06565c7f5484e52cd2"},
    {{100, "f32 precise predictions"}, "97da631a460112656c8be80524ea4d86"},
    {{100, "f64 fast loss"}, "01f9e3c9e9d2b5ac15383e036dc7b43f"},
    {{120, "f32 fast loss"}, "844a0348480e1906e9fbf3da5d327f2d"},
    {{120, "f32 precise loss, subroutines"}, "c861eb4780c9b77bcff7e6a0327f055c"},
    {{120, "f32 precise predictions"}, "a707edc170cef7a06fb35e157dc5fd75"},
    {{120, "f64 fast loss"}, "7d8aff54fe67fd87414088b0b35088d3"},
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

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
};

const ImageForm kImageForms[] = {
    {"f32 precise predictions", Precision::kF32, Math::kPrecise, {}},
    {"f32 fast loss", Precision::kF32, Math::kFast, LossSpec{.weighted = true, .skip_invalid = true}},
    {"f64 fast loss", Precision::kF64, Math::kFast, LossSpec{.term = LossTerm::kAbsolute}},
};

/// Digest of the image by the architecture and the form.
using Digests = std::map<std::tuple<unsigned, std::string>, std::string>;

const Digests kDigests = {
    {{80, "f32 fast loss"}, "81bd08e14601acff0de9e8c1421c6e9e"},
    {{80, "f32 precise predictions"}, "f332fd5983c1ad2061d356fe3392ea4c"},
    {{80, "f64 fast loss"}, "42b362f1c638d286c30f346856f94d16"},
    {{86, "f32 fast loss"}, "9d378314d038e3ae035987939c8e15c8"},
    {{86, "f32 precise predictions"}, "07fae6f97862f5239c99e228a3a638f8"},
    {{86, "f64 fast loss"}, "1beffa09cd2b46d586625a6dad29e4bf"},
    {{89, "f32 fast loss"}, "576f046e7b88f5d9a1aae00093ce5684"},
    {{89, "f32 precise predictions"}, "e2b1e061479b2a65f20851da402f4974"},
    {{89, "f64 fast loss"}, "6904c034d6f54d8d21d6f019a5eb4428"},
    {{90, "f32 fast loss"}, "255b794a23d262517f647407fbcea4b4"},
    {{90, "f32 precise predictions"}, "3c42039b53eb0b7ee82737312a30bbe0"},
    {{90, "f64 fast loss"}, "8c0c115b4687f4bc13573e7556c813c3"},
    {{100, "f32 fast loss"}, "1dceee7cbe53696484bff078734dc03a"},
    {{100, "f32 precise predictions"}, "5cc588dd31f0aaaefea78ccfe296a7b7"},
    {{100, "f64 fast loss"}, "aa7ce3382bedab9f8d08559760ef0b92"},
    {{120, "f32 fast loss"}, "5e6e7b6a96241158e667518b6d8586b5"},
    {{120, "f32 precise predictions"}, "8be24386bce2bc922931e8088fc7fffb"},
    {{120, "f64 fast loss"}, "77ce910c3aaf4389a2dfac19805ce56b"},
};

Dag directPopulation(const ImageForm& form) {
  GeneratorOptions options;
  options.seed = 20261123;
  options.parameters = 3;
  options.parameter_probability = 0.2;
  for (const Op op : kOperators) {
    if (isDirect(op, form.math, form.precision)) options.ops.push_back(op);
  }
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
      const DirectOptions options{
          .architecture = architecture, .precision = form.precision, .math = form.math, .loss = form.loss};
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

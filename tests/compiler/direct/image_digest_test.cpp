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
    {{80, "f32 precise predictions"}, "ba9ee3dbd02e6d5ae8c85003c014a705"},
    {{80, "f64 fast loss"}, "67acc9257ebfce2be3eb6341494525b3"},
    {{86, "f32 fast loss"}, "9d378314d038e3ae035987939c8e15c8"},
    {{86, "f32 precise predictions"}, "cf974ad53c61aa16e3a1cee1962b62a1"},
    {{86, "f64 fast loss"}, "ff7101278e25f6643c1b6f6c7e8fcca1"},
    {{89, "f32 fast loss"}, "576f046e7b88f5d9a1aae00093ce5684"},
    {{89, "f32 precise predictions"}, "bddc6ee66d58dbae990e23b11e0eb881"},
    {{89, "f64 fast loss"}, "6fdf63895e8a23c78819f2e86456840a"},
    {{90, "f32 fast loss"}, "255b794a23d262517f647407fbcea4b4"},
    {{90, "f32 precise predictions"}, "45abb64db4f076399236f55ca8254e7e"},
    {{90, "f64 fast loss"}, "11e727058571264175305ebc5609a69e"},
    {{100, "f32 fast loss"}, "1dceee7cbe53696484bff078734dc03a"},
    {{100, "f32 precise predictions"}, "fae97e6c6414c1aa9f90fd3e93d243a0"},
    {{100, "f64 fast loss"}, "48a9b03957cbf5ddac44d5dc5754b532"},
    {{120, "f32 fast loss"}, "5e6e7b6a96241158e667518b6d8586b5"},
    {{120, "f32 precise predictions"}, "fd3fcf216cdab560b76149c8a7afc0e8"},
    {{120, "f64 fast loss"}, "6e3835fc0c6ee4c547e96641f17d13d9"},
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

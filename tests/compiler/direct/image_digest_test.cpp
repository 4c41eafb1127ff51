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
#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"
#include "ir/ops.h"
#include "passes/pass.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

// Operators whose rows of ir/ops.def call one function. A compiler may evaluate the arguments of several calls in any
// order, and the instructions of other operators, as sign and aq, are in that order.
constexpr Op kOperators[] = {Op::kAdd, Op::kSub,    Op::kMul,  Op::kDiv, Op::kNeg, Op::kAbs, Op::kMin,
                             Op::kMax, Op::kSquare, Op::kSqrt, Op::kInv, Op::kExp, Op::kLog, Op::kPow};

struct DigestedForm {
  const char* name;
  Precision precision;
  Math math;
  std::optional<LossSpec> loss;
  bool subroutines = false;
};

const DigestedForm kImageForms[] = {
    {"f32 precise predictions", Precision::kF32, Math::kPrecise, {}},
    {"f32 fast loss", Precision::kF32, Math::kFast, LossSpec{.weighted = true, .skip_invalid = true}},
    {"f32 precise loss, subroutines", Precision::kF32, Math::kPrecise, LossSpec{}, true},
    {"f64 fast loss", Precision::kF64, Math::kFast, LossSpec{.term = LossTerm::kAbsolute}},
};

/// Digest of the image by the architecture and the form.
using Digests = std::map<std::tuple<unsigned, std::string>, std::string>;

const Digests kDigests = {
    {{80, "f32 fast loss"}, "691311def85af686de9c8488cd758a43"},
    {{80, "f32 precise loss, subroutines"}, "4dae28cf2b821736fa9ce286cc6bef10"},
    {{80, "f32 precise predictions"}, "6d6557cf5436d112181a08d0f27c30dd"},
    {{80, "f64 fast loss"}, "03d2c2f4dcddc498b6caf2f8b6014cfd"},
    {{86, "f32 fast loss"}, "29194ea527d2589f26bb8adc7c6ed70e"},
    {{86, "f32 precise loss, subroutines"}, "7c75a51fbb9310e0d9512130c5a605e4"},
    {{86, "f32 precise predictions"}, "2acfe3188de9f1d232798046dc4be7b6"},
    {{86, "f64 fast loss"}, "0d759865290786d35bf1f5b47f4946ca"},
    {{89, "f32 fast loss"}, "f2b6b3e2d8b1b7de5a91f8c19d8fd97c"},
    {{89, "f32 precise loss, subroutines"}, "2bee1b5235473124433b5b6a3d7e1262"},
    {{89, "f32 precise predictions"}, "e2372cd1744f6ba07d1237112ed4b754"},
    {{89, "f64 fast loss"}, "987ed2d7deac10d1243010f96ff6ab1f"},
    {{90, "f32 fast loss"}, "ffdfaf7332536b67f83ff225ad7b7d94"},
    {{90, "f32 precise loss, subroutines"}, "145eb25712eb503c0de5aa40a3f30d01"},
    {{90, "f32 precise predictions"}, "373e6a41893e0328594d22b68a611fb5"},
    {{90, "f64 fast loss"}, "3e5929b37dbc77f742dee92a08d9ed25"},
    {{100, "f32 fast loss"}, "167980018c581a00346ec46d8f33a2b1"},
    {{100, "f32 precise loss, subroutines"}, "c5c91662189d2bd0f259888455f6e4b8"},
    {{100, "f32 precise predictions"}, "fcfd57072167fc46560102859350ff19"},
    {{100, "f64 fast loss"}, "48aa3e24fef3f9d611b199a6d029a5a3"},
    {{120, "f32 fast loss"}, "377e9f96769ee2ab75c89602d2def48f"},
    {{120, "f32 precise loss, subroutines"}, "ac9982759a71d6947d1e8fec8004de1d"},
    {{120, "f32 precise predictions"}, "17b4ba6baaa2a981ce6d14e62794b87c"},
    {{120, "f64 fast loss"}, "b73710dfbef46dfeb746d4fcb56d590d"},
};

Dag directPopulation(const DigestedForm& form) {
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
  for (const DigestedForm& form : kImageForms) {
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

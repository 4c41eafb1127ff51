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
    {{80, "f32 fast loss"}, "1a1c639280c90e0f37212a33a1241e2e"},
    {{80, "f32 precise loss, subroutines"}, "a39f7d78f4810acd1612a20e19f2e448"},
    {{80, "f32 precise predictions"}, "57ba46480044ef7c6519e4d33befe5ad"},
    {{80, "f64 fast loss"}, "8ff67574a900343505486188f192a2cb"},
    {{86, "f32 fast loss"}, "236827f8d69d1e4275e612cc138d36b6"},
    {{86, "f32 precise loss, subroutines"}, "817a3d84103fc55e03cfe5ea7fcacb72"},
    {{86, "f32 precise predictions"}, "7d9de50c0856cf0d25591823f3ff517f"},
    {{86, "f64 fast loss"}, "ef570158523b679e88ac5d39dcae8c7d"},
    {{89, "f32 fast loss"}, "f0935ab2451275f776ed9fcdd6e6c038"},
    {{89, "f32 precise loss, subroutines"}, "c13a968ac494bf71095d8a4ede0ba72f"},
    {{89, "f32 precise predictions"}, "9ab650a2ca99786a46ae89d11c7f9290"},
    {{89, "f64 fast loss"}, "fbe5d4946714343f77ae98009bd53d46"},
    {{90, "f32 fast loss"}, "3f9a0e2279cdd2c4a1d6895538c1a1df"},
    {{90, "f32 precise loss, subroutines"}, "ffb1966fc266da51a4f8a87e831d6df3"},
    {{90, "f32 precise predictions"}, "ca4afd0ee0f98ebc42de13541664b547"},
    {{90, "f64 fast loss"}, "1a7828cb4b2a8ff41a7c69742fd05b6c"},
    {{100, "f32 fast loss"}, "747dbda1c17a5e5890e0e43ee2c35b6f"},
    {{100, "f32 precise loss, subroutines"}, "accf7d0208a11146f3f284098b02d05b"},
    {{100, "f32 precise predictions"}, "8014c801751d83927b1ef1845fb204dd"},
    {{100, "f64 fast loss"}, "043e3a6e7faed2f509be477d67607426"},
    {{120, "f32 fast loss"}, "bb6b918cf03d6d6cc5cc582831e76427"},
    {{120, "f32 precise loss, subroutines"}, "c2f05eba1056af6a6990182b3d43ea0e"},
    {{120, "f32 precise predictions"}, "7e07dc46ffeb74fcfaff32aff85b85d5"},
    {{120, "f64 fast loss"}, "c134d7897465186148a437d84fb58cb5"},
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

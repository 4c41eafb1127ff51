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
    {{80, "f32 fast loss"}, "0234d05a222bef48b71077f35127c721"},
    {{80, "f32 precise predictions"}, "e7c408007b9bbdee7cbd490b121aae0e"},
    {{80, "f64 fast loss"}, "d30d6eeb8556d5680ab5cb5c020df784"},
    {{86, "f32 fast loss"}, "867e6eb098967358338365675c936f6e"},
    {{86, "f32 precise predictions"}, "9b536bdeb750241e19da34a076bcaab5"},
    {{86, "f64 fast loss"}, "91e8f988c47d0533b393b7c3b24d7e3e"},
    {{89, "f32 fast loss"}, "b9885e093b670af201c520a557f11a0e"},
    {{89, "f32 precise predictions"}, "30dec691e2719c8d5029e07e095e7dbc"},
    {{89, "f64 fast loss"}, "27f29c6302678467be592cec79e879cd"},
    {{90, "f32 fast loss"}, "6e96cd4a846a0cc656ac195ed9fca9a1"},
    {{90, "f32 precise predictions"}, "5f7acc9dde873b81001b6943c3f5d55c"},
    {{90, "f64 fast loss"}, "194fd8a45d29564b41d0aa1d5358e200"},
    {{100, "f32 fast loss"}, "8beaaf146c96b92d6f7e5846d3886584"},
    {{100, "f32 precise predictions"}, "0c1501719019d69396544b12e1c69fde"},
    {{100, "f64 fast loss"}, "ed3ef2b7c5251fc7afed542dfae1fc7d"},
    {{120, "f32 fast loss"}, "4a833d73f01587f86cae2d690332d65f"},
    {{120, "f32 precise predictions"}, "68fca9fc49a1b0ccf2dab2ce0c4a62e6"},
    {{120, "f64 fast loss"}, "ed25526ebb0e62406f2ff62aa8b33226"},
};

Dag directPopulation(const ImageForm& form) {
  GeneratorOptions options;
  options.seed = 20261123;
  options.parameters = 3;
  options.parameter_probability = 0.2;
  for (const Op op : pinnedOperators()) {
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

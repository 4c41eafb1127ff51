// Gradients and Jacobians: the same bits from every tier, and in strict and precise from the processor.
#include "tests/generators/derivatives.h"
#include "tests/gpu/machine.h"

namespace srjit {
namespace {

class GpuGradient : public GpuInMode {
 protected:
  void check(const Workload& w, const GradientOptions& options) const {
    const Engine engine = this->engine();
    const bool has_processors_bits = mode().math != Math::kFast;
    const Engine reference =
        has_processors_bits
            ? Engine::create({.device = "cpu", .precision = mode().precision, .math = mode().math}).value()
            : engine;
    const Gradients expected = gradientsOf(reference, w, Tier::kInterpret, options);
    const std::vector<double> jacobian = jacobianOf(reference, w, Tier::kInterpret, options.by);
    for (const Tier tier : {Tier::kInterpret, Tier::kDirect, Tier::kCompile}) {
      expectSameGradients(gradientsOf(engine, w, tier, options), expected, "gradients");
      expectSameBits(jacobianOf(engine, w, tier, options.by), jacobian, w.rows(), "jacobian");
    }
    expectSameGradients(gradientsOf(this->engine(Memory::kStreamed), w, Tier::kInterpret, options), expected,
                        "streamed");
  }
};

TEST_P(GpuGradient, TiersAndTheProcessorGiveTheSameBits) {
  for (const std::size_t rows : {1, 129, 4097}) {
    Workload w = Workload::random(generatorOf(51, 16), 40, rows, Spread::kSpecial, mode().precision);
    check(w, {.loss = {.kind = LossKind::kMae, .nan = NanPolicy::kSkip}});
    w.weights = quarterWeights(rows);
    check(w, {.loss = kPlain, .by = DerivativesBy::kVariables});
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, GpuGradient, testing::ValuesIn(allModes()), modeName);

}  // namespace
}  // namespace srjit

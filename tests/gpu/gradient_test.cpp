// Gradients and Jacobians: the same bits from every tier, and in strict and precise from the processor.
#include "ir/text.h"
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

// Scaled losses, a custom one, and one of the table's.
TEST_P(GpuGradient, OfLossesOfGraphsIsTheSame) {
  Workload w = withShares(Workload::random(generatorOf(52, 16), 25, 1301, Spread::kSpecial, mode().precision));
  for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
    check(w, {.loss = {.kind = LossKind::kScaledMse, .nan = nan}});
    check(w, {.loss = {.nan = nan, .custom = parse("abs(f - y)^1.5", Language::kInfix, {"f", "y", "w"}).value()}});
    w.weights = quarterWeights(w.rows());
    check(w, {.loss = {.kind = LossKind::kLogLoss, .nan = nan}});
  }
}

TEST_P(GpuGradient, FitsAreTheProcessors) {
  if (mode().math == Math::kFast) return;
  const Workload w = withShares(Workload::random(generatorOf(53, 16), 40, 1301, Spread::kTame, mode().precision));
  const Engine cpu = Engine::create({.device = "cpu", .precision = mode().precision, .math = mode().math}).value();
  const auto fitsOn = [&](const Engine& engine, const LossOptions& loss) {
    const Dataset data = engine.upload(w.view()).value();
    return engine.fit(engine.compile(w.expressions), data, w.parameters, {.loss = loss, .iterations = 12}).value();
  };
  for (const LossKind kind : {LossKind::kMse, LossKind::kScaledR2, LossKind::kHuber, LossKind::kMae}) {
    const Fits fits = fitsOn(engine(), {.kind = kind}), expected = fitsOn(cpu, {.kind = kind});
    expectSameBits(fits.parameters, expected.parameters, 1, "parameters");
    expectSameBits(fits.losses.values, expected.losses.values, 1, "losses");
    EXPECT_EQ(fits.statuses, expected.statuses);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, GpuGradient, testing::ValuesIn(allModes()), modeName);

}  // namespace
}  // namespace srjit

// Gradients and Jacobians: the same bits from every tier, and in strict and precise from the processor.
#include "ir/text.h"
#include "tests/generators/workload.h"
#include "tests/gpu/machine.h"

namespace srjit {
namespace {

class GpuGradient : public GpuInMode {
 protected:
  /// The engine whose bits are expected: the processor's, where `fast` does not make it another.
  Engine reference() const {
    if (mode().math == Math::kFast) return engine();
    return Engine::create({.device = "cpu", .precision = mode().precision, .math = mode().math}).value();
  }

  void check(const Workload& w, const GradientOptions& options) const {
    const Engine engine = this->engine();
    const Engine reference = this->reference();
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

TEST_P(GpuGradient, FitsOfAllTiersAreTheSame) {
  const Workload w = withShares(Workload::random(generatorOf(53, 16), 40, 1301, Spread::kTame, mode().precision));
  const auto fitsOf = [&](const Engine& engine, Tier tier, const LossOptions& loss) {
    const Dataset data = engine.upload(w.view()).value();
    const Program program = engine.compile(w.expressions, {.tier = tier});
    return engine.fit(program, data, w.parameters, {.loss = loss, .iterations = 12}).value();
  };
  const Engine reference = this->reference();
  for (const LossKind kind : {LossKind::kMse, LossKind::kScaledR2, LossKind::kHuber, LossKind::kMae}) {
    const Fits expected = fitsOf(reference, Tier::kInterpret, {.kind = kind});
    for (const Tier tier : {Tier::kInterpret, Tier::kDirect, Tier::kCompile}) {
      const Fits fits = fitsOf(engine(), tier, {.kind = kind});
      expectSameBits(fits.parameters, expected.parameters, 1, "parameters");
      expectSameBits(fits.losses.values, expected.losses.values, 1, "losses");
      EXPECT_EQ(fits.statuses, expected.statuses);
    }
  }
}

TEST_P(GpuGradient, SeveralVectorsOfParametersHaveTheResultsOfEach) {
  const Workload w = withShares(Workload::random(generatorOf(54, 16), 30, 1301, Spread::kTame, mode().precision));
  std::vector<double> both = w.parameters;
  for (const double parameter : w.parameters) both.push_back(parameter * 0.75 - 1.0);
  const Engine engine = this->engine();
  const Dataset data = engine.upload(w.view()).value();
  for (const Tier tier : {Tier::kInterpret, Tier::kDirect, Tier::kCompile}) {
    const Program program = engine.compile(w.expressions, {.tier = tier});
    Gradients expected;
    for (const std::span<const double> vector :
         {std::span(both).first(w.parameters.size()), std::span(both).last(w.parameters.size())}) {
      const Gradients one = engine.gradient(program, data, vector).value();
      expected.losses.values.insert(expected.losses.values.end(), one.losses.values.begin(), one.losses.values.end());
      expected.derivatives.insert(expected.derivatives.end(), one.derivatives.begin(), one.derivatives.end());
    }
    const Gradients together = engine.gradient(program, data, both).value();
    expectSameBits(together.losses.values, expected.losses.values, 1, "losses");
    expectSameBits(together.derivatives, expected.derivatives, 1, "derivatives");
    expectSameBits(engine.loss(program, data, both).value().values, expected.losses.values, 1, "losses alone");
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, GpuGradient, testing::ValuesIn(allModes()), modeName);

}  // namespace
}  // namespace srjit

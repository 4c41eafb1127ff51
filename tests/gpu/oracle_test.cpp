// A GPU's results against those of the processor and of the float64 reference.
#include "ir/reference.h"
#include "tests/generators/graphs.h"
#include "tests/gpu/machine.h"

namespace srjit {
namespace {

class Oracle : public GpuInMode {
 protected:
  // In f64 `fast` equals `precise`.
  Math math() const { return mode().precision == Precision::kF64 && isFast() ? Math::kPrecise : mode().math; }
  bool isFast() const { return mode().math == Math::kFast; }

  // The bound does not cover rewrites that reassociate, which only `fast` has.
  CompileOptions options(Tier tier) const {
    CompileOptions options{.tier = tier};
    if (isFast()) {
      options.pipeline = Pipeline::parse(passOfRules(Math::kPrecise) + ",fma,hoist,schedule", Math::kFast).value();
    }
    return options;
  }

  void expectWithinBounds(const Workload& w, Tier tier, std::size_t samples) const {
    const Engine engine = this->engine();
    const Program program = engine.compile(w.expressions, options(tier));
    const Dataset data = engine.upload(w.view()).value();
    const std::vector<double> values = predict(engine, program, data, w.parameters);
    std::size_t promised = 0, wrong = 0;
    for (std::size_t e = 0; e < w.expressions.size(); ++e) {
      std::vector<double> parameters;
      for (const double p : w.parametersOf(program, e)) parameters.push_back(roundTo(mode().precision, p));
      for (std::size_t i = 0; i < samples; ++i) {
        const std::size_t r = i * w.rows() / samples;
        std::vector<double> row;
        for (const auto& column : w.columns) row.push_back(column[r]);
        const Bounded expected = evaluateBounded(w.expressions[e], row, parameters, {mode().precision, math()});
        if (std::isinf(expected.error)) continue;
        ++promised;
        const double got = values[e * w.rows() + r];
        const bool same = got == expected.value || (std::isnan(got) && std::isnan(expected.value));
        if (same || std::fabs(got - expected.value) <= expected.error) continue;
        if (++wrong <= 5) {
          ADD_FAILURE() << "expression " << e << " row " << r << ": " << got << ", but the reference is "
                        << expected.value << " and the bound " << expected.error;
        }
      }
    }
    EXPECT_EQ(wrong, 0U);
    EXPECT_GT(promised, w.expressions.size() * samples / 10);
  }
};

TEST_P(Oracle, KeepsTheErrorBoundOnAllOperators) {
  expectWithinBounds(Workload::random(generatorOf(21, 16), 200, 1000, Spread::kWide, mode().precision),
                     Tier::kInterpret, 40);
}

TEST_P(Oracle, KeepsTheErrorBoundWithSpecialValues) {
  expectWithinBounds(Workload::random(generatorOf(22, 16), 200, 1000, Spread::kSpecial, mode().precision),
                     Tier::kInterpret, 40);
}

TEST_P(Oracle, KeepsTheErrorBoundCompiled) {
  expectWithinBounds(Workload::random(generatorOf(23, 30, exactOps()), 64, 1000, Spread::kWide, mode().precision),
                     Tier::kCompile, 100);
}

// Losses against sums in double of the GPU's own predictions, since the reference computes no losses.
TEST_P(Oracle, LossesAreSumsOfThePredictions) {
  const Engine engine = this->engine();
  const GeneratorOptions generator = generatorOf(24, 20, exactOps());
  const Workload w = Workload::random(generator, 32, 10860, Spread::kTame, mode().precision);
  const Dataset data = engine.upload(w.view()).value();
  const Program program = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  const std::vector<double> values = predict(engine, program, data, w.parameters);
  const Losses losses = lossesOf(engine, program, data, w.parameters, {LossKind::kSse, NanPolicy::kSkip});
  const double unit = std::ldexp(1.0, mode().precision == Precision::kF32 ? -24 : -53);
  for (std::size_t e = 0; e < w.expressions.size(); ++e) {
    double sum = 0;
    std::uint64_t valid = 0;
    for (std::size_t r = 0; r < w.rows(); ++r) {
      const double value = values[e * w.rows() + r];
      if (!std::isfinite(value)) continue;
      ++valid;
      sum += (value - w.target[r]) * (value - w.target[r]);
    }
    EXPECT_EQ(losses.valid_rows[e], valid);
    // Terms beyond the range of f32 are infinite. The bound is from docs/accuracy.md: 4 roundings per term and 7 levels
    // of the tree.
    if (!std::isfinite(losses.values[e])) continue;
    EXPECT_NEAR(losses.values[e], sum, std::fabs(sum) * (11 * unit + 1e-12)) << "expression " << e;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Oracle, testing::ValuesIn(allModes()), modeName);

/// A GPU and the processor, in modes in which they have the same bits.
class Processor : public GpuInMode {
 protected:
  Engine processor() const {
    return Engine::create({.device = "cpu", .precision = mode().precision, .math = mode().math}).value();
  }
};

void compareWithProcessor(const Engine& gpu, const Engine& cpu, const std::vector<Tier>& tiers, Workload w) {
  const std::vector<LossOptions> losses = {
      kPlain, {LossKind::kNmse, NanPolicy::kSkip}, {LossKind::kMae, NanPolicy::kReject}};
  for (const bool weighted : {false, true}) {
    if (weighted) w.weights = quarterWeights(w.rows());
    const Results expected = resultsOf({cpu, Tier::kInterpret}, w, losses);
    for (const Tier tier : tiers) {
      expectSame(resultsOf({gpu, tier}, w, losses), expected, w, "GPU and CPU, " + std::to_string(w.rows()) + " rows");
    }
  }
}

TEST_P(Processor, HasTheSameBitsInArithmetic) {
  const Engine gpu = engine(), cpu = processor();
  for (const std::size_t rows : {1, 129, 362, 4097, 10860, 100000}) {
    compareWithProcessor(
        gpu, cpu, {Tier::kInterpret, Tier::kCompile, Tier::kDirect},
        Workload::random(generatorOf(31, 40, exactOps()), 64, rows, Spread::kSpecial, mode().precision));
    if (HasFailure()) return;
  }
}

TEST_P(Processor, HasTheSameBitsInAllOperators) {
  const Engine gpu = engine(), cpu = processor();
  for (const std::size_t rows : {1, 129, 4097, 100000}) {
    compareWithProcessor(gpu, cpu, {Tier::kInterpret, Tier::kDirect},
                         Workload::random(generatorOf(32, 24), 200, rows, Spread::kSpecial, mode().precision));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Processor, testing::ValuesIn(modesOfTheProcessor()), modeName);

}  // namespace
}  // namespace srjit

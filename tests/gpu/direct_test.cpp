// The direct tier against the interpreter, bit for bit, on the hardware that it was written for.
//
// SRJIT_SOAK_SECONDS makes the soak test go on for so long (2): it compares random populations of random sizes, several
// at a time.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "compiler/direct.h"
#include "ir/text.h"
#include "runtime/clock.h"
#include "tests/gpu/gpu.h"

namespace srjit {
namespace {

std::vector<Op> directOps(Math math) {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < allOps().size(); ++i) {
    if (isDirect(static_cast<Op>(i), math)) ops.push_back(static_cast<Op>(i));
  }
  return ops;
}

class Direct : public GpuInMode {
 protected:
  void SetUp() override {
    GpuInMode::SetUp();
    if (IsSkipped()) return;
    const Engine engine = this->engine();
    if (engine.options().device == "cpu") GTEST_SKIP() << "the processor has no direct tier";
    // A first evaluation shows whether the tier has proved itself here.
    Workload w = Workload::random(generatorOf(1, 5, exactOps()), 1, 10, Spread::kSpecial, Precision::kF32);
    const Program program = engine.compile(w.expressions, {.tier = Tier::kDirect});
    ASSERT_TRUE(engine.prepare(program, engine.upload(w.view()).value(), std::nullopt));
    const ProgramStatus status = program.status();
    ASSERT_EQ(status.tier, Tier::kDirect) << (status.error ? status.error->message : "no code");
  }
};

constexpr LossOptions kPlain{LossKind::kMse, NanPolicy::kPropagate};

// Predictions and losses of one population on one set of rows.
void compare(const Engine& engine, const Workload& w, const std::string& what) {
  const Dataset data = engine.upload(w.view()).value();
  const Program direct = engine.compile(w.expressions, {.tier = Tier::kDirect});
  const Program interpreted = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  expectSameBits(predict(engine, direct, data, w.parameters), predict(engine, interpreted, data, w.parameters),
                 w.rows(), what.c_str());
  for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
    for (const LossKind kind : {LossKind::kMse, LossKind::kMae}) {
      expectSameLosses(lossesOf(engine, direct, data, w.parameters, {kind, nan}),
                       lossesOf(engine, interpreted, data, w.parameters, {kind, nan}), what);
    }
  }
  EXPECT_EQ(direct.status().compiled, w.expressions.size()) << what;
}

TEST_P(Direct, HasTheInterpretersBits) {
  std::uint64_t seed = 100;
  for (const std::size_t rows : {1, 31, 32, 33, 127, 128, 129, 362, 1000, 4097, 10860}) {
    for (const std::size_t count : {1, 5, 33, 200}) {
      for (const bool weighted : {false, true}) {
        Workload w = Workload::random(generatorOf(++seed, 50, directOps(mode().math)), count, rows, Spread::kSpecial,
                                      Precision::kF32);
        if (weighted) w.weights = quarterWeights(rows);
        compare(engine(), w, std::to_string(count) + " on " + std::to_string(rows) + " rows");
        if (HasFailure()) return;
      }
    }
  }
}

// Quotients in the middle of two subnormal numbers, or next to it, and divisors whose reciprocals are hardest.
TEST_P(Direct, OfHardQuotients) {
  if (mode().math == Math::kFast) GTEST_SKIP() << "division is approximate";
  constexpr std::size_t kRows = 1'000'000;
  Random random(17);
  Workload w;
  w.columns.resize(2);
  while (w.rows() < kRows) {
    const int bits = random.between(1, 22);
    const double middle = (static_cast<double>(random.below(1U << bits)) + 0.5) * 0x1p-149;
    auto y = std::ldexp(static_cast<float>(random.below(1U << (23 - bits)) | 1), random.between(0, 60));
    auto x = static_cast<float>(middle * static_cast<double>(y));
    if (random.below(4) == 0) {
      y = std::nextafter(std::ldexp(1.0F, random.between(-100, 100)), 0.0F);
      x = std::ldexp(1.0F, random.between(-126, 100));
    }
    if (random.below(2) == 0) x = std::nextafter(x, random.below(2) == 0 ? 0.0F : 1e30F);
    w.columns[0].push_back(x);
    w.columns[1].push_back(y);
  }
  w.target.assign(kRows, 0);
  for (const char* const text : {"x0/x1", "gt(x0/x1, 0)", "inv(x1)", "sqrt(x0)", "sqrt(x1)"}) {
    w.expressions.push_back(parse(text, Language::kInfix).value());
  }
  const Engine engine = this->engine();
  const Dataset data = engine.upload(w.view()).value();
  const Program direct = engine.compile(w.expressions, {.tier = Tier::kDirect});
  const Program interpreted = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  expectSameBits(predict(engine, direct, data, {}), predict(engine, interpreted, data, {}), kRows, "quotients");
  EXPECT_EQ(direct.status().compiled, w.expressions.size());
}

TEST_P(Direct, OfMixedTiersInOneProgram) {
  const Workload w =
      Workload::random(generatorOf(77, 30), 300, 2000, Spread::kSpecial, Precision::kF32);  // all operators
  const Engine engine = this->engine();
  const Dataset data = engine.upload(w.view()).value();
  const Program direct = engine.compile(w.expressions, {.tier = Tier::kDirect});
  const Program interpreted = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  expectSameBits(predict(engine, direct, data, w.parameters), predict(engine, interpreted, data, w.parameters),
                 w.rows(), "predictions");
  expectSameLosses(lossesOf(engine, direct, data, w.parameters, kPlain),
                   lossesOf(engine, interpreted, data, w.parameters, kPlain), "losses");
  EXPECT_GT(direct.status().compiled, 0U);
  EXPECT_LT(direct.status().compiled, w.expressions.size());
}

TEST_P(Direct, OfStreamedRows) {
  const Workload w =
      Workload::random(generatorOf(78, 40, directOps(mode().math)), 100, 20000, Spread::kSpecial, Precision::kF32);
  const Engine whole = engine();
  const Program interpreted = whole.compile(w.expressions, {.tier = Tier::kInterpret});
  const Dataset data = whole.upload(w.view()).value();
  for (const Memory memory : {Memory::kTight, Memory::kStreamed}) {
    const Engine engine = this->engine(memory);
    const Dataset parts = engine.upload(w.view()).value();
    const Program direct = engine.compile(w.expressions, {.tier = Tier::kDirect});
    expectSameBits(predict(engine, direct, parts, w.parameters), predict(whole, interpreted, data, w.parameters),
                   w.rows(), "predictions");
    expectSameLosses(lossesOf(engine, direct, parts, w.parameters, kPlain),
                     lossesOf(whole, interpreted, data, w.parameters, kPlain), "losses");
  }
}

TEST_P(Direct, NewParametersNeedNoNewCode) {
  Workload w =
      Workload::random(generatorOf(79, 40, directOps(mode().math)), 64, 1000, Spread::kSpecial, Precision::kF32);
  const Engine engine = this->engine();
  const Dataset data = engine.upload(w.view()).value();
  const Program direct = engine.compile(w.expressions, {.tier = Tier::kDirect});
  const Program interpreted = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  for (int step = 0; step < 5; ++step) {
    for (double& parameter : w.parameters) parameter = parameter * 0.75 + 0.125 * step;
    expectSameLosses(lossesOf(engine, direct, data, w.parameters, kPlain),
                     lossesOf(engine, interpreted, data, w.parameters, kPlain), "step " + std::to_string(step));
  }
}

// Random populations and sizes, several at a time; all predictions are compared.
TEST_P(Direct, Soak) {
  const char* const wanted = std::getenv("SRJIT_SOAK_SECONDS");
  const double seconds = wanted == nullptr ? 2 : std::atof(wanted);
  const Engine engine = this->engine();
  const std::vector<Op> ops = directOps(mode().math);
  const Stopwatch watch;
  std::atomic<std::uint64_t> results = 0, populations = 0;
  onAllCores(4, [&](std::size_t thread) {
    Random random(1000 + thread);
    while (watch.seconds() < seconds && !HasFailure()) {
      const std::size_t count = 1 + random.below(600), rows = 1 + random.below(200'000);
      GeneratorOptions generator = generatorOf(random.next(), random.between(2, 60), ops);
      const Workload w = Workload::random(generator, count, rows, Spread::kSpecial, Precision::kF32);
      const Dataset data = engine.upload(w.view()).value();
      const Program direct = engine.compile(w.expressions, {.tier = Tier::kDirect});
      const Program interpreted = engine.compile(w.expressions, {.tier = Tier::kInterpret});
      std::vector<float> one(count * rows), other(count * rows);
      ASSERT_TRUE(engine.evaluate(direct, data, w.parameters, std::span(one)));
      ASSERT_TRUE(engine.evaluate(interpreted, data, w.parameters, std::span(other)));
      for (std::size_t i = 0; i < one.size(); ++i) {
        const bool same = one[i] == other[i] ? std::signbit(one[i]) == std::signbit(other[i])
                                             : std::isnan(one[i]) && std::isnan(other[i]);
        ASSERT_TRUE(same) << "expression " << i / rows << " of " << count << ", row " << i % rows << " of " << rows
                          << ": " << one[i] << " instead of " << other[i];
      }
      expectSameLosses(lossesOf(engine, direct, data, w.parameters, kPlain),
                       lossesOf(engine, interpreted, data, w.parameters, kPlain), "soak");
      results += one.size();
      ++populations;
    }
  });
  std::printf("soak: %llu predictions of %llu populations compared in %.1f s\n",
              static_cast<unsigned long long>(results), static_cast<unsigned long long>(populations), watch.seconds());
}

INSTANTIATE_TEST_SUITE_P(Modes, Direct,
                         testing::Values(Mode{Precision::kF32, Math::kStrict}, Mode{Precision::kF32, Math::kPrecise},
                                         Mode{Precision::kF32, Math::kFast}),
                         modeName);

}  // namespace
}  // namespace srjit

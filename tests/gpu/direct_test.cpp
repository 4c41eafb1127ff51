// The direct tier against the interpreter, bit for bit, on real hardware.
#include <optional>

#include "ir/losses.h"
#include "ir/ops.h"
#include "ir/text.h"
#include "tests/generators/hard_pairs.h"
#include "tests/gpu/machine.h"

namespace srjit {
namespace {

class Direct : public GpuInMode {
 protected:
  void SetUp() override {
    GpuInMode::SetUp();
    if (IsSkipped()) return;
    const Engine engine = this->engine();
    if (engine.options().device == "cpu") GTEST_SKIP() << "the processor has no direct tier";
    // The first evaluation runs the tier's self-test.
    Workload w = Workload::random(generatorOf(1, 5), 1, 10, Spread::kSpecial, mode().precision);
    const Program program = engine.compile(w.expressions, {.tier = Tier::kDirect});
    ASSERT_TRUE(engine.prepare(program, engine.upload(w.view()).value(), std::nullopt));
    const ProgramStatus status = program.status();
    ASSERT_EQ(status.tier, Tier::kDirect) << (status.error ? status.error->message : "no code");
  }
};

// Predictions and losses of one population on one set of rows.
void compare(const Engine& engine, const Workload& w, const std::string& what) {
  // Only two of the losses, since the assembler would take minutes for the interpreter's kernels of all.
  const std::vector<LossOptions> losses = {kPlain, LossOptions{LossKind::kMae, NanPolicy::kSkip}};
  const Results direct = resultsOf({engine, Tier::kDirect}, w, losses);
  expectSame(direct, resultsOf({engine, Tier::kInterpret}, w, losses), w, what);
  // In f64 functions beside all sums of a loss may need too many registers, which the tier refuses; few expressions may
  // all be such.
  constexpr std::size_t kMany = 30;
  const std::size_t all = w.expressions.size();
  const std::size_t most_of_doubles = all < kMany ? 0 : all / 2;
  EXPECT_GE(direct.program.status().compiled, isDouble(engine.options().precision) ? most_of_doubles : all) << what;
}

TEST_P(Direct, BitsEqualTheInterpreters) {
  std::uint64_t seed = 100;
  for (const std::size_t rows : {1, 31, 32, 33, 127, 128, 129, 362, 1000, 4097, 10860}) {
    for (const std::size_t count : {1, 5, 33, 200}) {
      for (const bool weighted : {false, true}) {
        Workload w = Workload::random(generatorOf(++seed, 50), count, rows, Spread::kSpecial, mode().precision);
        if (weighted) w.weights = quarterWeights(rows);
        compare(engine(), w, std::to_string(count) + " on " + std::to_string(rows) + " rows");
        if (HasFailure()) return;
      }
    }
  }
}

// Compares all losses with LLVM's code, whose kernels for a few expressions take seconds. The other tests compare two
// losses with the interpreter, whose kernels for all would take the assembler minutes.
TEST_P(Direct, BitsOfAllLossesEqualLlvms) {
  std::vector<LossOptions> losses;
  for (const LossInfo& info : allLosses()) {
    for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip, NanPolicy::kReject}) {
      losses.push_back({info.kind, nan});
    }
  }
  for (const bool weighted : {false, true}) {
    Workload w = withShares(Workload::random(generatorOf(76, 30), 40, 1301, Spread::kSpecial, mode().precision));
    if (weighted) w.weights = quarterWeights(w.rows());
    const Results direct = resultsOf({engine(), Tier::kDirect}, w, losses);
    const Results compiled = resultsOf({engine(), Tier::kCompile}, w, losses);
    expectSame(direct, compiled, w, "all losses");
    EXPECT_EQ(direct.program.status().tier, Tier::kDirect);
    EXPECT_EQ(compiled.program.status().tier, Tier::kCompile);
  }
}

// The interpreter's are the assembler's.
TEST_P(Direct, BitsOfHardQuotientsEqualTheInterpreters) {
  if (mode().math == Math::kFast && mode().precision == Precision::kF32) GTEST_SKIP() << "division is not exact";
  constexpr std::size_t kRows = 1'000'000;
  Workload w;
  withZeroOf(mode().precision, [&]<class T>(T zero) {
    const Pairs<T> pairs = hardPairs(kRows, zero);
    w.columns.emplace_back(pairs.x.begin(), pairs.x.end());
    w.columns.emplace_back(pairs.y.begin(), pairs.y.end());
  });
  w.target.assign(kRows, 0);
  for (const char* const text : {"x0/x1", "gt(x0/x1, 0)", "inv(x1)", "sqrt(x0)", "sqrt(x1)"}) {
    w.expressions.push_back(parse(text, Language::kInfix).value());
  }
  const Results direct = resultsOf({engine(), Tier::kDirect}, w, {});
  expectSame(direct, resultsOf({engine(), Tier::kInterpret}, w, {}), w, "quotients");
  EXPECT_EQ(direct.program.status().compiled, w.expressions.size());
}

TEST_P(Direct, ProgramsMixTiers) {
  Workload w = Workload::random(generatorOf(77, 30), 300, 2000, Spread::kSpecial, mode().precision);
  std::string too_long = "x0";
  for (int i = 0; i < 33'000; ++i) too_long += " x1 gt";
  w.expressions.push_back(parse(too_long, Language::kPostfix).value());
  const Results direct = resultsOf({engine(), Tier::kDirect}, w);
  expectSame(direct, resultsOf({engine(), Tier::kInterpret}, w), w, "mixed");
  EXPECT_GT(direct.program.status().compiled, 0U);
  EXPECT_LT(direct.program.status().compiled, w.expressions.size());
}

TEST_P(Direct, BitsOfStreamedRowsEqualTheInterpreters) {
  const Workload w = Workload::random(generatorOf(78, 40), 100, 20000, Spread::kSpecial, mode().precision);
  const Results interpreted = resultsOf({engine(), Tier::kInterpret}, w);
  for (const Memory memory : {Memory::kTight, Memory::kStreamed}) {
    expectSame(resultsOf({engine(memory), Tier::kDirect}, w), interpreted, w, "streamed");
  }
}

TEST_P(Direct, NewParametersNeedNoNewCode) {
  Workload w = Workload::random(generatorOf(79, 40), 64, 1000, Spread::kSpecial, mode().precision);
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

/// Few rows and expressions, for compute-sanitizer.
class DirectSanitize : public Direct {};

TEST_P(DirectSanitize, PredictionsAndLosses) {
  std::uint64_t seed = 900;
  const Engine engine = this->engine();
  for (const std::size_t rows : {1, 131, 4099}) {
    Workload w = Workload::random(generatorOf(++seed, 40), 40, rows, Spread::kSpecial, mode().precision);
    if (rows != 131) w.weights = quarterWeights(rows);
    compare(engine, w, std::to_string(rows) + " rows");
  }
}

TEST_P(DirectSanitize, StreamedRows) {
  const Workload w = Workload::random(generatorOf(910, 20), 10, 4099, Spread::kSpecial, mode().precision);
  compare(this->engine(Memory::kStreamed), w, "streamed");
}

INSTANTIATE_TEST_SUITE_P(Modes, DirectSanitize,
                         testing::Values(Mode{Precision::kF32, Math::kStrict}, Mode{Precision::kF32, Math::kFast},
                                         Mode{Precision::kF64, Math::kStrict}),
                         modeName);
INSTANTIATE_TEST_SUITE_P(Modes, Direct,
                         testing::Values(Mode{Precision::kF32, Math::kStrict}, Mode{Precision::kF32, Math::kPrecise},
                                         Mode{Precision::kF32, Math::kFast}, Mode{Precision::kF64, Math::kStrict}),
                         modeName);

}  // namespace
}  // namespace srjit

// The same bits from every tier, batch, chunking and repetition.
#include <numeric>

#include "tests/gpu/machine.h"

#include "ir/numbers/rounding.h"
#include "ir/ops.h"

namespace srjit {
namespace {

constexpr std::size_t kRowCounts[] = {1, 2, 3, 127, 128, 129, 362, 1000, 4095, 4096, 4097, 10860, 100000};
constexpr LossOptions kSkipping{LossKind::kMae, NanPolicy::kSkip};

/// The same expressions and parameters for every number of rows.
struct Subject {
  GeneratorOptions generator;
  std::size_t count;

  Workload workload(Precision precision, std::size_t rows, bool weighted) const {
    Workload w = Workload::random(generator, count, rows, Spread::kSpecial, precision);
    if (weighted) w.weights = quarterWeights(rows);
    return w;
  }
};

/// All operators. Few expressions, since assemblers take seconds for a few functions in double.
Subject ofAllOperators() { return {.generator = generatorOf(11, 24), .count = 48}; }
Subject fewOperators(Precision precision) {
  if (precision == Precision::kF32) return {.generator = generatorOf(12, 16), .count = 24};
  return {.generator = generatorOf(13, 10), .count = 12};
}
Subject arithmetic() { return {.generator = generatorOf(14, 40, exactOps()), .count = 64}; }

/// Compiles the kernels of all modes concurrently. The interpreter has variants for few and for many rows.
void makeKernels() {
  struct Job {
    Mode mode;
    Tier tier;
    std::size_t rows;
    std::optional<LossOptions> loss;
  };
  std::vector<Job> jobs;
  for (const Mode mode : allModes()) {
    for (const auto& loss : {std::optional<LossOptions>(), std::optional(kPlain), std::optional(kSkipping)}) {
      jobs.push_back({mode, Tier::kCompile, 100, loss});
      jobs.push_back({mode, Tier::kInterpret, 100, loss});
      jobs.push_back({mode, Tier::kInterpret, 1000, loss});
    }
  }
  onAllCores(jobs.size(), [&](std::size_t i) {
    const Job& job = jobs[i];
    const Engine engine = engineOf(job.mode);
    const Subject subject = job.tier == Tier::kCompile ? fewOperators(job.mode.precision) : ofAllOperators();
    const bool weighted = job.loss && job.loss->nan == NanPolicy::kSkip;
    const Workload w = subject.workload(job.mode.precision, job.rows, weighted);
    const Status ready =
        engine.prepare(engine.compile(w.expressions, {.tier = job.tier}), engine.upload(w.view()).value(), job.loss);
    if (!ready) ADD_FAILURE() << ready.error().message;
  });
}

class Bits : public GpuInMode {
 protected:
  static void SetUpTestSuite() {
    static const bool kMade = gpuFault().empty() && (makeKernels(), true);
    (void)kMade;
  }

  /// An engine with its program.
  struct Variant {
    const char* what;
    Engine engine;
    Program program;
  };
  std::vector<Variant> variants(const std::vector<Expression>& expressions, Tier tier) const {
    std::vector<Variant> made;
    for (const auto& [what, memory] :
         {std::pair{"resident", Memory::kPlenty}, {"tight", Memory::kTight}, {"streamed", Memory::kStreamed}}) {
      const Engine engine = this->engine(memory);
      made.push_back({what, engine, engine.compile(expressions, {.tier = tier})});
      EXPECT_TRUE(made.back().program.failures().empty());
    }
    return made;
  }

  // Compares predictions and losses of all variants with those of the first.
  void compareOn(std::span<const Variant> all, const Workload& w, const LossOptions& options) const {
    std::vector<double> expected;
    Losses expected_losses;
    for (const Variant& variant : all) {
      const Dataset data = variant.engine.upload(w.view()).value();
      const std::vector<double> values = predict(variant.engine, variant.program, data, w.parameters);
      const Losses losses = lossesOf(variant.engine, variant.program, data, w.parameters, options);
      if (HasFatalFailure()) return;
      if (expected.empty()) {
        expected = values;
        expected_losses = losses;
        expectSameBits(predict(variant.engine, variant.program, data, w.parameters), expected, w.rows(), "again");
        expectSameLosses(lossesOf(variant.engine, variant.program, data, w.parameters, options), losses, "again");
      } else {
        expectSameBits(values, expected, w.rows(), variant.what);
        expectSameLosses(losses, expected_losses, variant.what);
      }
    }
  }

  /// The first number of rows decides the variants of the kernels.
  void compareOn(std::span<const Variant> all, const Subject& subject, std::span<const std::size_t> row_counts) const {
    const auto compare = [&](std::size_t i) {
      const std::size_t rows = row_counts[i / 2];
      SCOPED_TRACE(std::to_string(rows) + " rows");
      const bool weighted = i % 2 == 1;
      compareOn(all, subject.workload(mode().precision, rows, weighted), weighted ? kSkipping : kPlain);
    };
    compare(0);
    if (!HasFailure()) onAllCores(2 * row_counts.size() - 1, [&](std::size_t i) { compare(i + 1); });
  }

  void compareTiers(const Subject& subject, std::span<const std::size_t> row_counts) const {
    const std::vector<Expression> expressions = ExpressionGenerator(subject.generator).batch(subject.count);
    std::vector<Variant> all = variants(expressions, Tier::kInterpret);
    for (Variant& compiled : variants(expressions, Tier::kCompile)) all.push_back(std::move(compiled));
    compareOn(all, subject, row_counts);
  }
};

TEST_P(Bits, OfExpressionsAsTheyAreWrittenAreEqualInEveryTier) {
  const Subject subject = fewOperators(mode().precision);
  const std::vector<Expression> expressions = ExpressionGenerator(subject.generator).batch(subject.count);
  std::vector<Variant> all;
  for (const auto& [what, tier] :
       {std::pair{"interpreted", Tier::kInterpret}, {"direct", Tier::kDirect}, {"compiled", Tier::kCompile}}) {
    const Engine engine = this->engine(Memory::kPlenty);
    all.push_back({what, engine, engine.compile(expressions, {.tier = tier, .simplify = false})});
  }
  compareOn(all, subject, std::array<std::size_t, 2>{1000, 100});
}

TEST_P(Bits, OfAllOperatorsAreEqualInterpreted) {
  const Subject subject = ofAllOperators();
  compareOn(variants(ExpressionGenerator(subject.generator).batch(subject.count), Tier::kInterpret), subject,
            kRowCounts);
}

TEST_P(Bits, OfAllOperatorsAreEqualInBothTiers) { compareTiers(fewOperators(mode().precision), kRowCounts); }

TEST_P(Bits, OfArithmeticAreEqualInBothTiers) { compareTiers(arithmetic(), kRowCounts); }

// A program whose first evaluation has many rows gets kernels with more rows per thread.
TEST_P(Bits, OfArithmeticAreEqualWithManyRowsFirst) {
  constexpr std::size_t kManyFirst[] = {10860, 1, 4097, 129};
  compareTiers(arithmetic(), kManyFirst);
}

TEST_P(Bits, OfEveryLossAreEqual) {
  const Engine engine = this->engine(), streamed = this->engine(Memory::kStreamed);
  const Subject subject{.generator = generatorOf(15, 30, exactOps()), .count = 32};
  const std::vector<Expression> expressions = ExpressionGenerator(subject.generator).batch(subject.count);
  const Program interpreted = engine.compile(expressions, {.tier = Tier::kInterpret});
  const Program compiled = engine.compile(expressions, {.tier = Tier::kCompile});
  const Program chunked = streamed.compile(expressions, {.tier = Tier::kInterpret});
  std::vector<LossOptions> losses;
  for (const LossInfo& info : allLosses()) {
    const LossKind kind = info.kind;
    for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip, NanPolicy::kReject}) {
      losses.push_back({kind, nan});
    }
  }
  for (const bool weighted : {false, true}) {
    for (const std::size_t rows : {129, 10860, 1, 4097}) {
      const Workload w = withShares(subject.workload(mode().precision, rows, weighted));
      const Dataset data = engine.upload(w.view()).value(), parts = streamed.upload(w.view()).value();
      std::vector<Losses> expected(losses.size());
      onAllCores(losses.size(), [&](std::size_t i) {
        expected[i] = lossesOf(engine, interpreted, data, w.parameters, losses[i]);
        const std::string what = "loss " + std::to_string(i) + " of " + std::to_string(rows) + " rows";
        expectSameLosses(lossesOf(engine, compiled, data, w.parameters, losses[i]), expected[i], what + ", compiled");
        expectSameLosses(lossesOf(streamed, chunked, parts, w.parameters, losses[i]), expected[i], what + ", streamed");
      });
      if (HasFailure()) return;
    }
  }
}

TEST_P(Bits, DoNotDependOnTheBatch) {
  const Engine engine = this->engine();
  constexpr std::size_t kRows = 1000;
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    const Subject subject = tier == Tier::kInterpret ? ofAllOperators() : arithmetic();
    const Workload w = subject.workload(mode().precision, kRows, false);
    const Dataset data = engine.upload(w.view()).value();
    const Program whole = engine.compile(w.expressions, {.tier = Tier::kInterpret});
    const std::vector<double> expected = predict(engine, whole, data, w.parameters);
    std::vector<std::size_t> order(w.expressions.size());
    std::iota(order.begin(), order.end(), 0);
    Random random(5);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (const std::size_t part : {1UL, 7UL, order.size()}) {
      const std::size_t end = part == 1 ? 8 : order.size();
      onAllCores(ceilDivide(end, part), [&](std::size_t index) {
        std::vector<Expression> members;
        std::vector<double> parameters, wanted;
        for (std::size_t i = index * part; i < std::min(end, (index + 1) * part); ++i) {
          members.push_back(w.expressions[order[i]]);
          const auto own = w.parametersOf(whole, order[i]);
          parameters.insert(parameters.end(), own.begin(), own.end());
          const auto first = expected.begin() + static_cast<std::ptrdiff_t>(order[i] * kRows);
          wanted.insert(wanted.end(), first, first + kRows);
        }
        const Program program = engine.compile(members, {.tier = tier});
        expectSameBits(predict(engine, program, data, parameters), wanted, kRows, "a part of the batch");
      });
      if (HasFailure()) return;
    }
  }
}

// Programs longer than a window, among short ones: windows move within a program.
TEST_P(Bits, OfProgramsOfAHundredThousandTokensAreEqual) {
  GeneratorOptions generator = generatorOf(16, 30, exactOps());
  std::vector<Expression> expressions = ExpressionGenerator(generator).batch(20);
  for (const int nodes : {600, 1025, 3000, 9000, 100'000}) {
    generator.seed += 1;
    generator.min_nodes = generator.max_nodes = nodes;
    expressions.insert(expressions.begin() + nodes % 7, ExpressionGenerator(generator).next());
  }
  const Engine engine = this->engine();
  const Engine cpu = Engine::create({.device = "cpu", .precision = mode().precision, .math = Math::kStrict}).value();
  std::size_t parameters = 0;
  for (const Expression& expression : expressions) parameters += expression.parameterCount();
  for (const std::size_t rows : {1, 129, 1000, 10860}) {
    Workload w = Workload::random(generator, 0, rows, Spread::kSpecial, mode().precision);
    w.expressions = expressions;
    w.parameters.assign(parameters, 0.75);
    const Results interpreted = resultsOf({engine, Tier::kInterpret}, w);
    EXPECT_TRUE(interpreted.program.failures().empty());
    expectSame(resultsOf({engine, Tier::kCompile}, w), interpreted, w, "compiled: all but the longest");
    if (mode().math == Math::kStrict) {
      expectSame(resultsOf({cpu, Tier::kInterpret}, w), interpreted, w, "the processor");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Bits, testing::ValuesIn(allModes()), modeName);

/// Modes whose code for an operator differs.
class EachOperator : public GpuInMode {};

TEST_P(EachOperator, HasTheSameBitsInBothTiers) {
  constexpr std::size_t kRows = 200, kPart = 6;
  const Engine engine = this->engine();
  Random random(7);
  Workload data_only;
  data_only.columns = randomColumns(random, 3, kRows, Spread::kSpecial, mode().precision);
  const Dataset data = engine.upload(data_only.view()).value();
  onAllCores(ceilDivide(allOps().size(), kPart), [&](std::size_t part) {
    std::vector<Expression> all, columns;
    std::vector<double> parameters;
    for (std::size_t op = part * kPart; op < std::min(allOps().size(), (part + 1) * kPart); ++op) {
      const auto arity = static_cast<unsigned>(allOps()[op].arity);
      for (unsigned mask = 0; mask < 1U << arity; ++mask) {
        std::vector<Token> tokens;
        for (unsigned i = 0; i < arity; ++i) tokens.push_back(mask >> i & 1 ? Token::parameter(i) : Token::variable(i));
        tokens.push_back(Token::operation(static_cast<Op>(op)));
        all.push_back(build(tokens));
        if (mask == 0) columns.push_back(all.back());
        for (std::uint32_t i = 0; i < all.back().parameterCount(); ++i) parameters.push_back(0.75 + 0.5 * i);
      }
    }
    const std::vector<double> values =
        predict(engine, engine.compile(all, {.tier = Tier::kInterpret}), data, parameters);
    const std::vector<double> compiled = predict(engine, engine.compile(columns, {.tier = Tier::kCompile}), data, {});
    std::vector<double> wanted;
    for (std::size_t e = 0; e < all.size(); ++e) {
      if (all[e].parameterCount() > 0) continue;
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(e * kRows);
      wanted.insert(wanted.end(), first, first + kRows);
    }
    expectSameBits(compiled, wanted, kRows, allOps()[part * kPart].name.data());
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, EachOperator,
                         testing::Values(Mode{Precision::kF32, Math::kStrict}, Mode{Precision::kF32, Math::kPrecise},
                                         Mode{Precision::kF32, Math::kFast}, Mode{Precision::kF64, Math::kStrict},
                                         Mode{Precision::kF64, Math::kPrecise}),
                         modeName);

}  // namespace
}  // namespace srjit

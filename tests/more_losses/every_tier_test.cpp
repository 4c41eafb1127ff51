// A new loss needs only a row of losses.def: here a second table adds one, and every tier must compute it. The sources
// that read the table are compiled only for this program (CMakeLists.txt), as if losses.def had the row.
#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <gmock/gmock.h>

#include "compiler/interpreter/kernel.h"
#include "compiler/kernels/key.h"
#include "compiler/nvptx/kernels.h"
#include "ir/numbers/rounding.h"
#include "tests/generators/graphs.h"
#include "tests/gpu_model/direct_machine.h"

namespace srjit {
namespace {

/// Small integers, so that the sums of fourth powers are exact in any order.
Workload integers(bool weighted) {
  Workload w = arithmeticWorkload(7, 0, 300, Precision::kF32, weighted);
  w.expressions = {build({Token::variable(0)}),
                   build({Token::variable(0), Token::variable(0), Token::operation(Op::kAdd)})};
  w.parameters.clear();
  w.columns.assign(1, std::vector<double>(300));
  for (std::size_t r = 0; r < 300; ++r) {
    w.columns[0][r] = static_cast<double>(r % 5);
    w.target[r] = static_cast<double>(r % 3);
    if (weighted) w.weights[r] = static_cast<double>(1 + r % 2);
  }
  return w;
}

/// Means of a term of the difference d.
template <class Term>
std::vector<double> meansOf(const Workload& w, const Term& term) {
  std::vector<double> means;
  for (const double factor : {1.0, 2.0}) {
    double sum = 0, weights = 0;
    for (std::size_t r = 0; r < w.target.size(); ++r) {
      const double weight = w.weights.empty() ? 1 : w.weights[r], d = factor * w.columns[0][r] - w.target[r];
      sum += weight * term(d);
      weights += weight;
    }
    means.push_back(sum / weights);
  }
  return means;
}

// The model of a GPU runs direct code itself, and models of LLVM's kernels; LLVM's own are tested below.
TEST(MoreLosses, EveryTierComputesThem) {
  DirectMachine machine;
  const Engine gpu = machine.engine(machine.strict());
  const Engine cpu = cpuEngine(Precision::kF32);
  for (const bool weighted : {false, true}) {
    const Workload w = integers(weighted);
    const std::vector<double> fourths = meansOf(w, [](double d) { return d * d * d * d; });
    const std::vector<double> quarters = meansOf(w, [](double d) { return d * d / 4; });
    for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
      for (const auto& [options, expected] :
           {std::pair(LossOptions{LossKind::kFourthMean, nan}, fourths),
            std::pair(LossOptions{.kind = LossKind::kQuotientMean, .nan = nan, .tuning = 4.0}, quarters)}) {
        for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
          EXPECT_EQ(lossesOf(cpu, w, tier, options).values, expected) << "of the processor";
        }
        for (const Tier tier : {Tier::kInterpret, Tier::kCompile, Tier::kDirect}) {
          EXPECT_EQ(lossesOf(gpu, w, tier, options).values, expected) << "of the model of a GPU";
        }
      }
    }
  }
  EXPECT_GT(machine.launches(), 0U) << "direct code ran";
}

// By p0 of p0 * x0.
TEST(MoreLosses, HaveGradientsAndFits) {
  const Engine engine = cpuEngine(Precision::kF64);
  Workload w = integers(true);
  w.expressions = {build({Token::variable(0), Token::parameter(0), Token::operation(Op::kMul)})};
  const Dataset data = engine.upload(w.view()).value();
  const Program program = engine.compile(w.expressions);
  double fourths = 0, quarters = 0, products = 0, squares = 0;
  for (std::size_t r = 0; r < w.target.size(); ++r) {
    const double x = w.columns[0][r], y = w.target[r], weight = w.weights[r], d = x - y;
    fourths += weight * 4 * d * d * d * x;
    quarters += weight * d * x / 2;
    products += weight * x * y;
    squares += weight * x * x;
  }
  const double weights = std::accumulate(w.weights.begin(), w.weights.end(), 0.0);
  const LossOptions fourth{LossKind::kFourthMean}, quotient{.kind = LossKind::kQuotientMean, .tuning = 4.0};
  const std::vector<double> one{1};
  const auto slopeOf = [&](const LossOptions& loss, const std::vector<double>& at) {
    return engine.gradient(program, data, at, {.loss = loss}).value().derivatives[0];
  };
  EXPECT_NEAR(slopeOf(fourth, one), fourths / weights, 1e-12);
  EXPECT_NEAR(slopeOf(quotient, one), quarters / weights, 1e-12);
  const Fits of_fourth = engine.fit(program, data, one, {.loss = fourth}).value();
  EXPECT_EQ(of_fourth.statuses[0], FitStatus::kConverged);
  EXPECT_NEAR(slopeOf(fourth, of_fourth.parameters), 0, 1e-3);
  EXPECT_NEAR(engine.fit(program, data, one, {.loss = quotient}).value().parameters[0], products / squares, 1e-6);
}

std::size_t countOf(const std::string& text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

/// Channel after channel, what LLVM's kernel for both expressions of `w` adds per row group: its PTX runs instruction
/// by instruction. Targets have the centre 1.
std::vector<float> sumsOfPtx(const Workload& w, const LossSpec& spec) {
  const Dag dag = Dag::fromExpressions(w.expressions, Precision::kF32);
  const std::string ptx = rowsPtx({&dag, 1}, {.math = Math::kStrict, .loss = spec}).value();
  const ModelImage image = readModel(ptx.c_str()).value();
  const std::size_t rows = w.rows(), groups = ceilDivide(rows, kGroupRows);
  std::vector<float> column(w.columns[0].begin(), w.columns[0].end()), target(w.target.begin(), w.target.end());
  std::vector<float> weights(w.weights.begin(), w.weights.end()), sums(spec.channels() * 2 * groups, -1);
  std::vector<std::uint32_t> outputs = {0, 1};
  HostMemory memory;
  ModelLaunch launch{.grid = {1, 1, 1},
                     .block = {kBlockThreads, 1, 1},
                     .arguments = {memory.add(column), rows, 1, rows, 0, memory.add(outputs), memory.add(target),
                                   memory.add(weights), memory.add(sums), 2 * groups}};
  if (isOfMoments(spec.term)) launch.arguments.push_back(std::bit_cast<std::uint32_t>(1.0F));
  image.kernels.at(0)->run(launch, memory);
  return sums;
}

std::vector<float> expectedSums(const Workload& w, const LossSpec& spec) {
  const std::size_t groups = ceilDivide(w.rows(), kGroupRows);
  std::vector<float> expected(spec.channels() * 2 * groups);
  for (std::size_t r = 0; r < w.rows(); ++r) {
    for (std::size_t e = 0; e < 2; ++e) {
      const double weight = spec.weighted ? w.weights[r] : 1, f = static_cast<double>(e + 1) * w.columns[0][r];
      const double target = w.target[r] - (isOfMoments(spec.term) ? 1 : 0);
      std::size_t at = e * groups + r / kGroupRows;
      const auto add = [&](double item) {
        expected[at] += static_cast<float>(item);
        at += 2 * groups;
      };
      const auto addTerm = [&](double term) { add(weight * term); };
      eachLossTerm(spec.term, f, target, addTerm);
      if (spec.targetSums() > 0) eachTargetTerm(target, addTerm);
      if (spec.skip_invalid) add(1);
      if (spec.counts() == 2) add(weight);
    }
  }
  return expected;
}

// Rows with a partial group, and a warp without rows.
TEST(MoreLosses, LlvmKernelsOfRowsComputeThem) {
  for (const bool weighted : {false, true}) {
    const Workload w = integers(weighted);
    for (const LossTermInfo& info : kernelLossTerms()) {
      for (const bool skip : {false, true}) {
        const LossSpec spec{.term = info.term, .weighted = weighted, .skip_invalid = skip};
        EXPECT_EQ(sumsOfPtx(w, spec), expectedSums(w, spec)) << info.name;
      }
    }
  }
}

// With d * d computed once, (d * d) * (d * d) has one multiplication per row more than d * d. A kernel has the term
// twice, for strips whose rows all exist and for others; a thread of kernels of rows has four rows, one of the
// interpreter eight.
TEST(MoreLosses, LlvmKernelsAndInterpretersHaveTheirInstructions) {
  const Dag dag = Dag::fromExpressions(std::vector{build({Token::variable(0)})}, Precision::kF32);
  const HandlerTable table({.math = Math::kStrict, .ops = {Op::kAdd}});
  const auto products = [&](LossTerm term, bool interpreter) {
    DeviceOptions options{.math = Math::kStrict, .loss = LossSpec{.term = term}};
    if (interpreter) options.rows_per_thread = 8;
    const auto ptx = interpreter ? interpreterPtx(table, options) : rowsPtx({&dag, 1}, options);
    return countOf(ptx.value(), "mul.rn.f32");
  };
  EXPECT_EQ(products(LossTerm::kSquared, false), 8U);
  EXPECT_EQ(products(LossTerm::kFourth, false), 16U);
  EXPECT_EQ(products(LossTerm::kSquared, true), 16U);
  EXPECT_EQ(products(LossTerm::kFourth, true), 32U);
}

TEST(MoreLosses, HaveDistinctNamesAndKeys) {
  EXPECT_EQ(infoOf(LossKind::kFourthMean).name, "fourth-mean");
  EXPECT_EQ(infoOf(LossTerm::kFourth).name, "fourth");
  const Dag dag = Dag::fromExpressions(std::vector{build({Token::variable(0)})}, Precision::kF32);
  const auto key = [&](LossTerm term) { return keyOfRows({&dag, 1}, {.loss = LossSpec{.term = term}}, "test"); };
  EXPECT_FALSE(key(LossTerm::kFourth) == key(LossTerm::kSquared));
  EXPECT_THAT(key(LossTerm::kFourth).title, testing::HasSubstr("fourth loss"));
}

}  // namespace
}  // namespace srjit

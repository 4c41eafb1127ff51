// A new loss needs only a row of losses.def: here a second table adds one, and every tier must compute it. The sources
// that read the table are compiled for this program alone (CMakeLists.txt), as if losses.def had the row.
#include <gmock/gmock.h>

#include "compiler/interpreter/kernel.h"
#include "compiler/kernels/key.h"
#include "compiler/nvptx/rows_kernel.h"
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

std::vector<double> fourthMeans(const Workload& w) {
  std::vector<double> means;
  for (const double factor : {1.0, 2.0}) {
    double sum = 0, weights = 0;
    for (std::size_t r = 0; r < w.target.size(); ++r) {
      const double weight = w.weights.empty() ? 1 : w.weights[r], d = factor * w.columns[0][r] - w.target[r];
      sum += weight * d * d * d * d;
      weights += weight;
    }
    means.push_back(sum / weights);
  }
  return means;
}

TEST(MoreLosses, EveryTierComputesThem) {
  DirectMachine machine;
  const Engine gpu = machine.engine(machine.strict());
  const Engine cpu = cpuEngine(Precision::kF32);
  for (const bool weighted : {false, true}) {
    const Workload w = integers(weighted);
    for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
      const LossOptions options{LossKind::kFourthMean, nan};
      for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
        EXPECT_EQ(lossesOf(cpu, w, tier, options).values, fourthMeans(w)) << "of the processor";
      }
      for (const Tier tier : {Tier::kInterpret, Tier::kCompile, Tier::kDirect}) {
        EXPECT_EQ(lossesOf(gpu, w, tier, options).values, fourthMeans(w)) << "of the model of a GPU";
      }
    }
  }
  EXPECT_GT(machine.launches(), 0U) << "direct code ran";
}

std::size_t countOf(const std::string& text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// (d * d) * (d * d) has two multiplications per row more than d * d, and a thread has four rows.
TEST(MoreLosses, LlvmKernelsComputeThem) {
  const Dag dag = Dag::fromExpressions(std::vector{build({Token::variable(0)})}, Precision::kF32);
  const HandlerTable table({.math = Math::kStrict, .ops = {Op::kAdd}});
  const auto products = [&](LossTerm term, bool interpreter) {
    DeviceOptions options{.math = Math::kStrict, .loss = LossSpec{.term = term}};
    if (interpreter) options.rows_per_thread = 8;
    const auto ptx = interpreter ? interpreterPtx(table, options) : rowsPtx({&dag, 1}, options);
    return countOf(ptx.value(), "mul.rn.f32");
  };
  EXPECT_EQ(products(LossTerm::kFourth, false), products(LossTerm::kSquared, false) + 8);
  EXPECT_GT(products(LossTerm::kFourth, true), products(LossTerm::kSquared, true));
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

// Losses: the fixed tree of their sums, their definitions, weights and policies.
#include <limits>

#include "ir/numbers/loss_sums.h"
#include "runtime/evaluation/loss_value.h"
#include "tests/generators/data.h"
#include "tests/generators/workload.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

template <class T>
T pairwise(std::vector<T> level) {
  while (level.size() > 1) {
    for (std::size_t i = 0; i < level.size() / 2; ++i) level[i] = level[2 * i] + level[2 * i + 1];
    level.resize(level.size() / 2);
  }
  return level[0];
}

/// The tree of ir/numbers/loss_sums.h, one number at a time.
template <class T>
double treeSum(std::span<const T> items) {
  std::vector<double> chains(kSumChains, 0.0);
  for (std::size_t first = 0; first < items.size(); first += kGroupRows) {
    std::vector<T> row_group(kGroupRows, T(0));
    for (std::size_t i = 0; i < std::min(kGroupRows, items.size() - first); ++i) row_group[i] = items[first + i];
    chains[first / kGroupRows % kSumChains] += static_cast<double>(pairwise(row_group));
  }
  return pairwise(chains);
}

template <class T>
void checkTree(const Engine& engine, const Workload& w, Tier tier, const LossOptions& options) {
  const auto [data, program] = prepared(engine, w, {.tier = tier});
  const std::vector<double> predictions = predict(engine, program, data, w.parameters);
  const Losses losses = engine.loss(program, data, w.parameters, options).value();
  const std::size_t rows = w.rows();
  for (std::size_t e = 0; e < program.size(); ++e) {
    std::vector<T> terms, weights;
    std::uint64_t valid = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      const T f = static_cast<T>(predictions[e * rows + r]);
      const T weight = w.weights.empty() ? T(1) : static_cast<T>(w.weights[r]);
      const T difference = f - static_cast<T>(w.target[r]);
      T term = options.kind == LossKind::kMae ? std::abs(difference) : difference * difference;
      if (!w.weights.empty()) term = weight * term;
      const bool counts = options.nan == NanPolicy::kPropagate || std::isfinite(f);
      valid += counts;
      weights.push_back(counts ? weight : T(0));
      terms.push_back(counts ? term : T(0));
    }
    double expected = treeSum<T>(terms);
    const bool is_open = options.nan == NanPolicy::kPropagate && !std::isfinite(expected);
    if (options.kind != LossKind::kSse) {
      // If no row is skipped, the sum of the weights is the compensated sum of the data set.
      expected /=
          valid == rows ? treeSum<double>(std::vector<double>(weights.begin(), weights.end())) : treeSum<T>(weights);
    }
    if (options.nan == NanPolicy::kSkip && valid == 0) expected = std::nan("");
    if (options.nan == NanPolicy::kReject && valid < rows) expected = kInfinity;
    ASSERT_TRUE(sameBits(losses.values[e], expected))
        << "expression " << e << ": " << losses.values[e] << ", expected " << expected << " over " << rows << " rows";
    ASSERT_EQ(losses.valid_rows[e], is_open ? Losses::kNotCounted : valid);
  }
}

TEST(Loss, AddsInTheFixedTree) {
  const Engine single = cpuEngine(Precision::kF32, Math::kPrecise), wide = cpuEngine(Precision::kF64, Math::kPrecise);
  for (const std::size_t rows : {1U, 2U, 127U, 128U, 129U, 1000U, 4500U}) {
    for (const bool weighted : {false, true}) {
      const GeneratorOptions options{.seed = rows, .variables = 5};
      Workload w = Workload::random(options, 6, rows, Spread::kWide, Precision::kF32);
      // Eighths: sums of weights are exact in any order.
      for (std::size_t r = 0; weighted && r < rows; ++r) w.weights.push_back(static_cast<double>(1 + r % 9) / 8);
      for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip, NanPolicy::kReject}) {
        for (const LossKind kind : {LossKind::kSse, LossKind::kMse, LossKind::kMae}) {
          checkTree<float>(single, w, Tier::kInterpret, {kind, nan});
          checkTree<double>(wide, w, Tier::kInterpret, {kind, nan});
        }
      }
      checkTree<float>(single, w, Tier::kCompile, {LossKind::kMse, NanPolicy::kSkip});
      checkTree<double>(wide, w, Tier::kCompile, {LossKind::kMse, NanPolicy::kSkip});
    }
  }
}

/// An engine, and losses of one expression x0 against given numbers.
class LossOfColumn : public testing::Test {
 protected:
  Engine engine_ = Engine::create({.precision = Precision::kF64}).value();

  Result<Losses> losses(const Workload& w, const LossOptions& options) {
    const auto [data, program] = prepared(engine_, w);
    return engine_.loss(program, data, w.parameters, options);
  }
  double loss(const Workload& w, const LossOptions& options) { return losses(w, options).value().values.at(0); }

  Workload w_{.expressions = infixes({"x0"})};
};

TEST(SumChains, EqualTheFixedTreeForAnyChunks) {
  Random random(3);
  std::vector<float> row_groups;
  for (int i = 0; i < 1000; ++i) row_groups.push_back(static_cast<float>(random.magnitude(-20, 20)));
  const auto wanted = [&] {
    std::vector<double> chains(kSumChains, 0.0);
    for (std::size_t c = 0; c < kSumChains; ++c) {
      for (std::size_t g = c; g < row_groups.size(); g += kSumChains) chains[c] += static_cast<double>(row_groups[g]);
    }
    return pairwise(chains);
  }();
  for (const std::size_t chunk : {std::size_t{32}, std::size_t{320}, row_groups.size()}) {
    SumChains chains;
    for (std::size_t first = 0; first < row_groups.size(); first += chunk) {
      chains.add(std::span<const float>(row_groups).subspan(first, std::min(chunk, row_groups.size() - first)));
    }
    EXPECT_TRUE(sameBits(chains.sum(), wanted)) << chunk;
  }
}

TEST_F(LossOfColumn, SkipsWeightsInTheFixedTree) {
  // 0.1 is not exact in binary, so another order of additions changes the result.
  const std::size_t rows = 5000;
  w_.columns = {std::vector<double>(rows, 1)};
  w_.target = std::vector<double>(rows, 3);
  for (std::size_t r = 0; r < rows; ++r) w_.weights.push_back(0.1 + static_cast<double>(r % 7) / 3);
  w_.columns[0][17] = kInfinity;
  w_.columns[0][1700] = std::nan("");
  std::vector<double> kept = w_.weights, terms;
  kept[17] = kept[1700] = 0;
  for (const double weight : kept) terms.push_back(weight * 4);
  const double expected = treeSum<double>(terms) / treeSum<double>(kept);
  EXPECT_TRUE(sameBits(loss(w_, {LossKind::kMse, NanPolicy::kSkip}), expected));
}

// Differences 0 -2 0 4. Without weights the mean is 3 and the variance 6 / 4, with them 3.5 and 1 / 4.
TEST_F(LossOfColumn, MatchesItsDefinition) {
  w_.columns = {{1, 2, 3, 8}};
  w_.target = {1, 4, 3, 4};
  for (const double variance : {1.5, 0.25}) {
    if (variance < 1) w_.weights = {0, 1, 2, 1};
    for (const auto& [kind, expected] : {std::pair(LossKind::kSse, 20.0),
                                         {LossKind::kMse, 5.0},
                                         {LossKind::kRmse, std::sqrt(5.0)},
                                         {LossKind::kMae, 1.5},
                                         {LossKind::kNmse, 5 / variance},
                                         {LossKind::kR2, 1 - 5 / variance}}) {
      EXPECT_DOUBLE_EQ(loss(w_, {kind, NanPolicy::kPropagate}), expected) << infoOf(kind).name;
    }
  }
}

// As sums over rows by the definitions, which docs/losses.md has.
double byDefinition(LossKind kind, const Workload& w, std::span<const double> f, double c) {
  const std::size_t rows = f.size();
  double weights = 0, sum = 0, mean_f = 0, mean_y = 0;
  const auto weight = [&](std::size_t r) { return w.weights.empty() ? 1 : w.weights[r]; };
  for (std::size_t r = 0; r < rows; ++r) {
    weights += weight(r);
    mean_f += weight(r) * f[r];
    mean_y += weight(r) * w.target[r];
  }
  mean_f /= weights;
  mean_y /= weights;
  double ff = 0, fy = 0, yy = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const double d = f[r] - w.target[r], y = w.target[r];
    ff += weight(r) * (f[r] - mean_f) * (f[r] - mean_f);
    fy += weight(r) * (f[r] - mean_f) * (y - mean_y);
    yy += weight(r) * (y - mean_y) * (y - mean_y);
    const double term = kind == LossKind::kHuber ? (std::fabs(d) < c ? d * d / 2 : c * (std::fabs(d) - c / 2))
                        : kind == LossKind::kLogLoss
                            ? std::log1p(std::exp(-std::fabs(f[r]))) + std::max(f[r], 0.0) - y * f[r]
                        : kind == LossKind::kPoisson ? 2 * (d + (y > 0 ? y * std::log(y / f[r]) : 0))
                                                     : (d < 0 ? -c * d : (1 - c) * d);
    sum += weight(r) * term;
  }
  const double best = yy - fy * fy / ff;
  switch (kind) {
    case LossKind::kScaledSse:
      return best;
    case LossKind::kScaledMse:
      return best / weights;
    case LossKind::kScaledRmse:
      return std::sqrt(best / weights);
    case LossKind::kScaledNmse:
      return best / yy;
    case LossKind::kScaledR2:
      return 1 - best / yy;
    case LossKind::kCorrelation:
      return fy / std::sqrt(ff * yy);
    default:
      return sum / weights;
  }
}

TEST_F(LossOfColumn, OfGraphsMatchesItsDefinition) {
  Random random(5);
  for (const bool weighted : {false, true}) {
    w_.columns.assign(1, {});
    w_.target.clear();
    w_.weights.clear();
    for (std::size_t r = 0; r < 1000; ++r) {
      w_.columns[0].push_back(random.between(0.1, 4.0));
      w_.target.push_back(r % 3 == 0 ? 0 : random.unit());
      if (weighted) w_.weights.push_back(random.unit());
    }
    for (const LossInfo& info : allLosses()) {
      if (!isOfGraphs({.kind = info.kind}) && !info.isScaled()) continue;
      const bool is_tuned = infoOf(info.term).tuning != LossTuning::kUntuned;
      const double c = is_tuned ? 0.3 : 0;
      LossOptions options{.kind = info.kind};
      if (is_tuned) options.tuning = c;
      const double expected = byDefinition(info.kind, w_, w_.columns[0], c);
      EXPECT_NEAR(loss(w_, options), expected, 1e-12 * (1 + std::fabs(expected))) << info.name;
      options.nan = NanPolicy::kSkip;
      EXPECT_NEAR(loss(w_, options), expected, 1e-12 * (1 + std::fabs(expected))) << info.name;
    }
    EXPECT_NEAR(loss(w_, {.kind = LossKind::kHuber}), byDefinition(LossKind::kHuber, w_, w_.columns[0], 1), 1e-12);
    EXPECT_NEAR(loss(w_, {.kind = LossKind::kQuantile}), byDefinition(LossKind::kQuantile, w_, w_.columns[0], 0.5),
                1e-12);
  }
}

// The rows that are left have a mean and a variance of their own.
TEST_F(LossOfColumn, SkippedRowsDoNotCountInScaledLosses) {
  w_.columns = {{1, 2, 4, kInfinity, 3, std::nan("")}};
  w_.target = {3, 4, 9, 1000, 7, -50};
  w_.weights = {1, 2, 1, 3, 0.5, 1};
  Workload left = w_;
  left.columns = {{1, 2, 4, 3}};
  left.target = {3, 4, 9, 7};
  left.weights = {1, 2, 1, 0.5};
  for (const LossKind kind : {LossKind::kScaledMse, LossKind::kCorrelation}) {
    const Losses skipped = losses(w_, {kind, NanPolicy::kSkip}).value();
    EXPECT_EQ(skipped.valid_rows[0], 4U);
    EXPECT_NEAR(skipped.values[0], loss(left, {kind, NanPolicy::kPropagate}), 1e-10);
    EXPECT_TRUE(std::isnan(loss(w_, {kind, NanPolicy::kPropagate})));
  }
}

TEST_F(LossOfColumn, ByAnExpressionIsItsWeightedMean) {
  w_.columns = {{1, 2, 3, 8}};
  w_.target = {1, 4, 3, 4};
  EXPECT_DOUBLE_EQ(loss(w_, lossBy("abs(f - y)^1.5")), (std::pow(2, 1.5) + 8) / 4);
  EXPECT_DOUBLE_EQ(loss(w_, lossBy("f*w")), 14.0 / 4) << "without weights they are 1";
  EXPECT_DOUBLE_EQ(loss(w_, lossBy("2.5")), 2.5);
  w_.weights = {0, 1, 2, 1};
  EXPECT_DOUBLE_EQ(loss(w_, lossBy("(f - y)^2")), loss(w_, {LossKind::kMse, NanPolicy::kPropagate}));
  EXPECT_DOUBLE_EQ(loss(w_, lossBy("f*w")), (2 + 12 + 8) / 4.0);
}

// 1 / f is 0 where f is infinite, and its term is infinite where f is 0.
TEST_F(LossOfColumn, ByAnExpressionFollowsThePolicy) {
  w_.columns = {{1, 2, kInfinity, 0}};
  w_.target = {1, 1, 1, 1};
  EXPECT_FALSE(std::isfinite(loss(w_, lossBy("tanh(f)"))));
  EXPECT_EQ(loss(w_, lossBy("1/f", NanPolicy::kReject)), kInfinity);
  const Losses skipped = losses(w_, lossBy("1/f", NanPolicy::kSkip)).value();
  EXPECT_EQ(skipped.valid_rows[0], 2U);
  EXPECT_DOUBLE_EQ(skipped.values[0], 0.75);
}

// The logarithm of a prediction that is not positive has no meaning.
TEST_F(LossOfColumn, OfCountsNeedsPositivePredictions) {
  w_.columns = {{-1, 0, 2}};
  w_.target = {0, 1, 2};
  EXPECT_FALSE(std::isfinite(loss(w_, {LossKind::kPoisson, NanPolicy::kPropagate})));
  EXPECT_EQ(loss(w_, {LossKind::kPoisson, NanPolicy::kReject}), kInfinity);
  const Losses skipped = losses(w_, {LossKind::kPoisson, NanPolicy::kSkip}).value();
  EXPECT_EQ(skipped.valid_rows[0], 1U);
  EXPECT_EQ(skipped.values[0], 0);
}

TEST_F(LossOfColumn, WithoutAMeaningIsAnError) {
  w_.columns = {{1, 2}};
  w_.target = {2, -4};
  const auto messageOf = [&](const LossOptions& options) {
    const Result<Losses> losses = this->losses(w_, options);
    return losses.ok() ? std::string() : losses.error().message;
  };
  EXPECT_EQ(messageOf({.kind = LossKind::kLogLoss}), "log-loss of a target of -4: expected targets from 0 to 1");
  EXPECT_EQ(messageOf({.kind = LossKind::kPoisson}),
            "poisson of a target of -4: expected targets that are not negative");
  EXPECT_EQ(messageOf({.kind = LossKind::kHuber, .tuning = 0.0}),
            "the constant 0 of huber: expected a finite number above 0");
  EXPECT_EQ(messageOf({.kind = LossKind::kQuantile, .tuning = 1.0}),
            "the constant 1 of quantile: expected a number between 0 and 1");
  EXPECT_EQ(messageOf({.kind = LossKind::kScaledMse, .tuning = 1.0}), "the constant 1 of scaled-mse: expected none");
  LossOptions custom = lossBy("f - y");
  custom.tuning = 2;
  EXPECT_EQ(messageOf(custom), "the constant 2 of a custom loss: expected none");
  EXPECT_EQ(messageOf({.custom = infix("p0")}), "a custom loss with parameters");
  EXPECT_EQ(
      messageOf({.custom = infix("x3")}),
      "a custom loss with variable x3: expected x0 for the prediction, x1 for the target and x2 for the weight alone");
  w_.target = {2, 0};
  EXPECT_EQ(messageOf({.kind = LossKind::kLogLoss}), "log-loss of a target of 2: expected targets from 0 to 1");
}

TEST_F(LossOfColumn, FollowsThePolicy) {
  w_.columns = {{1, std::nan(""), 3, kInfinity}};
  w_.target = {0, 0, 1, 1};  // differences 1 and 2
  w_.weights = {1, 5, 3, 7};
  EXPECT_TRUE(std::isnan(loss(w_, {LossKind::kMse, NanPolicy::kPropagate})));
  EXPECT_EQ(losses(w_, {LossKind::kMse, NanPolicy::kPropagate}).value().valid_rows[0], Losses::kNotCounted);
  EXPECT_DOUBLE_EQ(loss(w_, {LossKind::kMse, NanPolicy::kSkip}), (1 + 3 * 4.0) / 4);
  EXPECT_DOUBLE_EQ(loss(w_, {LossKind::kSse, NanPolicy::kSkip}), 13);
  EXPECT_EQ(losses(w_, {LossKind::kMse, NanPolicy::kSkip}).value().valid_rows[0], 2U);
  for (const LossInfo& info : allLosses()) {
    const LossKind kind = info.kind;
    EXPECT_EQ(loss(w_, {kind, NanPolicy::kReject}), info.worst);
  }
  w_.columns = {{kInfinity, 1, 1, 1}};
  EXPECT_EQ(loss(w_, {LossKind::kMse, NanPolicy::kPropagate}), kInfinity);
  w_.columns = {{std::nan(""), -kInfinity, kInfinity, kInfinity}};
  for (const LossInfo& info : allLosses()) EXPECT_TRUE(std::isnan(loss(w_, {info.kind, NanPolicy::kSkip})));
}

TEST_F(LossOfColumn, StaysCloseToASumInDouble) {
  const std::size_t rows = 100003;
  Random random(1);
  w_.columns = randomColumns(random, 1, rows, Spread::kTame, Precision::kF32);
  w_.target = randomColumns(random, 1, rows, Spread::kTame, Precision::kF32)[0];
  long double sum = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const long double difference = static_cast<long double>(w_.columns[0][r]) - static_cast<long double>(w_.target[r]);
    sum += difference * difference;
  }
  const auto exact = static_cast<double>(sum / static_cast<long double>(rows));
  const double f32 = lossesOf(cpuEngine(Precision::kF32), w_, Tier::kAuto, {}).values[0];
  // docs/accuracy.md: 4 roundings of a term and 7 levels of the tree; the sum of row groups is in double.
  EXPECT_NEAR(f32, exact, exact * 11 * std::ldexp(1.0, -24));
  EXPECT_NEAR(loss(w_, {}), exact, exact * 1e-12);
}

TEST(LossSpecOf, SelectsTheSumsOfAKernel) {
  for (const LossInfo& info : allLosses()) {
    const LossKind kind = info.kind;
    for (const bool weighted : {false, true}) {
      if (isOfGraphs({.kind = kind})) continue;
      const LossTerm term = info.term;
      EXPECT_EQ(lossSpec({kind, NanPolicy::kPropagate}, weighted), (LossSpec{term, weighted, false}));
      EXPECT_EQ(lossSpec({kind, NanPolicy::kSkip}, weighted), (LossSpec{term, weighted, true}));
      EXPECT_EQ(lossSpec({kind, NanPolicy::kReject}, weighted), (LossSpec{term, weighted, true}));
    }
  }
}

}  // namespace
}  // namespace srjit

#include "tools/bench/designs/baseline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "ir/numbers/random.h"
#include "ir/reference.h"

namespace srjit {
namespace {

constexpr std::size_t kMostPredictions = std::size_t{64} << 20;
/// Tolerance of sums of squares in f32 of up to 4,096 rows, in any order.
constexpr double kSumTolerance = 1e-4;
constexpr std::size_t kProbedRows = 256, kCandidates = 256;  // rows per expression, candidates per sampled expression
constexpr double kLeastPromised = 0.25, kLeastSums = 0.125;
constexpr double kOtherSumTolerance = 0.01, kOtherSumLimit = 1e3, kSquaredError = 1e-8, kDiffering = 0.02;

struct Sample {
  std::vector<std::size_t> numbers;  ///< numbers of the expressions, ascending
  std::vector<Expression> expressions;
  std::vector<double> parameters;
};

/// The first `count` of 0 .. all - 1 in random order.
std::vector<std::size_t> shuffled(Random& random, std::size_t all, std::size_t count) {
  std::vector<std::size_t> numbers(all);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  for (std::size_t i = 0; i < count; ++i) std::swap(numbers[i], numbers[i + random.below(all - i)]);
  numbers.resize(count);
  return numbers;
}

/// Whether an expression is finite in a random range of adjacent rows.
bool looksFinite(Random& random, const Expression& expression, const BenchData& data,
                 std::span<const double> parameters) {
  const std::vector<float> numbers(parameters.begin(), parameters.end());
  std::vector<float> values(std::min(kProbedRows, data.target.size()));
  runSwitch(expression, data.columns, numbers, random.below(data.target.size() - values.size() + 1), values);
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

Sample draw(Random& random, std::span<const Expression> expressions, const BenchData& data,
            std::span<const double> parameters, std::size_t count) {
  const std::vector<std::uint32_t> offsets = parameterOffsets(expressions);
  if (parameters.size() != offsets.back()) {
    failBench(Errc::kInvalid,
              fmt::format("{} parameters for expressions that have {}", parameters.size(), offsets.back()));
  }
  const auto own = [&](std::size_t e) { return parameters.subspan(offsets[e], offsets[e + 1] - offsets[e]); };
  count = std::min(count, expressions.size());
  std::vector<std::size_t> numbers =
      shuffled(random, expressions.size(), std::min(kCandidates * count, expressions.size()));
  std::size_t kept = (count + 1) / 2;
  for (std::size_t i = kept; i < numbers.size() && kept < count; ++i) {
    if (looksFinite(random, expressions[numbers[i]], data, own(numbers[i]))) std::swap(numbers[i], numbers[kept++]);
  }
  numbers.resize(count);
  std::ranges::sort(numbers);
  Sample sample{.numbers = numbers, .expressions = {}, .parameters = {}};
  for (const std::size_t e : numbers) {
    sample.expressions.push_back(expressions[e]);
    sample.parameters.insert(sample.parameters.end(), own(e).begin(), own(e).end());
  }
  return sample;
}

void checkRow(const Expression& expression, std::size_t number, std::size_t row, const BenchData& data,
              std::span<const double> parameters, double got, BaselineAgreement& agreement) {
  std::vector<double> variables;
  for (const auto& column : data.columns) variables.push_back(static_cast<double>(column[row]));
  ++agreement.compared;
  const Bounded bound = evaluateBounded(expression, variables, parameters, {Precision::kF32, Math::kFast});
  if (!std::isfinite(bound.error)) return;
  ++agreement.promised;
  const bool same = got == bound.value || (std::isnan(got) && std::isnan(bound.value));
  if (same || std::fabs(got - bound.value) <= bound.error) return;
  failBench(
      Errc::kMachine,
      fmt::format("the baseline predicts {} for expression {} in row {}, but the reference is {} with a bound of {}",
                  got, number, row, bound.value, bound.error));
}

void checkSum(double got, std::span<const float> predictions, std::size_t number, const BenchData& data,
              BaselineAgreement& agreement) {
  double sum = 0;
  for (std::size_t r = 0; r < predictions.size(); ++r) {
    const float error = predictions[r] - data.target[r];
    sum += static_cast<double>(error * error);
  }
  // Beyond the range of f32 the sums of a block may be infinite.
  if (!(sum < 1e36)) return;
  ++agreement.sums;
  if (std::fabs(got - sum) <= kSumTolerance * sum) return;
  failBench(
      Errc::kMachine,
      fmt::format("the baseline gives {} as the sum of squared errors of expression {}, but its predictions give {}",
                  got, number, sum));
}

}  // namespace

std::string BaselineAgreement::text() const {
  return fmt::format("checked: {} of {} predictions within their bound, {} sums", promised, compared, sums);
}

void checkStepSize(std::size_t got, std::size_t expected, const char* what) {
  if (got == expected) return;
  failBench(Errc::kInvalid, fmt::format("{} {} for a baseline that was prepared for {}", got, what, expected));
}

BaselineAgreement checkBaseline(Baseline& baseline, std::span<const Expression> expressions, const BenchData& data,
                                std::span<const double> parameters, std::uint64_t seed, std::size_t sampled,
                                std::size_t rows_of_each) {
  const std::size_t rows = data.target.size();
  Random random(seed);
  const std::size_t most = std::max<std::size_t>(1, kMostPredictions / rows);
  const Sample sample = draw(random, expressions, data, parameters, std::min(sampled, most));
  std::vector<float> predictions(sample.expressions.size() * rows);
  std::vector<double> sums(sample.expressions.size());
  baseline.prepare(sample.expressions);
  baseline.predictions(sample.parameters, predictions);
  baseline.losses(sample.parameters, sums);
  BaselineAgreement agreement;
  std::size_t first_parameter = 0;
  for (std::size_t i = 0; i < sample.expressions.size(); ++i) {
    std::vector<double> own;
    for (std::size_t p = 0; p < sample.expressions[i].parameterCount(); ++p) {
      own.push_back(static_cast<double>(static_cast<float>(sample.parameters[first_parameter++])));
    }
    const std::span<const float> values = std::span(predictions).subspan(i * rows, rows);
    for (std::size_t k = 0; k < rows_of_each; ++k) {
      const std::size_t row = random.below(rows);
      checkRow(sample.expressions[i], sample.numbers[i], row, data, own, static_cast<double>(values[row]), agreement);
    }
    checkSum(sums[i], values, sample.numbers[i], data, agreement);
  }
  const auto isBelow = [](std::size_t got, double part, std::size_t all) {
    return got == 0 || static_cast<double>(got) < part * static_cast<double>(all);
  };
  if (isBelow(agreement.promised, kLeastPromised, agreement.compared) ||
      isBelow(agreement.sums, kLeastSums, sample.expressions.size())) {
    failBench(Errc::kMachine,
              fmt::format("too little could be compared to show anything: {} of {} predictions, {} of {} sums",
                          agreement.promised, agreement.compared, agreement.sums, sample.expressions.size()));
  }
  return agreement;
}

std::string SumAgreement::text() const {
  return fmt::format("{} of {} sums as sr-jit's, {} of them finite", same, compared, finite);
}

SumAgreement compareSums(std::span<const double> sums, std::span<const double> expected,
                         std::span<const float> target) {
  double squares = 0;
  for (const float y : target) squares += static_cast<double>(y) * static_cast<double>(y);
  SumAgreement agreement{.compared = expected.size()};
  std::array<std::size_t, 2> differing{};  // of sums that are not finite, and of those that are
  std::optional<std::size_t> wrong;
  for (std::size_t e = 0; e < expected.size(); ++e) {
    const double magnitude = std::fabs(expected[e]);
    // A larger sum is dominated by a few rows next to a pole, where evaluators may differ arbitrarily.
    const bool is_finite = magnitude < kOtherSumLimit * squares;
    agreement.finite += is_finite;
    const bool is_same =
        is_finite ? std::fabs(sums[e] - expected[e]) <= kOtherSumTolerance * magnitude + kSquaredError * squares
                  : !(std::fabs(sums[e]) < kOtherSumLimit / 100 * squares);
    agreement.same += is_same;
    if (is_same) continue;
    ++differing[is_finite];
    if (!wrong) wrong = e;
  }
  const auto isAllowed = [](std::size_t count, std::size_t all) {
    return static_cast<double>(count) <= 1 + kDiffering * static_cast<double>(all);
  };
  if (agreement.finite == 0)
    failBench(Errc::kMachine, fmt::format("none of sr-jit's {} sums can be compared", expected.size()));
  if (isAllowed(differing[1], agreement.finite) && isAllowed(differing[0], expected.size() - agreement.finite)) {
    return agreement;
  }
  failBench(Errc::kMachine, fmt::format("{}; the first that differs is expression {}: {} instead of {}",
                                        agreement.text(), *wrong, sums[*wrong], expected[*wrong]));
}

}  // namespace srjit

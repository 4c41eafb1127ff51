// Host code: handlers against the reference, loops against handlers bit for bit, and the reduction tree of losses.
#include "compiler/host/jit.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "compiler/lowering/operators.h"
#include "ir/losses.h"
#include "ir/numbers/rounding.h"
#include "ir/reference.h"
#include "ir/rows.h"
#include "passes/operator_facts.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

constexpr std::size_t kRows = 2 * kRowQuantum;

template <class T>
constexpr Precision precisionOf() {
  return kPrecisionOf<T>;
}

template <class T>
std::vector<T> randomRows(Random& random, Spread spread) {
  std::vector<T> rows;
  for (std::size_t r = 0; r < kRows; ++r) rows.push_back(static_cast<T>(randomValue(random, spread, precisionOf<T>())));
  return rows;
}

Expression callOf(Op op) {
  std::vector<Token> tokens;
  for (int i = 0; i < arityOf(op); ++i) tokens.push_back(Token::variable(static_cast<std::uint32_t>(i)));
  tokens.push_back(Token::operation(op));
  return Expression::create(tokens).value();
}

/// Of the operands in kMaxArity columns of kRows rows.
template <class T>
void checkOp(HostJit& jit, Op op, const std::vector<T>& columns) {
  const HandlerKey key{static_cast<std::int16_t>(op), 0};
  const auto handlers = jit.handlers(std::span(&key, 1));
  ASSERT_TRUE(handlers.ok()) << handlers.error().message;
  std::vector<T> interpreted(kRows), compiled(kRows);
  handlers->at(0)(interpreted.data(), columns.data(), columns.data() + kRows, columns.data() + 2 * kRows, kRows);

  const Expression call = callOf(op);
  const auto code = jit.compile(Dag::fromExpressions(std::span(&call, 1), precisionOf<T>()));
  ASSERT_TRUE(code.ok()) << code.error().message;
  (**code)(columns.data(), kRows, nullptr, compiled.data(), kRows, kRows);
  EXPECT_TRUE(std::ranges::equal(interpreted, compiled, sameBits<T>)) << infoOf(op).name;

  for (std::size_t r = 0; r < kRows; ++r) {
    const double row[] = {columns[r], columns[kRows + r], columns[2 * kRows + r]};
    if (!isApproximate(jit.math(), precisionOf<T>()) || !hasApproximateStep(op)) {
      const T value = applyRow<T>(op, columns[r], columns[kRows + r], columns[2 * kRows + r]);
      EXPECT_TRUE(sameBits(compiled[r], value)) << infoOf(op).name << "(" << row[0] << ", " << row[1] << ", " << row[2]
                                                << ") = " << compiled[r] << ", not " << value;
    }
    const Bounded bound = evaluateBounded(call, row, {}, {precisionOf<T>(), jit.math()});
    if (std::isinf(bound.error)) continue;
    const auto value = static_cast<double>(compiled[r]);
    const bool within = std::isnan(bound.value) ? std::isnan(value)
                                                : value == bound.value || std::fabs(value - bound.value) <= bound.error;
    EXPECT_TRUE(within) << infoOf(op).name << "(" << row[0] << ", " << row[1] << ", " << row[2] << ") = " << value
                        << ", not " << bound.value << " +- " << bound.error;
  }
}

template <class T>
void checkAllOps(Math math, const HostTarget& target = detectHost()) {
  HostJit jit(precisionOf<T>(), math, target);
  Random random(42);
  for (const Op op : allOperators()) {
    std::vector<T> columns;
    for (int i = 0; i < kMaxArity; ++i) {
      const auto rows = randomRows<T>(random, Spread::kSpecial);
      columns.insert(columns.end(), rows.begin(), rows.end());
    }
    checkOp<T>(jit, op, columns);
  }
}

template <class T>
void checkRemainders() {
  Random random(43);
  for (const Math math : kMathModes) {
    HostJit jit(precisionOf<T>(), math);
    std::vector<T> columns = remainderOperands<T>(random, kRows);
    columns.resize(kMaxArity * kRows);
    checkOp<T>(jit, Op::kMod, columns);
  }
}

TEST(HostJit, RemaindersOfAnyNumbersF32) { checkRemainders<float>(); }
TEST(HostJit, RemaindersOfAnyNumbersF64) { checkRemainders<double>(); }

TEST(HostJit, EveryOperatorF32Strict) { checkAllOps<float>(Math::kStrict); }
TEST(HostJit, EveryOperatorF32Fast) { checkAllOps<float>(Math::kFast); }
TEST(HostJit, EveryOperatorF64Precise) { checkAllOps<double>(Math::kPrecise); }

// All operators have the bits of their rows in vectors of every width, and without fused multiply-add.
TEST(HostJitSlow, EveryOperatorOnOtherProcessors) {
  const HostTarget targets[] = {{.cpu = "x86-64", .features = ""},
                                {.cpu = "nehalem", .features = ""},
                                {.cpu = "x86-64-v3", .features = "", .vector_bytes = 32, .has_fma = true},
                                {.cpu = "x86-64-v4", .features = "", .vector_bytes = 64, .has_fma = true}};
  for (const HostTarget& target : targets) {
    if (target.vector_bytes > detectHost().vector_bytes) continue;
    SCOPED_TRACE(target.cpu);
    checkAllOps<float>(Math::kPrecise, target);
    checkAllOps<double>(Math::kPrecise, target);
  }
}

TEST(HostJit, ScalarOperandsEqualBlocksOfTheSameValue) {
  HostJit jit(Precision::kF32, Math::kPrecise);
  Random random(7);
  const auto x = randomRows<float>(random, Spread::kWide);
  const float scalar = 1.75f;
  const std::vector<float> spread(kRows, scalar);
  const HandlerKey keys[] = {
      {static_cast<std::int16_t>(Op::kPow), 0}, {static_cast<std::int16_t>(Op::kPow), 2}, {-1, 1}};
  const auto handlers = jit.handlers(keys).value();
  std::vector<float> blocks(kRows), scalars(kRows), moved(kRows);
  handlers[0](blocks.data(), x.data(), spread.data(), nullptr, kRows);
  handlers[1](scalars.data(), x.data(), &scalar, nullptr, kRows);
  EXPECT_TRUE(std::ranges::equal(blocks, scalars, sameBits<float>));
  handlers[2](moved.data(), &scalar, nullptr, nullptr, kRows);
  EXPECT_EQ(moved, spread);
}

TEST(HostJit, ADestinationMayBeAnOperand) {
  HostJit jit(Precision::kF64, Math::kStrict);
  Random random(8);
  auto x = randomRows<double>(random, Spread::kTame);
  const HandlerKey key{static_cast<std::int16_t>(Op::kMul), 0};
  const HostHandler multiply = jit.handlers(std::span(&key, 1)).value()[0];
  std::vector<double> apart(kRows);
  multiply(apart.data(), x.data(), x.data(), nullptr, kRows);
  multiply(x.data(), x.data(), x.data(), nullptr, kRows);
  EXPECT_EQ(x, apart);
}

TEST(HostJit, CodeOutlivesItsCompiler) {
  auto jit = std::make_unique<HostJit>(Precision::kF64, Math::kStrict);
  auto code = jit->compile(graphOf({"x0+1"}));
  ASSERT_TRUE(code.ok());
  jit.reset();
  std::vector<double> x(kRowQuantum, 2.0), out(kRowQuantum);
  (**code)(x.data(), kRowQuantum, nullptr, out.data(), kRowQuantum, kRowQuantum);
  EXPECT_EQ(out, std::vector<double>(kRowQuantum, 3.0));
}

// The tree that ir/numbers/loss_sums.h promises, in the plainest code.
template <class T>
T pairwise(std::vector<T> terms) {
  while (terms.size() > 1) {
    std::vector<T> sums;
    for (std::size_t i = 0; i < terms.size(); i += 2) sums.push_back(terms[i] + terms[i + 1]);
    terms = std::move(sums);
  }
  return terms[0];
}

template <class T>
void checkLoss(const LossSpec& spec, std::size_t rows) {
  HostJit jit(precisionOf<T>(), Math::kPrecise);
  const auto kernel = jit.loss(spec);
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  const std::size_t row_groups = ceilDivide(rows, kGroupRows);
  Random random(rows);
  std::vector<T> predictions, target, weights;
  for (std::size_t r = 0; r < row_groups * kGroupRows; ++r) {
    predictions.push_back(random.chance(0.05) ? std::numeric_limits<T>::quiet_NaN()
                                              : static_cast<T>(random.between(-2.0, 2.0)));
    target.push_back(static_cast<T>(random.between(-2.0, 2.0)));
    weights.push_back(static_cast<T>(random.unit()));
  }
  const HostMoments<T> moments{.centre = T(0.3), .factor = T(0.25), .offset = T(-0.7)};
  const auto stride = static_cast<std::int64_t>(row_groups + 1);
  std::vector<T> sums(spec.sums() * (row_groups + 1));
  const auto valid = (*kernel)(predictions.data(), target.data(), weights.data(), &moments, sums.data(), stride,
                               static_cast<std::int64_t>(rows));
  std::int64_t counted = 0;
  for (std::size_t g = 0; g < row_groups; ++g) {
    std::vector<std::vector<T>> terms(spec.sums());
    for (std::size_t r = g * kGroupRows; r < (g + 1) * kGroupRows; ++r) {
      const bool counts = r < rows && !(spec.skip_invalid && !std::isfinite(predictions[r]));
      counted += counts ? 1 : 0;
      const bool has_moments = isOfMoments(spec.term);
      const T f = has_moments ? std::fma(predictions[r], moments.factor, moments.offset) : predictions[r];
      std::size_t sum = 0;
      eachLossTerm<T>(spec.term, f, has_moments ? target[r] - moments.centre : target[r], [&](T term) {
        if (spec.weighted) term = weights[r] * term;
        terms[sum++].push_back(counts ? term : T(0));
      });
    }
    for (std::size_t sum = 0; sum < spec.sums(); ++sum) {
      EXPECT_TRUE(sameBits(sums[sum * (row_groups + 1) + g], pairwise(terms[sum]))) << "row group " << g;
    }
  }
  EXPECT_EQ(valid, counted);
}

TEST(HostLoss, AddsInTheFixedTree) {
  for (const auto& [term, name, tuning, targets] : kernelLossTerms()) {
    SCOPED_TRACE(name);
    for (const bool weighted : {false, true}) {
      for (const bool skip : {false, true}) {
        for (const std::size_t rows : {1, 127, 128, 129, 1000}) {
          checkLoss<float>({term, weighted, skip}, rows);
          checkLoss<double>({term, weighted, skip}, rows);
        }
      }
    }
  }
}

}  // namespace
}  // namespace srjit

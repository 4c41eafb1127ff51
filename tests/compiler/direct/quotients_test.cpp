// Quotients and square roots of the direct tier are rounded correctly, for estimates of the special function unit that
// are inaccurate.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "compiler/direct/value.h"
#include "tests/compiler/direct/run.h"
#include "tests/generators/graphs.h"
#include "tests/generators/hard_pairs.h"

namespace srjit {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

template <class T>
class DirectQuotients : public ::testing::Test {};
using QuotientNumbers = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DirectQuotients, QuotientNumbers);

constexpr std::string_view kQuotientsAndRoots[] = {"x0/x1",         "inv(x1)",         "sqrt(x0)",
                                                   "sqrt(abs(x1))", "neg(x0)/abs(x1)", "sqrt(neg(x1))"};

/// Compares with IEEE 754, for estimates that are exact and that are inaccurate; returns the instructions issued.
template <class T>
std::size_t expectCorrectRounding(const Pairs<T>& pairs, const DirectOptions& options,
                                  std::span<const std::string_view> texts = kQuotientsAndRoots) {
  const Dag dag = ran(graphOf(texts, options.precision), "hoist, schedule", Math::kStrict);
  const std::size_t count = pairs.x.size();
  DirectData<T> data{.rows = count, .stride = count, .columns = {}, .target = {}, .weights = {}};
  data.target.assign(count, 0);
  data.weights = data.target;
  data.columns = pairs.x;
  data.columns.insert(data.columns.end(), pairs.y.begin(), pairs.y.end());
  const Made made = make(dag, options);
  EXPECT_TRUE(made.part.refused.empty());
  const auto values = expected(dag, data);
  std::size_t issued = 0;
  for (const std::uint32_t inaccuracy : {0, 1, 2}) {
    const auto out = runDirect(dag, made.part, made.image, options, data, {.row_blocks = 4, .warps = 8}, inaccuracy);
    issued = out.issued;
    for (std::size_t root = 0; root < values.size(); ++root) {
      for (std::size_t r = 0; r < data.rows; ++r) {
        const T value = out.results[(root + 3) % values.size() * data.rows + r];
        if (sameBits(value, values[root][r])) continue;
        ADD_FAILURE() << textOf(dag, root) << " of " << pairs.x[r] << ", " << pairs.y[r] << ": " << value << ", not "
                      << values[root][r];
        return issued;
      }
    }
  }
  return issued;
}

TYPED_TEST(DirectQuotients, AndRootsAreRoundedCorrectly) {
  using T = TypeParam;
  expectCorrectRounding<T>(hardPairs(100'000, T()), {.precision = kPrecisionOf<T>, .math = Math::kStrict});
}

/// Operands of mod.
template <class T>
Pairs<T> remainderPairs(std::size_t count) {
  Random random(10);
  const std::vector<T> operands = remainderOperands<T>(random, count);
  const auto middle = operands.begin() + static_cast<std::ptrdiff_t>(count);
  return {.x = {operands.begin(), middle}, .y = {middle, operands.end()}};
}
constexpr std::string_view kRemainders[] = {"mod(x0, x1)", "mod(neg(x0), abs(x1))", "mod(x0, 0.75)",
                                            "mod(1e30, x1) + x0"};

TYPED_TEST(DirectQuotients, RemaindersAreRoundedCorrectly) {
  using T = TypeParam;
  for (const Math math : kMathModes) {
    expectCorrectRounding<T>(remainderPairs<T>(2'000), {.precision = kPrecisionOf<T>, .math = math}, kRemainders);
  }
}

const DirectOptions kTwoWays{.math = Math::kStrict, .window = 1, .subroutines = true};

TEST(DirectQuotientsOfTwoWays, AreRoundedCorrectly) {
  expectCorrectRounding<float>(hardPairs(100'000, 0.0F), kTwoWays);
}

TEST(DirectQuotientsOfTwoWays, RemaindersAreRoundedCorrectly) {
  expectCorrectRounding<float>(remainderPairs<float>(2'000), kTwoWays, kRemainders);
}

/// The significands of hard pairs, with exponents of which all warps take the short way; also NaN, which is usual.
Pairs<float> usualPairs() {
  Pairs<float> pairs = hardPairs(100'000, 0.0F);
  Random random(9);
  const auto bringNear = [&](float& number) {
    int exponent = 0;
    const float significand = std::frexp(number, &exponent);
    number = !std::isfinite(number) || number == 0 ? kNaN : std::ldexp(significand, random.between(-58, 58));
  };
  std::ranges::for_each(pairs.x, bringNear);
  std::ranges::for_each(pairs.y, bringNear);
  return pairs;
}

TEST(DirectQuotientsOfTwoWays, AreRoundedCorrectlyTheShortWay) {
  Pairs<float> pairs = usualPairs();
  const std::size_t short_way = expectCorrectRounding(pairs, kTwoWays);
  // One lane per warp takes the other way.
  for (std::size_t r = 0; r < pairs.x.size(); r += 32) pairs.y[r] = 0;
  EXPECT_GT(expectCorrectRounding(pairs, kTwoWays), short_way + pairs.x.size() / 32 * 50);
}

TEST(DirectQuotientsOfTwoWays, GoTheShortWayWithNaN) {
  Pairs<float> pairs = usualPairs();
  EXPECT_GT(std::ranges::count_if(pairs.y, [](float y) { return std::isnan(y); }), 100);
  const std::size_t with_nan = expectCorrectRounding(pairs, kTwoWays);
  for (auto* numbers : {&pairs.x, &pairs.y})
    std::ranges::replace_if(*numbers, [](float x) { return std::isnan(x); }, 1);
  EXPECT_EQ(expectCorrectRounding(pairs, kTwoWays), with_nan);
}

// One number in one lane, beside usual ones: another quotient, reciprocal or root is in every lane.
TEST(DirectQuotientsOfTwoWays, AreRoundedCorrectlyBesideOneRareLane) {
  const Pairs<float> usual = usualPairs();
  const std::vector<float> rare = {0,         -0.0F,      kInfinity, -kInfinity, kNaN,
                                   0x1p-149F, -0x1p-130F, 0x1p-126F, 0x1p-110F,  0x1p127F};
  Pairs<float> pairs;
  for (const float x : rare) {
    for (const float y : rare) {
      for (std::size_t lane = 0; lane < 32; ++lane) {
        const bool is_rare = lane == pairs.x.size() / 32 % 32;
        pairs.add(is_rare ? x : usual.x[pairs.x.size()], is_rare ? y : usual.y[pairs.x.size()]);
      }
    }
  }
  expectCorrectRounding(pairs, kTwoWays);
}

// All pairs of numbers at the ends of the ranges of the short ways, and beyond: each is beside usual lanes.
TEST(DirectQuotientsOfTwoWays, AreRoundedCorrectlyAtTheEndsOfTheRange) {
  std::vector<float> ends = {0, kInfinity, kNaN, std::numeric_limits<float>::denorm_min(),
                             std::numeric_limits<float>::max()};
  for (const int exponent : {-126, -120, -102, -101, -100, -99, -60, -59, 0, 59, 60, 119, 120, 126, 127}) {
    const float end = std::ldexp(1.0F, exponent);
    for (const float number : {std::nextafter(end, 0.0F), end, std::nextafter(end, kInfinity)}) ends.push_back(number);
  }
  Pairs<float> pairs;
  for (const float x : ends) {
    for (const float y : ends) {
      for (const float sign : {1.0F, -1.0F}) {
        pairs.x.insert(pairs.x.end(), {sign * x, 1.5F});
        pairs.y.insert(pairs.y.end(), {y, 1.7F});
      }
    }
  }
  expectCorrectRounding(pairs, kTwoWays);
}

/// Instructions of an operator where no lane is rare: those around what its branch skips.
std::size_t lengthOfShortWay(Op op) {
  direct::Code code;
  direct::Builder builder(code, Math::kStrict, Precision::kF32, direct::Quotients::kTwoWays);
  std::array<direct::Value, kMaxArity> operands;
  for (direct::Value& operand : operands) operand = direct::Value(code.newValues(), builder);
  builder.apply(op, operands);
  std::uint32_t branch = 0;
  while (code.operation(branch).opcode != direct::Opcode::kBra) ++branch;
  return branch + 1 + code.size() - code.operation(branch).immediate;
}

TEST(DirectQuotientsOfTwoWays, HaveShortWaysOfFewInstructions) {
  EXPECT_EQ(lengthOfShortWay(Op::kDiv), 13U);
  EXPECT_EQ(lengthOfShortWay(Op::kInv), 10U);
  EXPECT_EQ(lengthOfShortWay(Op::kSqrt), 12U);
}

constexpr std::uint32_t kFirstBit = 1U << 23;  ///< the first bit of a significand

/// An estimate that is up to `most` units off, by a number.
float inaccurate(float correct, std::uint32_t number, std::uint32_t most) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(correct) + number % (2 * most + 1) - most);
}

/// Builder::betterReciprocal() of an estimate that is up to six units off. One distance per significand, for time's
/// sake.
float betterReciprocal(float y, std::uint32_t significand) {
  const float estimate = inaccurate(1 / y, significand, 6);
  const float error = std::fma(-y, estimate, 1.0F);
  // The product and sum are exact in long double up to 2^-64 of the error, so a step up is enough.
  const auto exact = static_cast<long double>(error) * error + error;
  float raised = static_cast<float>(exact);
  if (raised < exact) raised = std::nextafter(raised, kInfinity);
  return std::fma(estimate, raised, estimate);
}

// What the proof of the reciprocal rests on: for every significand, the reciprocal that is one step better than
// betterReciprocal() is rounded correctly. The proof of quotients needs that betterReciprocal() is nearly so.
TEST(DirectQuotientsOfTwoWays, HaveCorrectReciprocalsOfAllSignificands) {
  for (std::uint32_t significand = kFirstBit; significand < 2 * kFirstBit; ++significand) {
    const float y = std::ldexp(static_cast<float>(significand), -23), correct = 1 / y;
    const float better = betterReciprocal(y, significand);
    ASSERT_EQ(std::fma(std::fma(-y, better, 1.0F), better, better), correct) << y;
    ASSERT_LE(std::fabs(static_cast<double>(better) - 1 / static_cast<double>(y)), 0x1p-25 * (1 + 0x1p-19)) << y;
  }
}

/// Compares quotients near the middle of two numbers for a divisor b, which is 2^k times an odd number: those whose
/// distance from the middle M / 2^s is |t| 2^k / b units of 2^-s, with |t| 2^k < 8. With b' = b / 2^k, the dividend is
/// (M b' + t) / 2^(s - k), so M is -t / b' modulo 2^(s - k). Returns how many there are.
std::size_t expectQuotientsNearMidpoints(std::uint32_t b) {
  const int k = std::countr_zero(b);
  std::uint32_t inverse = b >> k;  // Newton's iteration doubles the right bits
  for (int i = 0; i < 4; ++i) inverse *= 2 - (b >> k) * inverse;
  const float divisor = std::ldexp(static_cast<float>(b), -23), reciprocal = betterReciprocal(divisor, b);
  std::size_t found = 0;
  for (const int shift : {24 - k, 25 - k}) {
    for (int t = -7; t < 8; t += 2) {
      if (std::abs(t) << k >= 8) continue;
      const std::uint32_t modulus = 1U << shift;
      std::uint32_t middle = (0 - static_cast<std::uint32_t>(t)) * inverse % modulus;
      while (middle < 2 * kFirstBit) middle += modulus;
      for (; middle < 4 * kFirstBit; middle += modulus) {
        const std::int64_t scaled = static_cast<std::int64_t>(middle) * (b >> k) + t;
        const std::int64_t a = scaled >> shift;
        if (a < kFirstBit || a >= 2 * kFirstBit) continue;
        const float dividend = std::ldexp(static_cast<float>(a), -23), first = dividend * reciprocal;
        const float quotient = std::fma(std::fma(-divisor, first, dividend), reciprocal, first);
        if (quotient != dividend / divisor) ADD_FAILURE() << dividend << " / " << divisor;
        ++found;
      }
    }
  }
  return found;
}

// What the proof of quotients rests on: other quotients are not as near to the middle of two numbers.
TEST(DirectQuotientsOfTwoWays, AreCorrectNearMidpointsForAllDivisors) {
  std::size_t found = 0;
  for (std::uint32_t b = kFirstBit; b < 2 * kFirstBit && !::testing::Test::HasFailure(); ++b) {
    if (b % 8 != 0) found += expectQuotientsNearMidpoints(b);
  }
  EXPECT_GT(found, 40'000'000U);
}

// What the proof of roots rests on, for estimates up to four units off.
TEST(DirectQuotientsOfTwoWays, HaveCorrectRootsOfAllSignificands) {
  for (std::uint32_t number = kFirstBit; number < 4 * kFirstBit; number += number < 2 * kFirstBit ? 1 : 2) {
    const float x = std::ldexp(static_cast<float>(number), -23);
    const double exact = std::sqrt(static_cast<double>(x));
    const float estimate = inaccurate(static_cast<float>(1 / exact), number / 2, 4);
    const float g = x * estimate, h = estimate * 0.5F, error = std::fma(-h, g, 0.5F);
    const float root = std::fma(g, error, g), half_reciprocal = std::fma(h, error, h);
    ASSERT_EQ(std::fma(std::fma(-root, root, x), half_reciprocal, root), static_cast<float>(exact)) << x;
  }
}

}  // namespace
}  // namespace srjit

// Quotients and square roots of the direct tier are rounded correctly, for estimates of the special function unit that
// are inaccurate.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/compiler/direct/run.h"
#include "tests/generators/graphs.h"
#include "tests/generators/hard_pairs.h"

namespace srjit {
namespace {

template <class T>
class DirectQuotients : public ::testing::Test {};
using QuotientNumbers = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DirectQuotients, QuotientNumbers);

/// Compares with IEEE 754, for estimates that are exact and that are inaccurate; returns the instructions issued.
template <class T>
std::size_t expectCorrectRounding(const Pairs<T>& pairs, const DirectOptions& options) {
  const Dag dag = ran(
      graphOf({"x0/x1", "inv(x1)", "sqrt(x0)", "sqrt(abs(x1))", "neg(x0)/abs(x1)", "sqrt(neg(x1))"}, options.precision),
      "hoist, schedule", Math::kStrict);
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

const DirectOptions kTwoWays{.math = Math::kStrict, .window = 1, .subroutines = true};

TEST(DirectQuotientsOfTwoWays, AreRoundedCorrectly) {
  expectCorrectRounding<float>(hardPairs(100'000, 0.0F), kTwoWays);
}

// The significands of hard pairs, with exponents of which all warps take the short way; also NaN, which is usual.
TEST(DirectQuotientsOfTwoWays, AreRoundedCorrectlyTheShortWay) {
  Pairs<float> pairs = hardPairs(100'000, 0.0F);
  Random random(9);
  const auto bringNear = [&](float& number) {
    int exponent = 0;
    const float significand = std::frexp(number, &exponent);
    number = !std::isfinite(number) || number == 0 ? std::numeric_limits<float>::quiet_NaN()
                                                   : std::ldexp(significand, random.between(-59, 60));
  };
  std::ranges::for_each(pairs.x, bringNear);
  std::ranges::for_each(pairs.y, bringNear);
  const std::size_t short_way = expectCorrectRounding(pairs, kTwoWays);
  // One lane per warp takes the other way.
  for (std::size_t r = 0; r < pairs.x.size(); r += 32) pairs.y[r] = 0;
  EXPECT_GT(expectCorrectRounding(pairs, kTwoWays), short_way + pairs.x.size() / 32 * 50);
}

// All pairs of numbers at the ends of the range of the short way, and beyond: each is beside usual lanes.
TEST(DirectQuotientsOfTwoWays, AreRoundedCorrectlyAtTheEndsOfTheRange) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> ends = {0, kInfinity, std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()};
  for (const float end : {0x1p-126F, 0x1p-60F, 1.0F, 0x1p60F}) {
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

// What the proof of the reciprocal rests on: for every significand, and estimates up to six units off, the reciprocal
// that is one step better than betterReciprocal() is rounded correctly. One distance per significand, for time's sake.
TEST(DirectQuotientsOfTwoWays, HaveCorrectReciprocalsOfAllSignificands) {
  constexpr std::uint32_t kOne = 0x3f800000, kTwo = 0x40000000, kDistances = 13;
  for (std::uint32_t bits = kOne; bits < kTwo; ++bits) {
    const auto y = std::bit_cast<float>(bits);
    const float correct = 1 / y;
    const float estimate = std::bit_cast<float>(std::bit_cast<std::uint32_t>(correct) + bits % kDistances - 6);
    const float error = std::fma(-y, estimate, 1.0F);
    // The product and sum are exact in long double up to 2^-64 of the error, so a step up is enough.
    const auto exact = static_cast<long double>(error) * error + error;
    float raised = static_cast<float>(exact);
    if (raised < exact) raised = std::nextafter(raised, std::numeric_limits<float>::infinity());
    const float better = std::fma(estimate, raised, estimate);
    ASSERT_EQ(std::fma(std::fma(-y, better, 1.0F), better, better), correct) << y;
  }
}

}  // namespace
}  // namespace srjit

// The programs of elementary functions over the numbers of C++: exceptional arguments, and errors.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numbers>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "ir/numbers/random.h"
#include "ir/ops.h"
#include "ir/real.h"
#include "ir/rows.h"

namespace srjit {
namespace {

using enum Op;

/// Long double has 11 bits more than double. Its functions are within a unit of their own in the last place.
using Wide = long double;

/// A function that is a program, and its value in wide arithmetic. Those of one operand ignore y.
struct Program {
  Op op;
  Function function;
  Wide (*wide)(Wide x, Wide y);
};

const Program kPrograms[] = {
    {kExp, Function::k_exp, [](Wide x, Wide) { return std::exp(x); }},
    {kExp2, Function::k_exp2, [](Wide x, Wide) { return std::exp2(x); }},
    {kExpm1, Function::k_expm1, [](Wide x, Wide) { return std::expm1(x); }},
    {kLog, Function::k_log, [](Wide x, Wide) { return std::log(x); }},
    {kLog2, Function::k_log2, [](Wide x, Wide) { return std::log2(x); }},
    {kLog10, Function::k_log10, [](Wide x, Wide) { return std::log10(x); }},
    {kLog1p, Function::k_log1p, [](Wide x, Wide) { return std::log1p(x); }},
    {kPow, Function::k_pow, [](Wide x, Wide y) { return std::pow(x, y); }},
    {kMod, Function::k_mod, [](Wide x, Wide y) { return real::mod(x, y); }},
    {kSin, Function::k_sin, [](Wide x, Wide) { return std::sin(x); }},
    {kCos, Function::k_cos, [](Wide x, Wide) { return std::cos(x); }},
    {kTan, Function::k_tan, [](Wide x, Wide) { return std::tan(x); }},
    {kCbrt, Function::k_cbrt, [](Wide x, Wide) { return std::cbrt(x); }},
    {kAsin, Function::k_asin, [](Wide x, Wide) { return std::asin(x); }},
    {kAcos, Function::k_acos, [](Wide x, Wide) { return std::acos(x); }},
    {kAtan, Function::k_atan, [](Wide x, Wide) { return std::atan(x); }},
    {kAtan2, Function::k_atan2, [](Wide x, Wide y) { return std::atan2(x, y); }},
    {kSinh, Function::k_sinh, [](Wide x, Wide) { return std::sinh(x); }},
    {kCosh, Function::k_cosh, [](Wide x, Wide) { return std::cosh(x); }},
    {kTanh, Function::k_tanh, [](Wide x, Wide) { return std::tanh(x); }},
    {kAsinh, Function::k_asinh, [](Wide x, Wide) { return std::asinh(x); }},
    {kAcosh, Function::k_acosh, [](Wide x, Wide) { return std::acosh(x); }},
    {kAtanh, Function::k_atanh, [](Wide x, Wide) { return std::atanh(x); }},
    {kErf, Function::k_erf, [](Wide x, Wide) { return std::erf(x); }},
};

TEST(Programs, AreAllTestedHere) {
  for (const FunctionInfo& info : allFunctions()) {
    const auto isIt = [&](const Program& program) { return infoOf(program.function).name == info.name; };
    EXPECT_EQ(info.code == FunctionCode::kProgram, std::ranges::any_of(kPrograms, isIt)) << info.name;
  }
}

template <class T>
class ProgramsIn : public testing::Test {};
using NumberTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(ProgramsIn, NumberTypes);

/// The distance of `got` and the true value in units in the last place of T. Infinity counts as the first number beyond
/// the largest, since results are infinite from half a unit below that number on.
template <class T>
double ulpsBetween(T got, Wide want) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want) ? 0 : HUGE_VAL;
  const Wide beyond = std::ldexp(Wide(1), std::numeric_limits<T>::max_exponent);
  const Wide value = std::clamp(Wide(got), -beyond, beyond), wanted = std::clamp(want, -beyond, beyond);
  const int least = std::numeric_limits<T>::min_exponent - 1, most = std::numeric_limits<T>::max_exponent - 1;
  const int exponent = std::clamp(wanted == 0 ? least : std::ilogb(wanted), least, most);
  return static_cast<double>(std::ldexp(std::fabs(value - wanted), std::numeric_limits<T>::digits - 1 - exponent));
}

template <class T>
void expectWithinBound(const Program& program, T x, T y, double& largest) {
  const T got = applyRow<T>(program.op, x, y, T(0));
  const double error = ulpsBetween(got, program.wide(x, y));
  largest = std::max(largest, error);
  ASSERT_LE(error, ulpsOf(infoOf(program.function), kPrecisionOf<T>))
      << infoOf(program.op).name << "(" << x << ", " << y << ") = " << got;
}

/// An argument of any magnitude, near 1 in magnitude, or near 1.
template <class T>
T argument(Random& random) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  switch (random.between(0, 2)) {
    case 0:
      return std::bit_cast<T>(static_cast<Bits>(random.next()));
    case 1:
      return static_cast<T>(random.magnitude(-10, 10));
    default:
      return static_cast<T>(1 + random.magnitude(-20, -1));
  }
}

TYPED_TEST(ProgramsIn, ErrorsAreBounded) {
  using T = TypeParam;
  for (const Program& program : kPrograms) {
    Random random(101);
    double largest = 0;
    for (int i = 0; i < 150'000; ++i) {
      const T x = argument<T>(random), y = argument<T>(random);
      ASSERT_NO_FATAL_FAILURE(expectWithinBound(program, x, y, largest));
      if (program.op == kPow) {
        // Of results of any magnitude.
        const T base = std::fabs(x);
        const T power = static_cast<T>(random.magnitude(0, std::bit_width(0U + std::numeric_limits<T>::max_exponent)));
        ASSERT_NO_FATAL_FAILURE(expectWithinBound(program, base, power / std::log2(base), largest));
      }
    }
    EXPECT_GT(largest, 0.4) << "no argument is hard";
    testing::Test::RecordProperty(std::string(infoOf(program.op).name), std::to_string(largest));
  }
}

/// Magnitudes at which results overflow, become subnormal, zero or constant, and at which programs change their path:
/// integers and intervals of the reductions, limits of arguments.
template <class T>
std::vector<T> endsOf() {
  using Limits = std::numeric_limits<T>;
  const T least = Limits::denorm_min(), normal = Limits::min(), epsilon = Limits::epsilon(), most = Limits::max();
  std::vector<T> ends = {
      T(0),       least,   normal,   normal * 8, epsilon,  1 / epsilon, most,      most / 4,   T(0x1p-26),
      T(0x1p-55), T(0.25), T(0.5),   T(1),       T(2),     T(10),       T(1) / 3,  T(2) / 3,   T(4) / 3,
      T(0.75),    T(1.25), T(0.875), T(1.125),   T(1.375), T(0x1p64),   T(18),     T(38),      T(89),
      T(104),     T(129),  T(151),   T(710),     T(746),   T(0x1p40),   T(0x1p70), T(0x1p100), T(Limits::max_exponent)};
  for (const T x : {least, normal, epsilon, most}) {
    ends.push_back(std::fabs(std::log(x)));
    ends.push_back(std::fabs(std::log2(x)));
  }
  for (int i = 1; i <= 3; ++i) ends.push_back(static_cast<T>(i * std::log(2) / 2));
  return ends;
}

TYPED_TEST(ProgramsIn, ErrorsAreBoundedAtEnds) {
  using T = TypeParam;
  constexpr T kEnd = std::numeric_limits<T>::infinity();
  for (const Program& program : kPrograms) {
    double largest = 0;
    for (const T end : endsOf<T>()) {
      for (const T sign : {T(1), T(-1)}) {
        T below = sign * end, above = below;
        for (int step = 0; step < 40; ++step) {
          for (const T y : {T(1.5), T(-3), T(0.75), T(24), T(-1.0 / 3)}) {
            ASSERT_NO_FATAL_FAILURE(expectWithinBound(program, below, y, largest));
            ASSERT_NO_FATAL_FAILURE(expectWithinBound(program, above, y, largest));
            if (arityOf(program.op) == 1) break;
          }
          below = std::nextafter(below, -kEnd);
          above = std::nextafter(above, kEnd);
        }
      }
    }
    testing::Test::RecordProperty(std::string(infoOf(program.op).name), std::to_string(largest));
  }
}

/// Values of ISO C, annex F.10.3 or F.10.4.4: first operands with the function's values; and its second operand.
template <class T>
struct Exceptional {
  Op op;
  std::vector<std::array<T, 2>> values;
  T y = 0;
};

template <class T>
void expectAll(std::initializer_list<Exceptional<T>> cases) {
  for (const auto& [op, values, y] : cases) {
    for (const auto& [x, expected] : values) {
      const T got = applyRow<T>(op, x, y, T(0));
      EXPECT_TRUE(sameBits(got, expected)) << infoOf(op).name << "(" << x << ", " << y << ") = " << got;
    }
  }
}

TYPED_TEST(ProgramsIn, OfNanAreNan) {
  using T = TypeParam;
  for (const Program& program : kPrograms) {
    const T got = applyRow<T>(program.op, std::numeric_limits<T>::quiet_NaN(), T(2), T(0));
    EXPECT_TRUE(std::isnan(got)) << infoOf(program.op).name;
  }
}

TYPED_TEST(ProgramsIn, OfOneOperandKeepIsoC) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::infinity();
  constexpr T kNone = std::numeric_limits<T>::quiet_NaN();
  constexpr T kLeast = std::numeric_limits<T>::denorm_min();
  constexpr T kPi = std::numbers::pi_v<T>;
  expectAll<T>(
      {{kExp, {{T(0), 1}, {T(-0.0), 1}, {-kMost, T(0)}, {kMost, kMost}}},
       {kExp2, {{T(0), 1}, {T(-0.0), 1}, {-kMost, T(0)}, {kMost, kMost}, {T(-3), T(0.125)}}},
       {kExpm1, {{T(0), T(0)}, {T(-0.0), T(-0.0)}, {-kMost, -1}, {kMost, kMost}}},
       {kLog, {{T(0), -kMost}, {T(-0.0), -kMost}, {1, T(0)}, {-1, kNone}, {-kMost, kNone}, {kMost, kMost}}},
       {kLog2, {{T(0), -kMost}, {T(-0.0), -kMost}, {1, T(0)}, {-1, kNone}, {kMost, kMost}, {T(0x1p-130), -130}}},
       {kLog10, {{T(0), -kMost}, {T(-0.0), -kMost}, {1, T(0)}, {-1, kNone}, {kMost, kMost}, {10000, 4}}},
       {kLog1p, {{T(0), T(0)}, {T(-0.0), T(-0.0)}, {-1, -kMost}, {-2, kNone}, {-kMost, kNone}, {kMost, kMost}}},
       {kSinh, {{T(0), T(0)}, {T(-0.0), T(-0.0)}, {kMost, kMost}, {-kMost, -kMost}, {kLeast, kLeast}}},
       {kCosh, {{T(0), 1}, {T(-0.0), 1}, {-kMost, kMost}}},
       {kTanh, {{T(-0.0), T(-0.0)}, {T(0), T(0)}, {kMost, 1}, {-kMost, -1}, {-kLeast, -kLeast}, {25, 1}}},
       {kAsinh, {{T(-0.0), T(-0.0)}, {T(0), T(0)}, {-kMost, -kMost}, {kMost, kMost}, {-kLeast, -kLeast}}},
       {kAcosh, {{1, T(0)}, {kMost, kMost}, {T(0.5), kNone}, {-2, kNone}, {-kMost, kNone}}},
       {kAtanh,
        {{T(-0.0), T(-0.0)}, {T(0), T(0)}, {1, kMost}, {-1, -kMost}, {2, kNone}, {-kMost, kNone}, {kLeast, kLeast}}},
       {kAsin,
        {{T(0), T(0)},
         {T(-0.0), T(-0.0)},
         {1, kPi / 2},
         {-1, -kPi / 2},
         {2, kNone},
         {-kMost, kNone},
         {kLeast, kLeast}}},
       {kAcos, {{1, T(0)}, {T(0), kPi / 2}, {-1, kPi}, {T(1.5), kNone}, {kMost, kNone}}},
       {kAtan,
        {{T(0), T(0)}, {T(-0.0), T(-0.0)}, {kMost, kPi / 2}, {-kMost, -kPi / 2}, {-kLeast, -kLeast}, {1, kPi / 4}}},
       {kCbrt,
        {{T(-0.0), T(-0.0)}, {T(0), T(0)}, {-kMost, -kMost}, {kMost, kMost}, {-27, -3}, {T(0x1p-147), T(0x1p-49)}}},
       {kErf, {{T(0), T(0)}, {T(-0.0), T(-0.0)}, {kMost, 1}, {-kMost, -1}, {7, 1}}}});
}

TYPED_TEST(ProgramsIn, ArcsOfTwoNumbersKeepIsoC) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::infinity();
  constexpr T kNone = std::numeric_limits<T>::quiet_NaN();
  constexpr T kLargest = std::numeric_limits<T>::max();
  constexpr T kLeast = std::numeric_limits<T>::denorm_min();
  constexpr T kPi = std::numbers::pi_v<T>;
  // atan2(y, x): x is the ordinate y here, and y the abscissa.
  expectAll<T>({{kAtan2, {{T(0), kPi}, {T(-0.0), -kPi}, {1, kPi / 2}}, T(-0.0)},
                {kAtan2, {{T(0), T(0)}, {T(-0.0), T(-0.0)}, {-1, -kPi / 2}}},
                {kAtan2, {{T(0), kPi}, {T(-0.0), -kPi}}, -1},
                {kAtan2, {{T(0), T(0)}, {T(-0.0), T(-0.0)}, {kNone, kNone}, {kLeast, kLeast}}, 1},
                {kAtan2, {{1, kPi}, {-1, -kPi}, {kLargest, kPi}, {kMost, 3 * kPi / 4}}, -kMost},
                {kAtan2, {{1, T(0)}, {-1, T(-0.0)}, {kLargest, T(0)}, {-kMost, -kPi / 4}}, kMost},
                {kAtan2, {{kMost, kPi / 2}}, 3},
                {kAtan2, {{kMost, kPi / 2}, {kLargest, kPi / 4}}, kLargest},
                {kAtan2, {{-kMost, -kPi / 2}}, -kLargest},
                {kAtan2, {{-kMost, -kPi / 2}}, -3},
                {kAtan2, {{kLeast, kPi / 4}, {std::numeric_limits<T>::max(), kPi / 2}}, kLeast},
                {kAtan2, {{1, kNone}}, kNone}});
}

TYPED_TEST(ProgramsIn, PowersKeepIsoC) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::infinity();
  constexpr T kNone = std::numeric_limits<T>::quiet_NaN();
  expectAll<T>({{kPow, {{T(0), kMost}, {T(-0.0), -kMost}, {-kMost, T(-0.0)}, {-2, T(-0.125)}}, -3},
                {kPow, {{T(-0.0), kMost}, {-kMost, T(0)}}, -4},
                {kPow, {{T(-0.0), kMost}}, T(-2.5)},
                {kPow, {{T(-0.0), kMost}, {-1, 1}, {T(0.5), kMost}, {-2, T(0)}}, -kMost},
                {kPow, {{T(0), T(0)}, {T(-0.0), T(-0.0)}, {-kMost, -kMost}, {-2, -8}, {10, 1000}}, 3},
                {kPow, {{T(-0.0), T(0)}, {-kMost, kMost}, {-2, 16}}, 4},
                {kPow, {{T(-0.0), T(0)}}, T(2.5)},
                {kPow, {{T(-0.0), T(0)}, {-1, 1}, {T(-0.5), T(0)}, {2, kMost}}, kMost},
                {kPow, {{1, 1}, {-1, kNone}, {2, kNone}}, kNone},
                {kPow, {{kNone, 1}, {0, 1}, {3, 1}}},
                {kPow, {{kNone, 1}}, T(-0.0)},
                {kPow, {{-2, kNone}}, std::numeric_limits<T>::denorm_min()},
                {kPow, {{-2, kNone}, {-kMost, kMost}, {kMost, kMost}}, T(0.5)},
                {kPow, {{kMost, T(0)}}, T(-0.5)},
                {kPow, {{-1, -1}}, T(16777215)},
                {kPow, {{-1, 1}}, T(16777216)}});
}

/// % of Python: the remainder of C, and y more if that has the other sign.
template <class T>
T remainderOf(T x, T y) {
  const T remainder = std::fmod(x, y);
  if (remainder == 0) return std::copysign(remainder, y);
  return std::signbit(remainder) == std::signbit(y) ? remainder : remainder + y;
}

template <class T>
void expectRemainder(T x, T y) {
  const T got = applyRow<T>(kMod, x, y, T(0));
  ASSERT_TRUE(sameBits(got, remainderOf(x, y)) || (std::isnan(got) && std::isnan(remainderOf(x, y))))
      << "mod(" << x << ", " << y << ") = " << got << ", not " << remainderOf(x, y);
}

TYPED_TEST(ProgramsIn, RemaindersAreThoseOfPython) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::infinity();
  Random random(102);
  for (int i = 0; i < 100'000; ++i) {
    const T x = argument<T>(random), y = argument<T>(random), factor = static_cast<T>(random.between(0, 1'000'000));
    ASSERT_NO_FATAL_FAILURE(expectRemainder(x, y));
    // Multiples, and their neighbours.
    const T multiple = factor * y;
    for (const T near : {multiple, std::nextafter(multiple, kMost), std::nextafter(multiple, -kMost)}) {
      ASSERT_NO_FATAL_FAILURE(expectRemainder(near, y));
      ASSERT_NO_FATAL_FAILURE(expectRemainder(near, -y));
    }
  }
  std::vector<T> ends = endsOf<T>();
  ends.insert(ends.end(), {kMost, std::numeric_limits<T>::quiet_NaN(), T(1e9), T(7), T(1e17), T(3), T(0.001)});
  for (const T x : ends) {
    for (const T y : ends) {
      for (const T sign : {T(1), T(-1)}) {
        ASSERT_NO_FATAL_FAILURE(expectRemainder(x, sign * y));
        ASSERT_NO_FATAL_FAILURE(expectRemainder(-x, sign * y));
      }
    }
  }
}

TYPED_TEST(ProgramsIn, RemaindersOfExceptionalNumbers) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::infinity();
  constexpr T kNone = std::numeric_limits<T>::quiet_NaN();
  constexpr T kLeast = std::numeric_limits<T>::denorm_min();
  expectAll<T>({{kMod, {{T(1e9), 6}}, 7},
                {kMod, {{T(1e17), 1}, {6, T(0)}, {-6, T(0)}, {T(-0.0), T(0)}, {kMost, kNone}}, 3},
                {kMod, {{6, T(-0.0)}, {T(0), T(-0.0)}}, -3},
                {kMod, {{5, 5}, {-5, kMost}, {kMost, kNone}}, kMost},
                {kMod, {{5, -kMost}}, -kMost},
                {kMod, {{-kLeast, 1}}, 1},
                {kMod, {{7 * kLeast, 3 * kLeast}, {-7 * kLeast, kLeast}}, 4 * kLeast},
                {kMod, {{std::numeric_limits<T>::max(), std::is_same_v<T, float> ? T(0) : 2 * kLeast}}, 3 * kLeast},
                {kMod, {{1, kNone}, {T(0), kNone}}},
                {kMod, {{std::numeric_limits<T>::max(), kNone}}, T(-0.0)},
                {kMod, {{3, kNone}}, kNone}});
}

}  // namespace
}  // namespace srjit

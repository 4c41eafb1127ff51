// The programs of elementary functions over the numbers of C++: exceptional arguments, and errors.
#include <algorithm>
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

/// Long double has 11 bits more than double. Its functions are within a unit of their own in the last place.
using Wide = long double;

/// A function that is a program, and its value in wide arithmetic. Those of one operand ignore y.
struct Program {
  Op op;
  Function function;
  Wide (*wide)(Wide x, Wide y);
};

const Program kPrograms[] = {
    {Op::kExp, Function::k_exp, [](Wide x, Wide) { return std::exp(x); }},
    {Op::kExp2, Function::k_exp2, [](Wide x, Wide) { return std::exp2(x); }},
    {Op::kExpm1, Function::k_expm1, [](Wide x, Wide) { return std::expm1(x); }},
    {Op::kLog, Function::k_log, [](Wide x, Wide) { return std::log(x); }},
    {Op::kLog2, Function::k_log2, [](Wide x, Wide) { return std::log2(x); }},
    {Op::kLog10, Function::k_log10, [](Wide x, Wide) { return std::log10(x); }},
    {Op::kLog1p, Function::k_log1p, [](Wide x, Wide) { return std::log1p(x); }},
    {Op::kPow, Function::k_pow, [](Wide x, Wide y) { return std::pow(x, y); }},
    {Op::kMod, Function::k_mod, [](Wide x, Wide y) { return real::mod(x, y); }},
    {Op::kSin, Function::k_sin, [](Wide x, Wide) { return std::sin(x); }},
    {Op::kCos, Function::k_cos, [](Wide x, Wide) { return std::cos(x); }},
    {Op::kTan, Function::k_tan, [](Wide x, Wide) { return std::tan(x); }},
    {Op::kCbrt, Function::k_cbrt, [](Wide x, Wide) { return std::cbrt(x); }},
    {Op::kAsin, Function::k_asin, [](Wide x, Wide) { return std::asin(x); }},
    {Op::kAcos, Function::k_acos, [](Wide x, Wide) { return std::acos(x); }},
    {Op::kAtan, Function::k_atan, [](Wide x, Wide) { return std::atan(x); }},
    {Op::kAtan2, Function::k_atan2, [](Wide x, Wide y) { return std::atan2(x, y); }},
    {Op::kSinh, Function::k_sinh, [](Wide x, Wide) { return std::sinh(x); }},
    {Op::kCosh, Function::k_cosh, [](Wide x, Wide) { return std::cosh(x); }},
    {Op::kTanh, Function::k_tanh, [](Wide x, Wide) { return std::tanh(x); }},
    {Op::kAsinh, Function::k_asinh, [](Wide x, Wide) { return std::asinh(x); }},
    {Op::kAcosh, Function::k_acosh, [](Wide x, Wide) { return std::acosh(x); }},
    {Op::kAtanh, Function::k_atanh, [](Wide x, Wide) { return std::atanh(x); }},
    {Op::kErf, Function::k_erf, [](Wide x, Wide) { return std::erf(x); }},
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
      if (program.op == Op::kPow) {
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

/// A value of ISO C, annex F.10.3 or F.10.4.4.
template <class T>
struct Exceptional {
  Op op;
  T x, expected, y = 0;
};

template <class T>
void expectAll(std::initializer_list<Exceptional<T>> cases) {
  for (const Exceptional<T>& c : cases) {
    const T got = applyRow<T>(c.op, c.x, c.y, T(0));
    EXPECT_TRUE(sameBits(got, c.expected)) << infoOf(c.op).name << "(" << c.x << ", " << c.y << ") = " << got;
  }
}

TYPED_TEST(ProgramsIn, OfNanAreNan) {
  using T = TypeParam;
  for (const Program& program : kPrograms) {
    const T got = applyRow<T>(program.op, std::numeric_limits<T>::quiet_NaN(), T(2), T(0));
    EXPECT_TRUE(std::isnan(got)) << infoOf(program.op).name;
  }
}

TYPED_TEST(ProgramsIn, ExponentialsKeepIsoC) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::infinity();
  expectAll<T>({
      {Op::kExp, T(0), 1},
      {Op::kExp, T(-0.0), 1},
      {Op::kExp, -kMost, T(0)},
      {Op::kExp, kMost, kMost},
      {Op::kExp2, T(0), 1},
      {Op::kExp2, T(-0.0), 1},
      {Op::kExp2, -kMost, T(0)},
      {Op::kExp2, kMost, kMost},
      {Op::kExp2, T(-3), T(0.125)},
      {Op::kExpm1, T(0), T(0)},
      {Op::kExpm1, T(-0.0), T(-0.0)},
      {Op::kExpm1, -kMost, -1},
      {Op::kExpm1, kMost, kMost},
  });
}

TYPED_TEST(ProgramsIn, LogarithmsKeepIsoC) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::infinity();
  constexpr T kNone = std::numeric_limits<T>::quiet_NaN();
  expectAll<T>({
      {Op::kLog, T(0), -kMost},   {Op::kLog, T(-0.0), -kMost},    {Op::kLog, 1, T(0)},
      {Op::kLog, -1, kNone},      {Op::kLog, -kMost, kNone},      {Op::kLog, kMost, kMost},
      {Op::kLog2, T(0), -kMost},  {Op::kLog2, T(-0.0), -kMost},   {Op::kLog2, 1, T(0)},
      {Op::kLog2, -1, kNone},     {Op::kLog2, kMost, kMost},      {Op::kLog2, T(0x1p-130), -130},
      {Op::kLog10, T(0), -kMost}, {Op::kLog10, T(-0.0), -kMost},  {Op::kLog10, 1, T(0)},
      {Op::kLog10, -1, kNone},    {Op::kLog10, kMost, kMost},     {Op::kLog10, 10000, 4},
      {Op::kLog1p, T(0), T(0)},   {Op::kLog1p, T(-0.0), T(-0.0)}, {Op::kLog1p, -1, -kMost},
      {Op::kLog1p, -2, kNone},    {Op::kLog1p, -kMost, kNone},    {Op::kLog1p, kMost, kMost},
  });
}

TYPED_TEST(ProgramsIn, HyperbolicFunctionsKeepIsoC) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::infinity();
  constexpr T kNone = std::numeric_limits<T>::quiet_NaN();
  constexpr T kLeast = std::numeric_limits<T>::denorm_min();
  expectAll<T>({
      {Op::kSinh, T(0), T(0)},        {Op::kSinh, T(-0.0), T(-0.0)},
      {Op::kSinh, kMost, kMost},      {Op::kSinh, -kMost, -kMost},
      {Op::kSinh, kLeast, kLeast},    {Op::kCosh, T(0), 1},
      {Op::kCosh, T(-0.0), 1},        {Op::kCosh, -kMost, kMost},
      {Op::kTanh, T(-0.0), T(-0.0)},  {Op::kTanh, T(0), T(0)},
      {Op::kTanh, kMost, 1},          {Op::kTanh, -kMost, -1},
      {Op::kTanh, -kLeast, -kLeast},  {Op::kTanh, 25, 1},
      {Op::kAsinh, T(-0.0), T(-0.0)}, {Op::kAsinh, T(0), T(0)},
      {Op::kAsinh, -kMost, -kMost},   {Op::kAsinh, kMost, kMost},
      {Op::kAsinh, -kLeast, -kLeast}, {Op::kAcosh, 1, T(0)},
      {Op::kAcosh, kMost, kMost},     {Op::kAcosh, T(0.5), kNone},
      {Op::kAcosh, -2, kNone},        {Op::kAcosh, -kMost, kNone},
      {Op::kAtanh, T(-0.0), T(-0.0)}, {Op::kAtanh, T(0), T(0)},
      {Op::kAtanh, 1, kMost},         {Op::kAtanh, -1, -kMost},
      {Op::kAtanh, 2, kNone},         {Op::kAtanh, -kMost, kNone},
      {Op::kAtanh, kLeast, kLeast},
  });
}

TYPED_TEST(ProgramsIn, ArcsRootsAndErfKeepIsoC) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::infinity();
  constexpr T kNone = std::numeric_limits<T>::quiet_NaN();
  constexpr T kLeast = std::numeric_limits<T>::denorm_min();
  constexpr T kPi = std::numbers::pi_v<T>;
  expectAll<T>({
      {Op::kAsin, T(0), T(0)},
      {Op::kAsin, T(-0.0), T(-0.0)},
      {Op::kAsin, 1, kPi / 2},
      {Op::kAsin, -1, -kPi / 2},
      {Op::kAsin, 2, kNone},
      {Op::kAsin, -kMost, kNone},
      {Op::kAsin, kLeast, kLeast},
      {Op::kAcos, 1, T(0)},
      {Op::kAcos, T(0), kPi / 2},
      {Op::kAcos, -1, kPi},
      {Op::kAcos, T(1.5), kNone},
      {Op::kAcos, kMost, kNone},
      {Op::kAtan, T(0), T(0)},
      {Op::kAtan, T(-0.0), T(-0.0)},
      {Op::kAtan, kMost, kPi / 2},
      {Op::kAtan, -kMost, -kPi / 2},
      {Op::kAtan, -kLeast, -kLeast},
      {Op::kAtan, 1, kPi / 4},
      {Op::kCbrt, T(-0.0), T(-0.0)},
      {Op::kCbrt, T(0), T(0)},
      {Op::kCbrt, -kMost, -kMost},
      {Op::kCbrt, kMost, kMost},
      {Op::kCbrt, -27, -3},
      {Op::kCbrt, T(0x1p-147), T(0x1p-49)},
      {Op::kErf, T(0), T(0)},
      {Op::kErf, T(-0.0), T(-0.0)},
      {Op::kErf, kMost, 1},
      {Op::kErf, -kMost, -1},
      {Op::kErf, 7, 1},
  });
}

TYPED_TEST(ProgramsIn, ArcsOfTwoNumbersKeepIsoC) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::infinity();
  constexpr T kNone = std::numeric_limits<T>::quiet_NaN();
  constexpr T kLargest = std::numeric_limits<T>::max();
  constexpr T kLeast = std::numeric_limits<T>::denorm_min();
  constexpr T kPi = std::numbers::pi_v<T>;
  // atan2(y, x): x is the ordinate y here, and y the abscissa.
  expectAll<T>({
      {Op::kAtan2, T(0), kPi, T(-0.0)},
      {Op::kAtan2, T(-0.0), -kPi, T(-0.0)},
      {Op::kAtan2, T(0), T(0), T(0)},
      {Op::kAtan2, T(-0.0), T(-0.0), T(0)},
      {Op::kAtan2, T(0), kPi, -1},
      {Op::kAtan2, T(-0.0), -kPi, -1},
      {Op::kAtan2, T(0), T(0), 1},
      {Op::kAtan2, T(-0.0), T(-0.0), 1},
      {Op::kAtan2, -1, -kPi / 2, T(0)},
      {Op::kAtan2, 1, kPi / 2, T(-0.0)},
      {Op::kAtan2, 1, kPi, -kMost},
      {Op::kAtan2, -1, -kPi, -kMost},
      {Op::kAtan2, 1, T(0), kMost},
      {Op::kAtan2, -1, T(-0.0), kMost},
      {Op::kAtan2, kMost, kPi / 2, 3},
      {Op::kAtan2, kMost, kPi / 2, kLargest},
      {Op::kAtan2, -kMost, -kPi / 2, -kLargest},
      {Op::kAtan2, kLargest, kPi, -kMost},
      {Op::kAtan2, kLargest, T(0), kMost},
      {Op::kAtan2, kLargest, kPi / 4, kLargest},
      {Op::kAtan2, -kMost, -kPi / 2, -3},
      {Op::kAtan2, kMost, 3 * kPi / 4, -kMost},
      {Op::kAtan2, -kMost, -kPi / 4, kMost},
      {Op::kAtan2, kLeast, kPi / 4, kLeast},
      {Op::kAtan2, kNone, kNone, 1},
      {Op::kAtan2, 1, kNone, kNone},
      {Op::kAtan2, kLeast, kLeast, 1},
      {Op::kAtan2, std::numeric_limits<T>::max(), kPi / 2, kLeast},
  });
}

TYPED_TEST(ProgramsIn, PowersKeepIsoC) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::infinity();
  constexpr T kNone = std::numeric_limits<T>::quiet_NaN();
  expectAll<T>({
      {Op::kPow, T(0), kMost, -3},
      {Op::kPow, T(-0.0), -kMost, -3},
      {Op::kPow, T(-0.0), kMost, -4},
      {Op::kPow, T(-0.0), kMost, T(-2.5)},
      {Op::kPow, T(-0.0), kMost, -kMost},
      {Op::kPow, T(0), T(0), 3},
      {Op::kPow, T(-0.0), T(-0.0), 3},
      {Op::kPow, T(-0.0), T(0), 4},
      {Op::kPow, T(-0.0), T(0), T(2.5)},
      {Op::kPow, T(-0.0), T(0), kMost},
      {Op::kPow, -1, 1, kMost},
      {Op::kPow, -1, 1, -kMost},
      {Op::kPow, 1, 1, kNone},
      {Op::kPow, kNone, 1, 0},
      {Op::kPow, kNone, 1, T(-0.0)},
      {Op::kPow, -1, kNone, kNone},
      {Op::kPow, 2, kNone, kNone},
      {Op::kPow, -2, kNone, std::numeric_limits<T>::denorm_min()},
      {Op::kPow, -2, kNone, T(0.5)},
      {Op::kPow, T(0.5), kMost, -kMost},
      {Op::kPow, -2, T(0), -kMost},
      {Op::kPow, T(-0.5), T(0), kMost},
      {Op::kPow, 2, kMost, kMost},
      {Op::kPow, -kMost, T(-0.0), -3},
      {Op::kPow, -kMost, T(0), -4},
      {Op::kPow, -kMost, -kMost, 3},
      {Op::kPow, -kMost, kMost, 4},
      {Op::kPow, -kMost, kMost, T(0.5)},
      {Op::kPow, kMost, T(0), T(-0.5)},
      {Op::kPow, kMost, kMost, T(0.5)},
      {Op::kPow, -2, -8, 3},
      {Op::kPow, -2, 16, 4},
      {Op::kPow, -2, T(-0.125), -3},
      {Op::kPow, -1, -1, T(16777215)},
      {Op::kPow, -1, 1, T(16777216)},
      {Op::kPow, 0, 1, 0},
      {Op::kPow, 3, 1, 0},
      {Op::kPow, 10, 1000, 3},
  });
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
  const T got = applyRow<T>(Op::kMod, x, y, T(0));
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
    // Multiples, and what is beside them.
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
  expectAll<T>({
      {Op::kMod, T(1e9), 6, 7},
      {Op::kMod, T(1e17), 1, 3},
      {Op::kMod, 6, T(0), 3},
      {Op::kMod, -6, T(0), 3},
      {Op::kMod, 6, T(-0.0), -3},
      {Op::kMod, T(0), T(-0.0), -3},
      {Op::kMod, T(-0.0), T(0), 3},
      {Op::kMod, 5, 5, kMost},
      {Op::kMod, -5, kMost, kMost},
      {Op::kMod, 5, -kMost, -kMost},
      {Op::kMod, -kLeast, 1, 1},
      {Op::kMod, 7 * kLeast, 3 * kLeast, 4 * kLeast},
      {Op::kMod, -7 * kLeast, kLeast, 4 * kLeast},
      {Op::kMod, std::numeric_limits<T>::max(), std::is_same_v<T, float> ? T(0) : 2 * kLeast, 3 * kLeast},
      {Op::kMod, 1, kNone, T(0)},
      {Op::kMod, T(0), kNone, T(0)},
      {Op::kMod, std::numeric_limits<T>::max(), kNone, T(-0.0)},
      {Op::kMod, kMost, kNone, 3},
      {Op::kMod, kMost, kNone, kMost},
      {Op::kMod, 3, kNone, kNone},
  });
}

}  // namespace
}  // namespace srjit

// The float64 reference and its error bounds, against arithmetic that kernels may use.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "ir/reference.h"
#include "ir/text.h"
#include "tests/generators/data.h"
#include "tests/ir/domains.h"

namespace srjit {
namespace {

/// A float whose functions are rounded to either side, with errors of up to 1 ulp, the most that the error bound
/// permits.
struct Noisy {
  Noisy() = default;
  explicit Noisy(double v) : value(static_cast<float>(v)) {}
  float value = 0;

  static inline Random* random = nullptr;
  static Noisy sloppy(double exact, double ulp) {
    float v = static_cast<float>(exact);
    if (ulp < 1 || !std::isfinite(v) || v == 0 || random->chance(0.5)) return of(v);
    if (wide(v) < exact) return of(std::nextafter(v, HUGE_VALF));
    return of(wide(v) > exact ? std::nextafter(v, -HUGE_VALF) : v);
  }
  static double wide(float v) { return static_cast<double>(v); }
  static Noisy of(float v) { return Noisy(static_cast<double>(v)); }

  friend Noisy operator+(const Noisy& x, const Noisy& y) { return of(x.value + y.value); }
  friend Noisy operator-(const Noisy& x, const Noisy& y) { return of(x.value - y.value); }
  friend Noisy operator*(const Noisy& x, const Noisy& y) { return of(x.value * y.value); }
  friend Noisy operator/(const Noisy& x, const Noisy& y) { return of(x.value / y.value); }
  friend Noisy operator-(const Noisy& x) { return of(-x.value); }
  friend bool lt(const Noisy& x, const Noisy& y) { return x.value < y.value; }
  friend bool le(const Noisy& x, const Noisy& y) { return x.value <= y.value; }
  friend bool eq(const Noisy& x, const Noisy& y) { return x.value == y.value; }
  friend Noisy select(bool mask, const Noisy& x, const Noisy& y) { return mask ? x : y; }
  friend Noisy abs(const Noisy& x) { return of(std::fabs(x.value)); }
  friend Noisy copysign(const Noisy& x, const Noisy& y) { return of(std::copysign(x.value, y.value)); }
  friend Noisy minimum(const Noisy& x, const Noisy& y) { return of(real::minimum(x.value, y.value)); }
  friend Noisy maximum(const Noisy& x, const Noisy& y) { return of(real::maximum(x.value, y.value)); }
  friend Noisy floor(const Noisy& x) { return of(std::floor(x.value)); }
  friend Noisy ceil(const Noisy& x) { return of(std::ceil(x.value)); }
  friend Noisy rint(const Noisy& x) { return of(std::rint(x.value)); }
  friend Noisy sqrt(const Noisy& x) { return of(std::sqrt(x.value)); }
  friend Noisy fma(const Noisy& x, const Noisy& y, const Noisy& z) { return of(std::fma(x.value, y.value, z.value)); }
};

double wide(const Noisy& x) { return static_cast<double>(x.value); }

#define SRJIT_FUNCTION(id, arity, code, ulp_f32, ...) SRJIT_DEFINE_##code(id, arity, ulp_f32)
#define SRJIT_DEFINE_kOperation(id, arity, ulp)
#define SRJIT_DEFINE_kProgram(id, arity, ulp) SRJIT_DEFINE_##arity(id, ulp)
#define SRJIT_DEFINE_1(id, ulp) \
  [[maybe_unused]] Noisy id(const Noisy& x) { return Noisy::sloppy(real::id(wide(x)), ulp); }
#define SRJIT_DEFINE_2(id, ulp) \
  [[maybe_unused]] Noisy id(const Noisy& x, const Noisy& y) { return Noisy::sloppy(real::id(wide(x), wide(y)), ulp); }
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_DEFINE_kOperation
#undef SRJIT_DEFINE_kProgram
#undef SRJIT_DEFINE_1
#undef SRJIT_DEFINE_2

}  // namespace

/// Whether a kernel's result is within a bound.
static bool keeps(const Bounded& bound, long double kernel) {
  if (std::isinf(bound.error)) return true;
  if (std::isnan(bound.value)) return std::isnan(kernel);
  if (std::isinf(bound.value)) return kernel == static_cast<long double>(bound.value);
  return std::fabs(kernel - static_cast<long double>(bound.value)) <= static_cast<long double>(bound.error);
}

namespace {

Bounded boundOf(std::string_view infix, std::vector<double> variables, Precision precision,
                Math math = Math::kPrecise) {
  const auto e = parse(infix, Language::kInfix);
  EXPECT_TRUE(e) << infix;
  return evaluateBounded(*e, variables, {}, {precision, math});
}

struct Row {
  std::vector<double> variables;
  std::vector<double> parameters;
};

Row randomRow(Random& random, Spread spread, Precision precision) {
  Row row;
  for (int i = 0; i < 4; ++i) row.variables.push_back(randomValue(random, spread, precision));
  for (int i = 0; i < 2; ++i) row.parameters.push_back(randomValue(random, spread, precision));
  return row;
}

GeneratorOptions allKinds(std::uint64_t seed, int max_nodes) {
  return {.seed = seed,
          .min_nodes = 1,
          .max_nodes = max_nodes,
          .variables = 4,
          .parameters = 2,
          .parameter_probability = 0.2,
          .special_probability = 0.1};
}

TEST(Reference, EqualsHandWrittenValues) {
  const auto e = parse("x0 ^ 2 - p0 * sin(x1) / 4", Language::kInfix);
  ASSERT_TRUE(e);
  const double variables[] = {3, 0.5};
  const double parameters[] = {2};
  EXPECT_EQ(evaluateReference(*e, variables, parameters), 9 - 2 * std::sin(0.5) / 4);
}

TEST(Reference, EvaluatesAMillionLevelsAndAStackOfAMillion) {
  std::vector<Token> chain(1'000'001, Token::operation(Op::kNeg));
  chain[0] = Token::variable(0);
  const auto deep = Expression::create(std::move(chain));
  const double variables[] = {1.5};
  EXPECT_EQ(evaluateReference(*deep, variables, {}), 1.5);

  std::vector<Token> comb(500'001, Token::variable(0));
  comb.insert(comb.end(), 500'000, Token::operation(Op::kAdd));
  const auto high = Expression::create(std::move(comb));
  EXPECT_EQ(evaluateReference(*high, variables, {}), 1.5 * 500'001);
  EXPECT_EQ(evaluateBounded(*high, variables, {}, {}).value, 1.5 * 500'001);
}

TEST(Bounds, HoldForFloatAndForInaccurateFunctions) {
  Random random(3);
  Random noise(4);
  Noisy::random = &noise;
  ExpressionGenerator generator(allKinds(5, 14));
  int promised = 0;
  constexpr int kCount = 60'000;
  for (int i = 0; i < kCount; ++i) {
    const Expression e = generator.next();
    const Row row = randomRow(random,
                              i % 3 == 0   ? Spread::kSpecial
                              : i % 3 == 1 ? Spread::kWide
                                           : Spread::kTame,
                              Precision::kF32);
    const Bounded bound = evaluateBounded(e, row.variables, row.parameters, {Precision::kF32, Math::kPrecise});
    const auto plain = static_cast<double>(evaluateAs<float>(e, row.variables, row.parameters));
    const double noisy = wide(evaluateAs<Noisy>(e, row.variables, row.parameters));
    const double reference = evaluateReference(e, row.variables, row.parameters);
    ASSERT_TRUE(bound.value == reference || (std::isnan(bound.value) && std::isnan(reference)))
        << print(e, Language::kInfix);
    ASSERT_TRUE(keeps(bound, plain)) << print(e, Language::kInfix) << " gives " << plain << ", bound " << bound.value
                                     << " +- " << bound.error << ", case " << i;
    ASSERT_TRUE(keeps(bound, noisy)) << print(e, Language::kInfix) << " gives " << noisy << ", bound " << bound.value
                                     << " +- " << bound.error << ", case " << i;
    promised += std::isfinite(bound.error) ? 1 : 0;
  }
  EXPECT_GT(promised, kCount * 6 / 10) << "infinite bounds test nothing";
}

TEST(Bounds, HoldForLongDouble) {
  // Arithmetic more accurate than double stays within the bound too, since the bound includes the reference's own
  // rounding.
  Random random(13);
  ExpressionGenerator generator(allKinds(15, 14));
  for (int i = 0; i < 30'000; ++i) {
    const Expression e = generator.next();
    const Row row = randomRow(random, i % 2 == 0 ? Spread::kWide : Spread::kTame, Precision::kF64);
    const long double better = evaluateAs<long double>(e, row.variables, row.parameters);
    // Beyond the range of double, long double does not model a kernel.
    if (std::fabs(better) > 1e308L || (better != 0 && std::fabs(better) < 1e-307L)) continue;
    const Bounded bound = evaluateBounded(e, row.variables, row.parameters, {Precision::kF64, Math::kPrecise});
    ASSERT_TRUE(keeps(bound, better)) << print(e, Language::kInfix) << " gives " << static_cast<double>(better)
                                      << ", bound " << bound.value << " +- " << bound.error << ", case " << i;
  }
}

TEST(Bounds, FastContainsPrecise) {
  Random random(23);
  ExpressionGenerator generator(allKinds(25, 10));
  for (int i = 0; i < 20'000; ++i) {
    const Expression e = generator.next();
    const Row row = randomRow(random, Spread::kTame, Precision::kF32);
    const auto plain = static_cast<double>(evaluateAs<float>(e, row.variables, row.parameters));
    const Bounded fast = evaluateBounded(e, row.variables, row.parameters, {Precision::kF32, Math::kFast});
    ASSERT_TRUE(keeps(fast, plain)) << print(e, Language::kInfix) << " gives " << plain << ", bound " << fast.value
                                    << " +- " << fast.error << ", case " << i;
    EXPECT_TRUE(std::isinf(fast.error) || std::isfinite(fast.value));
  }
}

double medianRelativeBound(std::vector<Op> ops, Precision precision, Math math) {
  ExpressionGenerator generator({.min_nodes = 7, .max_nodes = 15, .variables = 4, .ops = std::move(ops)});
  Random random(1);
  std::vector<double> bounds;
  for (int i = 0; i < 4000; ++i) {
    const Row row = randomRow(random, Spread::kTame, precision);
    const Bounded b = evaluateBounded(generator.next(), row.variables, {}, {precision, math});
    bounds.push_back(b.value == 0 ? 0 : b.error / std::fabs(b.value));
  }
  std::ranges::nth_element(bounds, bounds.begin() + 2000);
  return bounds[2000];
}

TEST(Bounds, AreTight) {
  const std::vector<Op> arithmetic = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv};
  EXPECT_LT(medianRelativeBound(arithmetic, Precision::kF32, Math::kPrecise), 1e-6);
  EXPECT_LT(medianRelativeBound(arithmetic, Precision::kF64, Math::kPrecise), 4e-15);
  const std::vector<Op> mixed = {Op::kAdd, Op::kMul, Op::kDiv, Op::kExp, Op::kSin, Op::kTanh, Op::kAtan, Op::kSquare};
  EXPECT_LT(medianRelativeBound(mixed, Precision::kF32, Math::kPrecise), 1e-5);
  EXPECT_LT(medianRelativeBound(mixed, Precision::kF32, Math::kFast), 1e-3);
  EXPECT_LT(medianRelativeBound(mixed, Precision::kF64, Math::kPrecise), 1e-14);
}

TEST(Bounds, DetectAPlantedError) {
  // A wrong rounding in the last place of an intermediate result is within the bound; a wrong sixth digit of a constant
  // is not.
  const auto right = parse("sin(x0) * 0.693147 + x1 / 3", Language::kInfix);
  const auto wrong = parse("sin(x0) * 0.693148 + x1 / 3", Language::kInfix);
  const double variables[] = {1.25, 0.5};
  const Bounded bound = evaluateBounded(*right, variables, {}, {Precision::kF32, Math::kPrecise});
  EXPECT_TRUE(keeps(bound, evaluateAs<float>(*right, variables, {})));
  EXPECT_FALSE(keeps(bound, evaluateAs<float>(*wrong, variables, {})));
  const auto other = parse("sin(x0) * 0.693147 - x1 / 3", Language::kInfix);
  EXPECT_FALSE(keeps(bound, evaluateAs<float>(*other, variables, {})));
}

TEST(Bounds, AreZeroForCertainExceptionalValues) {
  const auto expectSure = [](std::string_view infix, std::vector<double> variables, double expected) {
    const Bounded b = boundOf(infix, std::move(variables), Precision::kF32);
    EXPECT_EQ(b.error, 0) << infix;
    EXPECT_TRUE(b.value == expected || (std::isnan(b.value) && std::isnan(expected))) << infix << " is " << b.value;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expectSure("log(x0)", {-1}, nan);
  expectSure("log(x0)", {0}, -kInfinity);
  expectSure("sqrt(x0 * 0.1)", {-1}, nan);
  expectSure("1 / x0", {0}, kInfinity);
  expectSure("1 / (x0 - x0)", {3}, kInfinity);
  expectSure("x0 + x1", {kInfinity, 1}, kInfinity);
  expectSure("x0 - x0", {kInfinity}, nan);
  expectSure("(-2) ^ x0", {0.5}, nan);
  expectSure("lt(x0, 0)", {1}, 0);
}

TEST(Bounds, AreInfiniteAtPolesAndOutOfRange) {
  const auto lost = [](std::string_view infix, std::vector<double> variables, Math math = Math::kPrecise) {
    return std::isinf(boundOf(infix, std::move(variables), Precision::kF32, math).error);
  };
  EXPECT_TRUE(lost("1 / (0.1 + x0 - 0.3)", {0.2}));
  EXPECT_TRUE(lost("log(0.1 + x0 - 0.3)", {0.2}));
  EXPECT_TRUE(lost("exp(x0)", {100}));
  EXPECT_TRUE(lost("x0 * x0", {1e30}));
  EXPECT_TRUE(lost("tan(x0 + 0.1)", {1.5707963 - 0.1}));
  EXPECT_TRUE(lost("1e39", {}));
  EXPECT_TRUE(lost("log(x0)", {0}, Math::kFast)) << "fast rewrites may change exceptional values";
  EXPECT_FALSE(lost("x0 * x0", {1e18}));
  // sin(1e300) is NaN in f32, since 1e300 is infinite there, so even -inf is not less or equal.
  EXPECT_GE(boundOf("le(log(x0), sin(1e300))", {0}, Precision::kF32).error, 1);
  // A tiny number of unknown sign rounds to a zero of unknown sign.
  EXPECT_TRUE(lost("1 / round(x0 + x1 - 0.3)", {0.1f, 0.2f}));
}

TEST(Bounds, CoverBothSidesOfADiscontinuity) {
  // 0.1 + 0.2 is above or below 0.3, depending on the precision.
  const Bounded b = boundOf("lt(0.3, x0 + x1)", {0.1f, 0.2f}, Precision::kF32);
  EXPECT_GE(b.error, 1);
  EXPECT_LT(b.error, 1.001);
  const Bounded f = boundOf("floor(x0 * 10)", {0.1}, Precision::kF32);
  EXPECT_NEAR(f.error, 1, 1e-9);
  // The divisor is 2 or 1, so the quotient is 0.5 or 1: twice the difference that the slope at 2 predicts.
  EXPECT_GE(boundOf("1 / (1 + floor(x0 * 10))", {0.1f}, Precision::kF32).error, 0.5);
  EXPECT_EQ(boundOf("floor(x0 + 2)", {3}, Precision::kF32).error, 0) << "sums of small integers are exact";
}

TEST(Bounds, CoverFlushedSubnormalsInFast) {
  const Bounded fast = boundOf("x0 * x1", {0x1p-100f, 0x1p-30f}, Precision::kF32, Math::kFast);
  EXPECT_GE(fast.error, fast.value);
  const Bounded precise = boundOf("x0 * x1", {0x1p-100f, 0x1p-30f}, Precision::kF32);
  EXPECT_LT(precise.error, fast.value / 2);
}

}  // namespace
}  // namespace srjit

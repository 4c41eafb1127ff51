// Every row of simplify.def against the guarantees of its class.

#include <algorithm>
#include <array>
#include <map>

#include <gtest/gtest.h>

#include "passes/rules/rewriter.h"
#include "passes/rules/tables.h"
#include "tests/generators/graphs.h"
#include "tests/ir/domains.h"

namespace srjit {
namespace {

/// Values of the wildcards of a rule.
template <class T>
struct Point {
  std::array<T, 3> x{};
  std::array<T, 2> p{};
};

/// The value of a term at a point; `*largest` becomes at least the largest magnitude of its subterms.
template <class T>
T valueAt(const Expression& term, const Point<T>& point, T* largest = nullptr) {
  const auto seen = [&](T value) {
    if (largest != nullptr) *largest = std::max(*largest, std::fabs(value));
    return value;
  };
  const auto leaf = [&](const Token& token) {
    if (token.kind == Token::Kind::kConstant) return seen(static_cast<T>(token.value));
    return seen(token.kind == Token::Kind::kVariable ? point.x[token.index] : point.p[token.index]);
  };
  return foldPostfix<T>(term.tokens(), leaf,
                        [&](Op op, std::span<const T> operands) { return seen(rowOf<T>(op, operands)); });
}

/// Checks all combinations of special numbers for the wildcards of the pattern, then random bits.
template <class T, class Check>
void forHardPoints(const Rule& rule, const Check& check) {
  const std::vector<T> special = specialNumbers<T>();
  const std::size_t xs = rule.pattern.variableCount(), ps = rule.pattern.parameterCount();
  std::size_t combinations = 1;
  for (std::size_t i = 0; i < xs + ps; ++i) combinations *= special.size();
  const auto part = [&](std::size_t combination, std::size_t position) {
    for (; position > 0; --position) combination /= special.size();
    return special[combination % special.size()];
  };
  const std::size_t step = combinations > 100'000 ? 7 : 1;
  for (std::size_t c = 0; c < combinations; c += step) {
    Point<T> point;
    for (std::size_t i = 0; i < xs; ++i) point.x[i] = part(c, i);
    for (std::size_t i = 0; i < ps; ++i) point.p[i] = part(c, xs + i);
    check(point);
  }
  Random random(13);
  for (int i = 0; i < 3000; ++i) {
    Point<T> point;
    for (T& x : point.x) x = i % 3 == 0 ? anyBits<T>(random) : static_cast<T>(randomValue(random, Spread::kWide));
    for (T& p : point.p) p = i % 2 == 0 ? anyBits<T>(random) : static_cast<T>(randomValue(random, Spread::kWide));
    // Powers of two, which some conditions require.
    if (i % 5 == 0) point.p[0] = std::ldexp(T(1), random.between(-20, 20));
    check(point);
  }
}

/// Whether a rule of the table applies to these constants.
template <class T>
bool conditionOf(const Rule& rule, const std::array<T, 2>& p, Precision precision) {
  return conditionHolds(static_cast<std::size_t>(&rule - allRules().data()), p[0], p[1], precision);
}

template <class T>
bool withinUlps(T a, T b, T ulps) {
  if (std::isnan(a) || std::isnan(b) || std::isinf(a) || std::isinf(b) || (a == 0 && b == 0)) return sameBits(a, b);
  const T ulp = std::max(std::fabs(b) * std::numeric_limits<T>::epsilon(), std::numeric_limits<T>::denorm_min());
  return std::fabs(a - b) <= ulps * ulp;
}

template <class T>
void checkHard(const Rule& rule, Precision precision, T ulps) {
  std::size_t checked = 0;
  forHardPoints<T>(rule, [&](const Point<T>& point) {
    if (testing::Test::HasFatalFailure() || !conditionOf(rule, point.p, precision)) return;
    ++checked;
    const T a = valueAt(rule.pattern, point), b = valueAt(rule.replacement, point);
    ASSERT_TRUE(ulps == 0 ? sameBits(a, b) : withinUlps(b, a, ulps))
        << rule.pattern_text << " -> " << rule.replacement_text << ": " << a << " became " << b << " at x "
        << point.x[0] << ' ' << point.x[1] << ' ' << point.x[2] << " p " << point.p[0] << ' ' << point.p[1];
  });
  EXPECT_GT(checked, 20u);
}

void keepsWhatItsClassPromises(const Rule& rule) {
  if (rule.mode == Math::kFast) return;  // holdsInRealArithmetic checks these
  const bool exact = rule.mode == Math::kStrict;
  checkHard<float>(rule, Precision::kF32, exact ? 0.0f : 3.0f);
  checkHard<double>(rule, Precision::kF64, exact ? 0.0 : 3.0);
}

void holdsInRealArithmetic(const Rule& rule) {
  Random random(17);
  int finite = 0;
  for (int i = 0; i < 4000; ++i) {
    Point<double> point;
    for (double& x : point.x) x = random.between(-2.0, 2.0);
    for (double& p : point.p) p = i % 2 == 0 ? std::ldexp(1, random.between(-2, 2)) : random.between(-2.0, 2.0);
    if (i % 8 == 0) point.p[0] = 0.0001;  // inside the guarded regions of protected operators
    if (!conditionOf(rule, point.p, Precision::kF64)) continue;
    double largest = 1;
    const double a = valueAt(rule.pattern, point, &largest), b = valueAt(rule.replacement, point, &largest);
    if (!std::isfinite(a) || largest > 1e6) continue;
    ++finite;
    ASSERT_NEAR(a, b, 1e-13 * largest * largest) << rule.pattern_text << " -> " << rule.replacement_text;
  }
  EXPECT_GT(finite, 100) << rule.pattern_text;
}

int weightOf(Op op) {
  static const std::map<Op, int> light = {
      {Op::kAdd, 3},    {Op::kSub, 4},    {Op::kMul, 2},    {Op::kNeg, 2},    {Op::kAbs, 2},   {Op::kSquare, 2},
      {Op::kCube, 3},   {Op::kInv, 7},    {Op::kDiv, 8},    {Op::kSqrt, 8},   {Op::kPsqrt, 8}, {Op::kLooseSqrt, 9},
      {Op::kMin, 3},    {Op::kMax, 3},    {Op::kLt, 2},     {Op::kLe, 2},     {Op::kGt, 3},    {Op::kGe, 3},
      {Op::kLtSign, 3}, {Op::kLeSign, 3}, {Op::kGtSign, 3}, {Op::kGeSign, 3}, {Op::kIf, 3},    {Op::kSign, 3},
      {Op::kCeil, 3},   {Op::kFloor, 3},  {Op::kRound, 3},  {Op::kFma, 6}};
  static const std::map<Op, int> heavy = {{Op::kPow, 60}, {Op::kLoosePow, 60}, {Op::kAtan2, 40}};
  if (const auto found = light.find(op); found != light.end()) return found->second;
  if (const auto found = heavy.find(op); found != heavy.end()) return found->second;
  return 20;
}

/// The weight of a term; an operator over only constants will be one constant.
int weightOf(const Expression& term) {
  using Weight = std::pair<int, bool>;  // and whether it is constant
  const auto leaf = [](const Token& token) { return Weight{1, token.kind != Token::Kind::kVariable}; };
  const auto apply = [](Op op, std::span<const Weight> operands) {
    if (std::ranges::all_of(operands, &Weight::second)) return Weight{1, true};
    Weight own{weightOf(op), false};
    for (const Weight& operand : operands) own.first += operand.first;
    return own;
  };
  return foldPostfix<Weight>(term.tokens(), leaf, apply).first;
}

std::map<std::uint32_t, int> wildcardsOf(const Expression& term) {
  std::map<std::uint32_t, int> counts;
  for (const Token& token : term.tokens()) {
    if (token.kind == Token::Kind::kVariable) ++counts[token.index];
  }
  return counts;
}

void reducesTheWeight(const Rule& rule) {
  EXPECT_LT(weightOf(rule.replacement), weightOf(rule.pattern)) << rule.pattern_text;
  auto available = wildcardsOf(rule.pattern);
  for (const auto& [wildcard, count] : wildcardsOf(rule.replacement)) {
    EXPECT_LE(count, available[wildcard]) << rule.pattern_text << " doubles x" << wildcard;
  }
  EXPECT_LE(rule.replacement.parameterCount(), rule.pattern.parameterCount());
}

void hasTheFormThatTheEngineMatches(const Rule& rule) {
  EXPECT_EQ(rule.pattern.tokens().back().kind, Token::Kind::kOp);
  EXPECT_LE(rule.pattern.variableCount(), 3u);
  EXPECT_LE(rule.pattern.parameterCount(), 2u);
  for (const Token& token : rule.pattern.tokens()) {
    if (token.kind != Token::Kind::kConstant) continue;
    EXPECT_EQ(token.value, double{static_cast<float>(token.value)});
  }
}

/// An instance of the pattern, over variables and literals that satisfy the condition.
Expression instanceOf(const Rule& rule, Random& random) {
  std::array<double, 2> p{};
  do {
    for (double& literal : p)
      literal = random.below(3) == 0 ? 0.5 : double{static_cast<float>(random.between(-2.0, 2.0))};
    if (random.below(8) == 0) p[0] = 0.0001;
  } while (!conditionOf(rule, p, Precision::kF32));
  std::vector<Token> tokens(rule.pattern.tokens().begin(), rule.pattern.tokens().end());
  for (Token& token : tokens) {
    if (token.kind == Token::Kind::kParameter) token = Token::constant(p[token.index]);
  }
  return Expression::create(std::move(tokens)).value();
}

void fires(const Rule& rule) {
  Random random(19);
  for (int i = 0; i < 20; ++i) {
    const Expression instance = instanceOf(rule, random);
    const Dag before = graphOf(instance, Precision::kF32);
    const Dag after = simplified(before, rule.mode);
    ASSERT_LT(weightOf(after.toExpression(0).value()), weightOf(instance)) << textOf(instance);
    // The inner terms of the pattern are in normal form, or the pattern would never match.
    const auto starts = subtreeStarts(instance.tokens());
    for (std::size_t t = 0; t + 1 < instance.size(); ++t) {
      std::vector<Token> inner(instance.tokens().begin() + starts[t],
                               instance.tokens().begin() + static_cast<long>(t) + 1);
      const Expression term = Expression::create(std::move(inner)).value();
      const Dag graph = graphOf(term, Precision::kF32);
      ASSERT_TRUE(simplified(graph, rule.mode).toExpression(0).value() == graph.toExpression(0).value())
          << rule.pattern_text << " holds " << textOf(term);
    }
  }
}

void forEachRule(void (*check)(const Rule&)) {
  for (const Rule& rule : allRules()) {
    SCOPED_TRACE(std::string(rule.pattern_text) + " -> " + std::string(rule.replacement_text));
    check(rule);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(SimplifyRules, PreserveWhatTheirClassGuarantees) { forEachRule(keepsWhatItsClassPromises); }
TEST(SimplifyRules, HoldInRealArithmetic) { forEachRule(holdsInRealArithmetic); }
TEST(SimplifyRules, ReduceTheWeight) { forEachRule(reducesTheWeight); }
TEST(SimplifyRules, HaveTheFormThatMatchingNeeds) { forEachRule(hasTheFormThatTheEngineMatches); }
TEST(SimplifyRules, MatchTheirOwnPattern) { forEachRule(fires); }

/// Root 0 in normal form by the rules of `mode`.
std::string simple(std::string_view text, Math mode, Precision precision = Precision::kF32) {
  return textOf(simplified(graphOf({text}, precision), mode));
}

TEST(Simplify, RulesApplyToResultsOfRules) {
  EXPECT_EQ(simple("-(-(x0 * 1)) - 0", Math::kStrict), "x0");
  EXPECT_EQ(simple("x0 / 4", Math::kStrict), "x0 * 0.25");
  EXPECT_EQ(simple("x0 * x0 * x0", Math::kStrict), "cube(x0)");
  EXPECT_EQ(simple("1 / (1 + exp(-x0))", Math::kStrict), "logistic(x0)");
  EXPECT_EQ(simple("x0 ^ 2 * x0", Math::kPrecise), "cube(x0)");
  EXPECT_EQ(simple("((x0 + 1) + 2) - 3", Math::kFast), "x0");
  EXPECT_EQ(simple("sin(x0 - x0) + x1", Math::kFast), "x1");
}

TEST(Simplify, ComputesConstantsInThePrecisionOfTheGraph) {
  EXPECT_EQ(simple("0.1 + 0.2", Math::kStrict, Precision::kF64), "0.30000000000000004");
  const Dag narrow = simplified(graphOf({"0.1 + 0.2"}, Precision::kF32), Math::kStrict);
  EXPECT_EQ(narrow.node(narrow.roots()[0]).value, double{0.1f + 0.2f});
  const Dag sine = simplified(graphOf({"sin(1)"}, Precision::kF32), Math::kFast);
  EXPECT_EQ(sine.node(sine.roots()[0]).value, double{real::sin(1.0F)}) << "the precise value in every mode";
  EXPECT_EQ(simplified(graphOf({"(1 + 2) * 3"}), Math::kStrict).size(), 1u) << "no dead nodes are left";
  EXPECT_EQ(simple("floor(sin(1 + 1) * 8)", Math::kStrict), "7");
  // 0.001 in f32 is above 0.001 in f64, but not above the f32 threshold of the row.
  EXPECT_EQ(simple("plog(0.001)", Math::kFast), "0");
}

/// Every operator over all pairs of special numbers: the computed value equals the row's in the kernel's precision.
template <class T>
void computesTheKernelsBits() {
  const std::vector<T> numbers = specialNumbers<T>();
  for (const Op op : allOperators()) {
    for (const T x : numbers) {
      for (const T y : numbers) {
        const T z = numbers[(nameHashOf(op) + static_cast<std::size_t>(&y - numbers.data())) % numbers.size()];
        const std::array<double, 3> operands = {double{x}, double{y}, double{z}};
        const auto used = std::span(operands).first(static_cast<std::size_t>(arityOf(op)));
        const T expected = applyRow<T>(op, x, arityOf(op) > 1 ? y : T(0), arityOf(op) > 2 ? z : T(0));
        ASSERT_TRUE(sameBits(static_cast<T>(valueOf(op, used, kPrecisionOf<T>)), expected))
            << infoOf(op).name << ' ' << x << ' ' << y << ' ' << z;
      }
    }
  }
}

TEST(Simplify, ConstantsHaveTheBitsOfTheKernel) {
  computesTheKernelsBits<float>();
  computesTheKernelsBits<double>();
}

// The rules of an operator, in each order of the operands of commutative operators, are a set of 64 bits.
TEST(Simplify, AnOperatorHasAtMost64Patterns) {
  const auto commutes = [](const Token& token) {
    return token.kind == Token::Kind::kOp && infoOf(token.op).has(OpProps::kCommutative);
  };
  std::map<Op, int> patterns;
  for (const Rule& rule : allRules()) {
    patterns[rule.pattern.tokens().back().op] += 1 << std::ranges::count_if(rule.pattern.tokens(), commutes);
  }
  for (const auto& [op, count] : patterns) EXPECT_LE(count, 64) << infoOf(op).name;
}

TEST(Simplify, ReplacementsHaveFewSteps) {
  const auto isStep = [](const Token& token) {
    return token.kind == Token::Kind::kOp || token.kind == Token::Kind::kConstant;
  };
  for (const Rule& rule : allRules()) {
    EXPECT_LE(std::ranges::count_if(rule.replacement.tokens(), isStep), kRuleSteps) << rule.replacement_text;
  }
}

// Of several rules that match, the one that saves most comes first.
TEST(Simplify, PowersAndExponentialsInFast) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"exp(x0) ^ 2.5", "exp(x0 * 2.5)"},
      {"exp2(x0) ^ 2.5", "exp2(x0 * 2.5)"},
      {"4 ^ x0", "exp2(x0 * 2)"},
      {"x0 ^ 2.5", "exp2(log2(x0) * 2.5)"},
      {"x0 ^ 0.5", "sqrt(x0)"},
      {"x0 ^ 5", "x0 ^ 5"},  // an integer power of a negative number is not NaN
      {"(-4) ^ x0", "(-4) ^ x0"},
      {"abs(x0) ^ x1", "exp2(log2(abs(x0)) * x1)"},
      {"inv(x0 ^ 2.5)", "exp2(log2(x0) * -2.5)"},
      {"x1 / 4 ^ x0", "x1 * exp2(x0 * -2)"},
      {"sqrt(4 ^ x0)", "exp2(x0)"},
      {"4 ^ x0 * 2 ^ x1", "exp2(x0 * 2 + x1)"},
      {"log2(4 ^ x0)", "x0 * 2"}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(simple(text, Math::kFast), ordered(expected));
}

TEST(Simplify, ThePassAppliesTheRulesOfTheMode) {
  for (const std::string_view text : {"x0 + 0", "x0 * 0", "x0 - x0", "x0 / x0", "x0 ^ 2", "x0 / 3"}) {
    EXPECT_EQ(after("simplify", text, Math::kStrict), after("none", text)) << text;
    EXPECT_NE(after("simplify", text, Math::kFast), after("none", text)) << text;
  }
  EXPECT_EQ(after("simplify", "x0 ^ 2", Math::kPrecise), "square(x0)");
  EXPECT_EQ(after("simplify", "x0 * 0", Math::kFast, Precision::kF64), after("none", "x0 * 0")) << "fast is for f32";
}

TEST(Simplify, LongChainsOfRewritesNeedNoRecursion) {
  const Expression chain =
      chainOf(50'000, [](std::uint32_t i) { return i == 0 ? 0 : 1 + i % 2; }, [](std::uint32_t) { return Op::kDiv; });
  const Dag dag = simplified(graphOf(chain, Precision::kF32), Math::kFast);
  EXPECT_EQ(dag.node(dag.roots()[0]).op, Op::kDiv);
}

}  // namespace
}  // namespace srjit

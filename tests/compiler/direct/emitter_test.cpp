// The direct tier's code on the model of a warp, which checks timing as well: predictions against rows of the table in
// float, bit for bit, or against the error bound; sums of losses against the tree that ir/numbers/loss_sums.h
// promises.
#include "compiler/direct/emitter.h"
#include "compiler/target/architecture.h"
#include "ir/losses.h"
#include "ir/text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "ir/numbers/rounding.h"
#include "ir/reference.h"
#include "ir/rows.h"
#include "tests/compiler/direct/run.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

Dag population(const DirectOptions& direct, std::size_t count, std::uint64_t seed, int max_nodes = 30,
               int variables = 5) {
  GeneratorOptions options;
  options.seed = seed;
  options.min_nodes = 1;
  options.max_nodes = max_nodes;
  options.variables = variables;
  options.parameters = 2;
  options.parameter_probability = 0.2;
  const auto batch = ExpressionGenerator(options).batch(count);
  return Pipeline::standard(direct.math).run(Dag::fromExpressions(batch, direct.precision), {direct.math});
}

template <class T>
void checkExactPredictions(const Dag& dag, const DirectOptions& options, std::size_t rows, DirectGrid grid,
                           std::uint64_t seed) {
  const std::size_t count = dag.roots().size();
  auto data = DirectData<T>::random(rows, 5, Spread::kSpecial, seed + 100);
  const Made made = make(dag, options);
  EXPECT_TRUE(made.part.refused.empty());
  const auto out = runDirect(dag, made.part, made.image, options, data, grid);
  const auto values = expected(dag, data);
  for (std::size_t root = 0; root < count; ++root) {
    for (std::size_t r = 0; r < rows; ++r) {
      const T value = out.results[(root + 3) % count * rows + r];
      ASSERT_TRUE(sameBits(value, values[root][r]))
          << textOf(dag, root) << " row " << r << ": " << value << ", not " << values[root][r];
    }
  }
}

template <class T>
void checkExactPredictions(DirectOptions options, std::size_t count, std::size_t rows, DirectGrid grid,
                           std::uint64_t seed) {
  options.precision = kPrecisionOf<T>;
  checkExactPredictions<T>(population(options, count, seed), options, rows, grid, seed);
}

template <class T>
class DirectOf : public ::testing::Test {};
using Numbers = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DirectOf, Numbers);

TYPED_TEST(DirectOf, StrictPredictionsHaveTheBitsOfTheRows) {
  for (const std::size_t rows : {1, 31, 32, 33, 127, 128, 129, 1000}) {
    checkExactPredictions<TypeParam>({.math = Math::kStrict}, 40, rows, {.row_blocks = 1, .warps = 8}, rows);
  }
  checkExactPredictions<TypeParam>({.math = Math::kStrict}, 7, 5000, {.row_blocks = 3, .warps = 8}, 5);
}

TYPED_TEST(DirectOf, PrecisePredictionsHaveTheBitsOfTheRows) {
  for (const unsigned architecture : directArchitectures()) {
    checkExactPredictions<TypeParam>({.architecture = architecture, .math = Math::kPrecise}, 100, 65,
                                     {.row_blocks = 1, .warps = 1}, 11);
  }
}

// Negation and absolute value are operands' modifiers, which each step of an operator must respect.
TYPED_TEST(DirectOf, OperandsWithSignsAndMagnitudes) {
  const DirectOptions options{.precision = kPrecisionOf<TypeParam>, .math = Math::kStrict};
  Dag dag(options.precision);
  const auto operands = [&](std::uint32_t column) {
    const NodeId x = dag.variable(column), magnitude = dag.apply(Op::kAbs, {x});
    return std::array{x, dag.apply(Op::kNeg, {x}), magnitude, dag.apply(Op::kNeg, {magnitude})};
  };
  const std::array x = operands(0), y = operands(1), z = operands(2);
  for (const Op op : allOperators()) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (arityOf(op) == 1) dag.addRoot(dag.apply(op, {x[i]}));
      for (std::size_t j = 0; j < y.size() && arityOf(op) > 1; ++j) {
        if (arityOf(op) == 2) dag.addRoot(dag.apply(op, {x[i], y[j]}));
        for (std::size_t k = 0; k < z.size() && arityOf(op) == 3; ++k) dag.addRoot(dag.apply(op, {x[i], y[j], z[k]}));
      }
    }
  }
  checkExactPredictions<TypeParam>(dag, options, 65, {.row_blocks = 1, .warps = 1}, 17);
}

// In f64 `fast` has no approximate forms.
TEST(Direct, FastPredictionsOfDoublesHaveTheBitsOfTheRows) {
  checkExactPredictions<double>({.math = Math::kFast}, 100, 129, {.row_blocks = 1, .warps = 1}, 12);
}

TEST(Direct, FastPredictionsStayWithinTheBound) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const DirectOptions options{.math = Math::kFast};
    const Dag dag = population(options, 64, seed);
    auto data = DirectData<float>::random(100, 5, Spread::kTame, seed);
    const Made made = make(dag, options);
    EXPECT_TRUE(made.part.refused.empty());
    const auto out = runDirect(dag, made.part, made.image, options, data, {.row_blocks = 1, .warps = 8});
    std::size_t bounded = 0;
    for (std::size_t root = 0; root < dag.roots().size(); ++root) {
      const Expression expression = dag.toExpression(root).value();
      for (std::size_t r = 0; r < data.rows; ++r) {
        const std::vector<float> row = data.row(r, 5);
        const std::vector<double> variables(row.begin(), row.end());
        const double parameters[] = {0.25, 0.75};
        const Bounded bound = evaluateBounded(expression, variables, parameters, {Precision::kF32, Math::kFast});
        if (std::isinf(bound.error)) continue;
        ++bounded;
        const auto value = static_cast<double>(out.results[(root + 3) % dag.roots().size() * data.rows + r]);
        const bool within = std::isnan(bound.value)
                                ? std::isnan(value)
                                : value == bound.value || std::fabs(value - bound.value) <= bound.error;
        ASSERT_TRUE(within) << textOf(dag, root) << " = " << value << ", not " << bound.value << " +- " << bound.error;
      }
    }
    EXPECT_GT(bounded, 2000U);
  }
}

/// All channels are results.
template <class T>
void checkMoments(const Dag& dag, const Made& made, const DirectOptions& options, DirectData<T>& data,
                  DirectGrid grid) {
  const LossSpec& spec = *options.loss;
  const auto out = runDirect(dag, made.part, made.image, options, data, grid);
  const auto values = expected(dag, data);
  const std::size_t count = dag.roots().size(), row_groups = ceilDivide(data.rows, kGroupRows);
  for (std::size_t root = 0; root < count; ++root) {
    if (std::ranges::find(made.part.refused, root) != made.part.refused.end()) continue;
    for (std::size_t g = 0; g < row_groups; ++g) {
      std::array<std::array<T, kGroupRows>, kMostChannels> items{};
      for (std::size_t i = 0; i < kGroupRows && g * kGroupRows + i < data.rows; ++i) {
        const std::size_t r = g * kGroupRows + i;
        const T f = values[root][r], z = data.target[r] - T(kTargetCentre);
        if (spec.skip_invalid && !std::isfinite(f)) continue;
        std::size_t channel = 0;
        const auto add = [&](T term) { items[channel++][i] = spec.weighted ? data.weights[r] * term : term; };
        eachLossTerm<T>(spec.term, f, z, add);
        if (spec.targetSums() > 0) eachTargetTerm(z, add);
        if (spec.skip_invalid) items[channel++][i] = 1;
        if (spec.counts() == 2) items[channel++][i] = data.weights[r];
      }
      for (std::size_t channel = 0; channel < spec.channels(); ++channel) {
        const std::size_t at = (channel * count + (root + 3) % count) * row_groups + g;
        ASSERT_TRUE(sameBits(out.results[at], pairwiseSum(items[channel])))
            << "root " << root << " row group " << g << " channel " << channel;
      }
    }
  }
}

template <class T>
void checkLoss(const LossSpec& spec, std::size_t count, std::size_t rows, DirectGrid grid, unsigned architecture = 90) {
  const DirectOptions options{
      .architecture = architecture, .precision = kPrecisionOf<T>, .math = Math::kStrict, .loss = spec};
  const Dag dag = population(options, count, rows + count);
  auto data = DirectData<T>::random(rows, 5, Spread::kSpecial, rows);
  const Made made = make(dag, options);
  // Functions of doubles need most registers: beside a few other values, few may be refused; beside all sums, many.
  const bool is_tight = spec.weighted && spec.skip_invalid;
  EXPECT_LE(made.part.refused.size(), !isDouble(options.precision) ? 0 : is_tight ? (count + 1) / 2 : count / 10);
  if (isOfMoments(spec.term)) return checkMoments(dag, made, options, data, grid);
  const auto out = runDirect(dag, made.part, made.image, options, data, grid);
  const auto values = expected(dag, data);
  const std::size_t row_groups = ceilDivide(rows, kGroupRows);
  for (std::size_t root = 0; root < count; ++root) {
    if (std::ranges::find(made.part.refused, root) != made.part.refused.end()) continue;
    for (std::size_t g = 0; g < row_groups; ++g) {
      std::array<T, kGroupRows> terms{}, kept{};
      T valid = 0;
      for (std::size_t i = 0; i < kGroupRows && g * kGroupRows + i < rows; ++i) {
        const std::size_t r = g * kGroupRows + i;
        const T prediction = values[root][r];
        if (spec.skip_invalid && !std::isfinite(prediction)) continue;
        const T term = lossTerm<T>(spec.term, prediction, data.target[r]);
        terms[i] = spec.weighted ? data.weights[r] * term : term;
        kept[i] = data.weights[r];
        valid += 1;
      }
      const std::size_t at = (root + 3) % count * row_groups + g;
      ASSERT_TRUE(sameBits(out.results[at], pairwiseSum(terms)))
          << "root " << root << " row group " << g << ": " << out.results[at] << ", not " << pairwiseSum(terms);
      ASSERT_EQ(out.counts[at], spec.skip_invalid ? valid : T(12345));
      ASSERT_EQ(out.kept_weights[at], spec.skip_invalid && spec.weighted ? pairwiseSum(kept) : T(12345));
    }
  }
}

TYPED_TEST(DirectOf, LossesAddInTheFixedTree) {
  for (const auto& [term, name, tuning, targets] : kernelLossTerms()) {
    SCOPED_TRACE(name);
    for (const bool weighted : {false, true}) {
      for (const bool skip : {false, true}) {
        for (const std::size_t rows : {1, 100, 128, 129, 400})
          checkLoss<TypeParam>({term, weighted, skip}, 35, rows, {.row_blocks = 1, .warps = 8});
        for (const std::size_t count : {1, 2, 3, 5, 8, 13, 31, 32})
          checkLoss<TypeParam>({term, weighted, skip}, count, 40, {.row_blocks = 1, .warps = 1});
        checkLoss<TypeParam>({term, weighted, skip}, 4, 2500, {.row_blocks = 2, .warps = 8});
        checkLoss<TypeParam>({term, weighted, skip}, 4, 2500, {.row_blocks = 3, .warps = 5});
        checkLoss<TypeParam>({term, weighted, skip}, 4, 2500, {.row_blocks = 1, .warps = 32});
        checkLoss<TypeParam>({term, weighted, skip}, 33, 129, {.row_blocks = 1, .warps = 8}, 120);
      }
    }
  }
}

// The fast forms of compiler/lowering/approximate.cpp for a GPU, on the model's MUFU.
struct Fast {
  float v = 0;
  Fast(double x) : v(static_cast<float>(x)) {}
  Fast(int x) : v(static_cast<float>(x)) {}
  explicit Fast(float x) : v(x) {}
};
Fast mufu(sass::Mufu function, Fast x) { return Fast(specialFunction(function, x.v)); }
Fast operator+(Fast x, Fast y) { return Fast(x.v + y.v); }
Fast operator-(Fast x, Fast y) { return Fast(x.v - y.v); }
Fast operator*(Fast x, Fast y) { return Fast(x.v * y.v); }
Fast operator-(Fast x) { return Fast(-x.v); }
Fast operator/(Fast x, Fast y) {
  const auto flushed = [](float z) { return std::fpclassify(z) == FP_SUBNORMAL ? std::copysign(0.0F, z) : z; };
  const Fast reciprocal = mufu(sass::Mufu::kReciprocal, y);
  return x.v == 1 ? reciprocal : Fast(flushed(flushed(x.v) * reciprocal.v));
}
bool lt(Fast x, Fast y) { return x.v < y.v; }
bool le(Fast x, Fast y) { return x.v <= y.v; }
bool eq(Fast x, Fast y) { return x.v == y.v; }
Fast select(bool mask, Fast x, Fast y) { return mask ? x : y; }
Fast abs(Fast x) { return Fast(std::fabs(x.v)); }
Fast copysign(Fast x, Fast y) { return Fast(std::copysign(x.v, y.v)); }
Fast minimum(Fast x, Fast y) { return Fast(real::minimum(x.v, y.v)); }
Fast maximum(Fast x, Fast y) { return Fast(real::maximum(x.v, y.v)); }
Fast floor(Fast x) { return Fast(std::floor(x.v)); }
Fast ceil(Fast x) { return Fast(std::ceil(x.v)); }
Fast rint(Fast x) { return Fast(std::rint(x.v)); }
Fast fma(Fast x, Fast y, Fast z) { return Fast(std::fma(x.v, y.v, z.v)); }
Fast exp2(Fast x) { return mufu(sass::Mufu::kExp2, x); }
Fast exp(Fast x) { return exp2(x * Fast(1.442695040888963407)); }
Fast log2(Fast x) { return mufu(sass::Mufu::kLog2, x); }
Fast log(Fast x) { return log2(x) * Fast(0.693147180559945309); }
Fast log10(Fast x) { return log2(x) * Fast(0.301029995663981195); }
Fast sqrt(Fast x) { return mufu(sass::Mufu::kRoot, x); }
Fast tanh(Fast x) { return mufu(sass::Mufu::kTanh, x); }
Fast turns(Fast x) {
  const double exact = static_cast<double>(x.v) * static_cast<double>(0.15915493667125701904F);
  const auto nearest = static_cast<float>(exact);
  return Fast(std::fabs(static_cast<double>(nearest)) > std::fabs(exact) ? std::nextafter(nearest, 0.0F) : nearest);
}
Fast sin(Fast x) { return mufu(sass::Mufu::kSin, turns(x)); }
Fast cos(Fast x) { return mufu(sass::Mufu::kCos, turns(x)); }
Fast tan(Fast x) {
  const float reciprocal = mufu(sass::Mufu::kReciprocal, cos(x)).v;
  return Fast(sin(x).v * reciprocal);
}
Fast pow(Fast x, Fast y) {
  const float power = exp2(y * log2(abs(x))).v, rounded = std::fmin(std::fabs(y.v), 0x1p23F) + 0x1p23F;
  const bool is_odd = (std::bit_cast<std::uint32_t>(rounded) & 1) != 0;
  if (y.v == 0) return 1.0;
  if (!(x.v < 0)) return Fast(power);
  if (rounded - 0x1p23F != std::fmin(std::fabs(y.v), 0x1p23F)) return Fast(std::numeric_limits<float>::quiet_NaN());
  return Fast(is_odd ? -power : power);
}
Fast expm1(Fast x) { return Fast(real::expm1(x.v)); }
Fast log1p(Fast x) { return Fast(real::log1p(x.v)); }
Fast cbrt(Fast x) { return Fast(real::cbrt(x.v)); }
Fast asin(Fast x) { return Fast(real::asin(x.v)); }
Fast acos(Fast x) { return Fast(real::acos(x.v)); }
Fast atan(Fast x) { return Fast(real::atan(x.v)); }
Fast atan2(Fast x, Fast y) { return Fast(real::atan2(x.v, y.v)); }
Fast mod(Fast x, Fast y) { return Fast(real::mod(x.v, y.v)); }
Fast sinh(Fast x) { return Fast(real::sinh(x.v)); }
Fast cosh(Fast x) { return Fast(real::cosh(x.v)); }
Fast asinh(Fast x) { return Fast(real::asinh(x.v)); }
Fast acosh(Fast x) { return Fast(real::acosh(x.v)); }
Fast atanh(Fast x) { return Fast(real::atanh(x.v)); }
Fast erf(Fast x) { return Fast(real::erf(x.v)); }

TEST(Direct, FastFormsEqualTheLowering) {
  const DirectOptions options{.math = Math::kFast};
  constexpr std::size_t kRows = 2000;
  auto data = DirectData<float>::random(kRows, 3, Spread::kSpecial, 77);
  std::size_t direct = 0;
  for (const Op op : allOperators()) {
    Dag dag(Precision::kF32);
    std::vector<NodeId> operands;
    for (int i = 0; i < arityOf(op); ++i) operands.push_back(dag.variable(static_cast<std::uint32_t>(i)));
    dag.addRoot(dag.apply(op, operands));
    const std::vector<NodeId> used(dag.node(dag.roots()[0]).inputs().begin(), dag.node(dag.roots()[0]).inputs().end());
    const Made made = make(dag, options);
    const auto out = runDirect(dag, made.part, made.image, options, data, {.row_blocks = 1, .warps = 8});
    for (std::size_t r = 0; r < kRows; ++r) {
      std::array<Fast, 3> x{0.0, 0.0, 0.0};
      for (std::size_t i = 0; i < used.size(); ++i) x[i] = Fast(data.columns[dag.node(used[i]).index * kRows + r]);
      const float value = applyRow<Fast>(op, x[0], x[1], x[2]).v;
      ASSERT_TRUE(sameBits(out.results[r], value)) << infoOf(op).name << "(" << x[0].v << ", " << x[1].v << ", "
                                                   << x[2].v << ") = " << out.results[r] << ", not " << value;
    }
    ++direct;
  }
  EXPECT_GE(direct, 40U);
}

TYPED_TEST(DirectOf, FewRegistersManyColumnsAndSharedWork) {
  using T = TypeParam;
  for (const unsigned registers : {40U, 48U, 64U}) {
    const DirectOptions options{.precision = kPrecisionOf<T>, .math = Math::kPrecise, .registers = registers};
    const Dag dag = population(options, 64, registers, 60, 50);
    auto data = DirectData<T>::random(70, 50, Spread::kWide, registers);
    const Made made = make(dag, options);
    const auto out = runDirect(dag, made.part, made.image, options, data, {.row_blocks = 1, .warps = 8});
    const auto values = expected(dag, data);
    // Functions of doubles need most of 64 registers.
    if (registers == 64 || !isDouble(options.precision)) {
      EXPECT_LE(made.part.refused.size(), registers < 48 || isDouble(options.precision) ? 8U : 0U);
    }
    for (std::size_t root = 0; root < values.size(); ++root) {
      const bool is_refused = std::ranges::find(made.part.refused, root) != made.part.refused.end();
      for (std::size_t r = 0; r < data.rows; ++r) {
        const T value = out.results[(root + 3) % values.size() * data.rows + r];
        ASSERT_TRUE(sameBits(value, is_refused ? T(12345) : values[root][r])) << textOf(dag, root) << " row " << r;
      }
    }
  }
}

TEST(Direct, ManyGroupsShareAnExit) {
  constexpr std::size_t kParts = kDirectExits + 3;
  const DirectOptions options{.math = Math::kStrict};
  const Dag dag = ran(graphOf({"x0+x1"}, Precision::kF32), "hoist, schedule");
  auto emitter = DirectEmitter::create(options);
  const std::vector<DirectPart> parts(kParts, emitter.value().emit(dag));
  DirectImage image = joinDirect(parts, options).value();
  ASSERT_EQ(image.groups.size(), kParts);
  EXPECT_EQ(image.exits.size(), kDirectExits);
  std::vector<std::uint32_t> exits;
  for (std::uint32_t i = 0; i < image.words.size(); ++i) {
    const auto form = sass::decode(image.words[i], options.architecture).value().form;
    if (form == sass::Form::kExit) exits.push_back(i * static_cast<std::uint32_t>(sizeof(sass::Word)));
  }
  EXPECT_EQ(image.exits, exits);
  // Runs only the last group, which branches to another group's exit.
  image.groups.assign(1, image.groups.back());
  DirectPart tables;
  for (const DirectPart& part : parts) {
    tables.parameters.insert(tables.parameters.end(), part.parameters.begin(), part.parameters.end());
    tables.outputs.insert(tables.outputs.end(), part.outputs.begin(), part.outputs.end());
  }
  auto data = DirectData<float>::random(300, 2, Spread::kTame, 1);
  const auto out = runDirect(dag, tables, image, options, data, {.row_blocks = 1, .warps = 8});
  EXPECT_EQ(out.results, expected(dag, data)[0]);
}

// More comparisons than predicates can be numbered: the root is refused, instead of code with wrong predicates.
TEST(Direct, RefusesMoreComparisonsThanPredicateNumbers) {
  std::string text = "x0";
  for (int i = 0; i < 10'922; ++i) text += " x1 /";
  const Dag dag = ran(Dag::fromExpressions(std::vector{parse(text, Language::kPostfix).value()}, Precision::kF32),
                      "hoist, schedule");
  auto emitter = DirectEmitter::create({.math = Math::kStrict});
  EXPECT_EQ(emitter.value().emit(dag).refused, (std::vector<std::uint32_t>{0}));
  EXPECT_TRUE(emitter.value().emit(ran(graphOf({"x0/x1"}, Precision::kF32), "hoist, schedule")).refused.empty());
}

// Each operator by itself: predictions, and losses in any form.
TYPED_TEST(DirectOf, HasEveryOperator) {
  const Precision precision = kPrecisionOf<TypeParam>;
  for (const bool is_loss : {false, true}) {
    for (const Math math : kMathModes) {
      DirectOptions options{.precision = precision, .math = math};
      if (is_loss) options.loss = LossSpec{.weighted = true, .skip_invalid = true};
      Dag dag(precision);
      const std::array operands = {dag.variable(0), dag.variable(1), dag.variable(2)};
      for (const Op op : allOperators()) {
        dag.addRoot(dag.apply(op, std::span(operands).first(static_cast<std::size_t>(arityOf(op)))));
      }
      for (const std::uint32_t root : make(dag, options).part.refused) ADD_FAILURE() << textOf(dag, root);
    }
  }
}

TEST(Direct, RefusesOtherPrecisionsAndOptions) {
  auto fast = DirectEmitter::create({.math = Math::kFast});
  const Dag wide = ran(graphOf({"x0+1", "x0/x1", "abs(x0)"}, Precision::kF64), "hoist, schedule");
  EXPECT_EQ(fast.value().emit(wide).refused, (std::vector<std::uint32_t>{0, 1, 2})) << "another precision";
  auto doubles = DirectEmitter::create({.precision = Precision::kF64, .math = Math::kFast});
  EXPECT_TRUE(doubles.value().emit(wide).refused.empty());
  EXPECT_EQ(DirectEmitter::create({.architecture = 75}).error().code, Errc::kUnsupported);
  EXPECT_FALSE(DirectEmitter::create({.roots = 33}).ok());
  EXPECT_FALSE(DirectEmitter::create({.registers = 65}).ok());
  EXPECT_FALSE(DirectEmitter::create({.window = 0}).ok());
}

TEST(Direct, CodeDependsOnStructureAlone) {
  const auto wordsOf = [](std::string_view text) {
    const Dag dag = ran(graphOf({text}, Precision::kF32), "hoist, schedule");
    auto emitter = DirectEmitter::create({.math = Math::kPrecise});
    DirectPart part = emitter.value().emit(dag);
    EXPECT_EQ(emitter.value().emit(dag).words, part.words);
    return part.words;
  };
  EXPECT_EQ(wordsOf("x0*2+x1*3.5"), wordsOf("x0*7+x1*0.25"));
  EXPECT_NE(wordsOf("x0*2+x1*3.5"), wordsOf("x0*2-x1*3.5"));
}

}  // namespace
}  // namespace srjit

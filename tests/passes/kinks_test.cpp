// Derivatives at kinks, at ends of domains, and beside branches that are not taken: finite where the value is.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/numbers/random.h"
#include "ir/rows.h"
#include "passes/gradient/deriver.h"
#include "tests/generators/graphs.h"
#include "tests/ir/domains.h"

namespace srjit {
namespace {

Dag jacobianOf(const Expression& expression) {
  BatchOptimizer batch(Precision::kF64, Math::kPrecise, Derivation{.columns = 3});
  batch.add(Population({&expression, 1})[0]);
  return batch.take();
}

std::vector<double> jacobian(std::string_view text, std::span<const double> row, std::span<const double> parameters) {
  return evaluate<double>(jacobianOf(infix(text)), row, parameters);
}

/// Every threshold of ops.def, ends of domains, and numbers `beside` them on both sides, relative to them.
std::vector<double> kinks(double beside) {
  std::vector<double> all = {0.0, -0.0, 0.25, -0.75, 3};
  for (const double place : {1e-9, 0.001, 0.5, 1.0, 2.0}) {
    for (const double at : {place * (1 - beside), place, place * (1 + beside)}) {
      all.push_back(at);
      all.push_back(-at);
    }
  }
  return all;
}

TEST(Kinks, CellsAreFiniteWhereValuesAre) {
  const std::vector<double> places = kinks(0x1p-52);
  for (const Op op : allOperators()) {
    const std::vector<double> none = {0};
    for (const double x : places) {
      for (const double y : arityOf(op) > 1 ? places : none) {
        for (const double z : arityOf(op) > 2 ? places : none) {
          const double value = applyRow<double>(op, x, y, z);
          if (!std::isfinite(value)) continue;
          for (int k = 0; k < arityOf(op); ++k) {
            ASSERT_TRUE(std::isfinite(derivativeRow<double>(op, k, x, y, z, value)))
                << infoOf(op).name << '(' << x << ", " << y << ", " << z << ") by operand " << k;
          }
        }
      }
    }
  }
}

using Real = long double;

/// The slopes of `f` at 0, to the left and to the right, of those that exist. Values are moderate.
struct Slopes {
  std::optional<double> left, right;

  bool agree() const { return left && right && std::fabs(*left - *right) <= 1e-3 * (1 + std::fabs(*left)); }
};

template <class F>
Slopes slopesOf(const F& f) {
  const Real middle = f(Real(0));
  const auto slope = [&](Real step) -> std::optional<double> {
    const Real whole = (f(step) - middle) / step, half = (f(step / 2) - middle) / (step / 2);
    const bool converges = std::fabs(whole - half) <= 1e-3L * (1 + std::fabs(half));
    return converges ? std::optional(static_cast<double>(half)) : std::nullopt;
  };
  constexpr Real kStep = 1e-12L;
  return {slope(-kStep), slope(kStep)};
}

/// Of an operator by its operand k. Differences do not tell that of a power of 0 with an exponent next to 1, and of a
/// remainder next to a jump: double may round to its other side.
Slopes slopesOf(Op op, std::array<Real, 3> at, std::size_t k) {
  const bool is_power = op == Op::kPow || op == Op::kLoosePow;
  if (is_power && at[0] == 0 && at[1] != 1 && std::fabs(at[1] - 1) < 0.01L) return {};
  const Real quotient = at[0] / at[1];
  const bool jumps =
      std::fabs(at[1]) < 0.01L || std::fabs(quotient) > 1e6L || std::fabs(quotient - std::rint(quotient)) < 0.2L;
  if (op == Op::kMod && jumps) return {};
  return slopesOf([&](Real step) {
    std::array<Real, 3> moved = at;
    moved[k] += step;
    return applyRow<Real>(op, moved[0], moved[1], moved[2]);
  });
}

/// An operator whose operand `place` is another. Parameters are the operands of the inner one, then the others of the
/// outer one.
struct Composition {
  Op outer, inner;
  std::size_t place;

  std::size_t innerParameters() const { return static_cast<std::size_t>(arityOf(inner)); }
  std::size_t parameters() const { return innerParameters() + static_cast<std::size_t>(arityOf(outer)) - 1; }
  /// The parameter that is operand k of the outer operator, which is not `place`; and the operand that has a parameter.
  std::size_t parameterOf(std::size_t k) const { return innerParameters() + k - (k > place ? 1 : 0); }
  std::size_t operandOf(std::size_t parameter) const {
    if (parameter < innerParameters()) return place;
    const std::size_t k = parameter - innerParameters();
    return k < place ? k : k + 1;
  }

  Expression expression() const {
    std::vector<Token> tokens;
    for (std::size_t k = 0; k < static_cast<std::size_t>(arityOf(outer)); ++k) {
      if (k != place) {
        tokens.push_back(Token::parameter(static_cast<std::uint32_t>(parameterOf(k))));
        continue;
      }
      for (std::uint32_t i = 0; i < innerParameters(); ++i) tokens.push_back(Token::parameter(i));
      tokens.push_back(Token::operation(inner));
    }
    tokens.push_back(Token::operation(outer));
    return Expression::create(std::move(tokens)).value();
  }

  std::array<Real, 3> innerOperands(const std::vector<Real>& at) const {
    std::array<Real, 3> operands{};
    std::copy_n(at.begin(), innerParameters(), operands.begin());
    return operands;
  }
  std::array<Real, 3> outerOperands(const std::vector<Real>& at) const {
    std::array<Real, 3> operands{};
    for (std::size_t k = 0; k < static_cast<std::size_t>(arityOf(outer)); ++k) {
      if (k != place) operands[k] = at[parameterOf(k)];
    }
    const auto [x, y, z] = innerOperands(at);
    operands[place] = applyRow<Real>(inner, x, y, z);
    return operands;
  }
  Real value(const std::vector<Real>& at) const {
    const auto [x, y, z] = outerOperands(at);
    return applyRow<Real>(outer, x, y, z);
  }
};

/// Whether differences say what the derivative by parameter p is: at most one of both operators has a kink there, and
/// none an infinite slope.
bool isComparable(const Composition& c, const std::vector<Real>& at, std::size_t p) {
  const std::array<Real, 3> outer = c.outerOperands(at);
  if (!std::isfinite(outer[c.place])) return false;
  const Slopes of_outer = slopesOf(c.outer, outer, c.operandOf(p));
  if (!of_outer.left && !of_outer.right) return false;
  if (p >= c.innerParameters()) return true;
  const Slopes of_inner = slopesOf(c.inner, c.innerOperands(at), p);
  const double steepest = std::max(std::fabs(of_inner.left.value_or(0)), std::fabs(of_inner.right.value_or(0)));
  const bool is_moderate = steepest < 1e6;  // a step could pass many waves, or jumps
  return is_moderate && (of_inner.left || of_inner.right) && (of_inner.agree() || of_outer.agree());
}

/// The derivatives of a composition at one place; how many were compared.
std::size_t expectDerivatives(const Composition& c, const Dag& graph, const std::vector<double>& parameters) {
  const std::vector<Real> at(parameters.begin(), parameters.end());
  std::size_t compared = 0;
  const std::vector<double> got = evaluate<double>(graph, {}, parameters);
  for (std::size_t p = 0; p < got.size(); ++p) {
    std::string where = textOf(c.expression()) + " by p" + std::to_string(p) + " at";
    for (const double parameter : parameters) where += fmt::format(" {}", parameter);
    EXPECT_TRUE(std::isfinite(got[p])) << where;
    // Of larger values, differences are noise; and -0 plus 0 is 0.
    const bool is_negative_zero = parameters[p] == 0 && std::signbit(parameters[p]);
    if (is_negative_zero || std::fabs(c.value(at)) > 10 || !isComparable(c, at, p)) continue;
    const auto [left, right] = slopesOf([&](Real step) {
      std::vector<Real> moved = at;
      moved[p] += step;
      return c.value(moved);
    });
    if (!left && !right) continue;
    const auto [least, most] = std::minmax({left ? *left : *right, right ? *right : *left});
    const double tolerance = 0.1 * (1 + std::max(std::fabs(least), std::fabs(most)));
    EXPECT_GE(got[p], least - tolerance) << where;
    EXPECT_LE(got[p], most + tolerance) << where;
    ++compared;
  }
  return compared;
}

TEST(Kinks, CompositionsOfTwoOperatorsHaveFiniteDerivatives) {
  const std::vector<double> places = kinks(0.01);
  Random random(5);
  std::size_t compared = 0;
  for (const Op outer : allOperators()) {
    for (const Op inner : allOperators()) {
      for (std::size_t place = 0; place < static_cast<std::size_t>(arityOf(outer)); ++place) {
        const Composition c{outer, inner, place};
        const Expression expression = c.expression();
        const Dag graph = jacobianOf(expression);
        const std::size_t times = c.parameters() == 1 ? places.size() : 12;
        for (std::size_t i = 0; i < times; ++i) {
          std::vector<double> parameters(c.parameters());
          for (double& parameter : parameters) parameter = places[random.below(places.size())];
          if (times != 12) parameters[0] = places[i];
          const auto value = evaluateAs<double>(expression, {}, parameters);
          const Real real_value = c.value({parameters.begin(), parameters.end()});
          // Next to a jump, double may round to its other side.
          if (!(std::fabs(value) < 1e100) || std::fabs(Real(value) - real_value) > 1e-6L * std::fabs(real_value))
            continue;
          compared += expectDerivatives(c, graph, parameters);
          if (HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(compared, 30'000U);
}

// Rows of x0 and x1, and parameters p0 and p1.
TEST(Kinks, BranchesThatAreNotTakenDoNotCount) {
  const std::array parameters{2.0, 3.0};
  using Row = std::array<double, 2>;
  const auto at = [&](std::string_view text, Row row) { return jacobian(text, row, parameters); };
  using Values = std::vector<double>;
  EXPECT_EQ(at("if(x0, p0*sqrt(x0), p1*x1)", {-1, 5}), (Values{0, 5}));
  EXPECT_EQ(at("if(x0, p0*sqrt(x0), p1*x1)", {4, 5}), (Values{2, 0}));
  EXPECT_EQ(at("if(x0, p0*sqrt(x0), p0*x1) + p1", {-1, 5}), (Values{5, 1}));
  EXPECT_EQ(at("if(x0, sqrt(p0*x0), p1) + p0*x1", {-1, 5}), (Values{5, 1}));
  EXPECT_EQ(at("if(x0, log(x0*p0), 1) * if(x1, 2, sqrt(p1*x1))", {-1, 5}), (Values{0, 0}));
  EXPECT_EQ(at("if(x0, p1, if(x1, p0*sqrt(-x1), p0*x0))", {-1, -5}), (Values{-1, 0}));
  EXPECT_EQ(at("if(x0, if(x1, p0*sqrt(x1), 1), if(x1, p1*x0, p0*log(x1)))", {-1, 5}), (Values{0, -1}));
  EXPECT_EQ(at("max(p0*log(x0), p1)", {0, 0}), (Values{0, 1}));
  EXPECT_EQ(at("min(p0/x0, p1)", {0, 0}), (Values{0, 1}));
  EXPECT_EQ(at("pdiv(p0*sqrt(x0), sqrt(x0)) + p1", {-1, 0}), (Values{0, 1}));
  EXPECT_EQ(at("plog(sqrt(p0*x0)) + p1", {-1, 0}), (Values{0, 1}));
  EXPECT_EQ(at("zdiv(log(p0*x0), x1) + p1", {-1, 0}), (Values{0, 1}));
}

// One expression that is used in several branches: where none is taken it does not count.
TEST(Kinks, SharedBranchesCountWhereOneIsTaken) {
  const Dag graph = jacobianOf(infix("if(x0, sqrt(p0*x1), 1) + if(x2, 2, 3*sqrt(p0*x1)) + p0"));
  const std::array parameters{1.0};
  const auto at = [&](double x0, double x1, double x2) {
    return evaluate<double>(graph, std::array{x0, x1, x2}, parameters)[0];
  };
  EXPECT_EQ(at(-1, -4, 1), 1);
  EXPECT_EQ(at(1, 4, 1), 2);
  EXPECT_EQ(at(-1, 4, -1), 4);
  EXPECT_EQ(at(1, 4, -1), 5);
  EXPECT_TRUE(std::isnan(at(1, -4, 1)));
}

TEST(Kinks, SlopesAreFiniteWhereThePredictionIs) {
  const std::array<double, 0> none{};
  const std::array zero{0.0}, one{1.0};
  for (const std::string_view text :
       {"psqrt(p0*x0)", "sqrt(p0*x0)", "loose_sqrt(p0*x0)", "cbrt(p0*x0)", "pow(x0*p0, 0.5)", "loose_pow(x0*p0, 2)",
        "exp(p0*log(x0))", "tanh(p0/x0)", "max(p0*log(x0), 1)", "1/(1 + exp(p0/square(x0)))", "atan2(p0*x0, x0)",
        "pow(p0*x0, 0)", "acos(1 - p0*x0)", "acosh(1 + p0*x0)"}) {
    EXPECT_EQ(jacobian(text, zero, one), std::vector{0.0}) << text;
  }
  EXPECT_EQ(jacobian("sqrt(p0*x0) + p0*3", zero, one), std::vector{3.0});
  EXPECT_EQ(jacobian("pow(x0, p0)", std::array{-2.0}, std::array{3.0}), std::vector{0.0});
  // NaN shows where the prediction is none.
  for (const std::string_view text : {"sqrt(p0*x0)", "exp(p0*log(x0))", "pow(p0*x0, 0.5)", "0*sqrt(p0*x0)"}) {
    EXPECT_TRUE(std::isnan(jacobian(text, std::array{-1.0}, one)[0])) << text;
  }
  EXPECT_TRUE(jacobian("x0", zero, none).empty());
}

// What needs no test gets none.
TEST(Kinks, OrdinaryDerivativesAreNotTested) {
  for (const std::string_view text : {"p0*exp(p1*x0)", "sin(p0*x0)/(p1 + x0)", "p0*log(x0 + p1)", "(p0 + x0)/(p1*x0)",
                                      "tanh(p0*x0 + p1)", "p0*sin(x0)*cos(p1*x0)"}) {
    const Dag graph = jacobianOf(infix(text));
    for (NodeId id = 0; id < graph.size(); ++id) {
      EXPECT_FALSE(graph.node(id).isOperator() && graph.node(id).op == Op::kIf) << text;
    }
  }
}

}  // namespace
}  // namespace srjit

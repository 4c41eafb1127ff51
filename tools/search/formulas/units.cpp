#include "tools/search/formulas/units.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tools/search/trees/arrays.h"

namespace srjit::search {
namespace {

constexpr int kOrdinaryExponent = 16, kLeastExponentOfF32 = -90, kMostExponent = 300;
constexpr int kMostUnit = 1000;   // so that a unit and its reciprocal are normal numbers
constexpr int kLevelsOfF32 = 17;  // f32 has 2^-24: 128 different numbers in the range of a column, or more

/// Binary exponents of the magnitudes of numbers, 0 and those that are not finite left out; and that of their range.
struct Magnitudes {
  int least = std::numeric_limits<int>::max(), most = std::numeric_limits<int>::min(), mean = 0;
  std::optional<int> range = {};  ///< none if all numbers are equal
};

std::optional<Magnitudes> magnitudesOf(std::span<const double> values) {
  Magnitudes all;
  long sum = 0, count = 0;
  double smallest = std::numeric_limits<double>::infinity(), largest = -smallest;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
    if (value == 0) continue;
    const int exponent = std::ilogb(value);
    all.least = std::min(all.least, exponent);
    all.most = std::max(all.most, exponent);
    sum += exponent;
    ++count;
  }
  if (count == 0) return {};
  all.mean = static_cast<int>(std::lround(static_cast<double>(sum) / static_cast<double>(count)));
  if (smallest < largest) all.range = std::ilogb(largest / 2 - smallest / 2) + 1;
  return all;
}

/// Part of a tree: its value over columns in units is that of `tokens` over columns, times 2^exponent.
struct Part {
  std::vector<Token> tokens;
  double exponent = 0;
};

bool isConstant(const Part& part) {
  return part.tokens.size() == 1 && part.tokens.front().kind == Token::Kind::kConstant;
}

/// Multiplies a constant of the subtree that ends with tokens[last], if that multiplies the subtree.
bool multiplyConstant(std::span<Token> tokens, std::span<const std::uint32_t> starts, std::size_t last, double factor) {
  Token& root = tokens[last];
  if (root.kind == Token::Kind::kConstant) {
    root.value *= factor;
    return true;
  }
  if (root == Token::operation(Op::kNeg)) return multiplyConstant(tokens, starts, last - 1, factor);
  const bool is_product = root == Token::operation(Op::kMul), is_quotient = root == Token::operation(Op::kDiv);
  if (!is_product && !is_quotient) return false;
  const std::size_t right = last - 1, left = starts[right] - 1;
  if (multiplyConstant(tokens, starts, left, factor)) return true;
  if (is_product) return multiplyConstant(tokens, starts, right, factor);
  return tokens[right].kind == Token::Kind::kConstant && multiplyConstant(tokens, starts, right, 1 / factor);
}

/// Writes the part with another exponent. Without `may_grow` only if that takes no further constant; gives whether.
bool settle(Part& part, double exponent, bool may_grow = true) {
  if (part.exponent == exponent) return true;
  const double factor = std::exp2(part.exponent - exponent);
  if (!multiplyConstant(part.tokens, subtreeStarts(part.tokens), part.tokens.size() - 1, factor)) {
    if (!may_grow) return false;
    part.tokens.insert(part.tokens.end(), {Token::constant(factor), Token::operation(Op::kMul)});
  }
  part.exponent = exponent;
  return true;
}

/// Gives two operands of a sum the same exponent.
void settleSum(Part& a, Part& b) {
  if (isConstant(a)) return void(settle(a, b.exponent));
  if (!settle(b, a.exponent, false) && !settle(a, b.exponent, false)) settle(b, a.exponent);
}

/// The exponent of an operator's value; brings those of the operands into agreement.
double exponentOf(Op op, std::span<Part> operands) {
  switch (op) {
    case Op::kMul:
      return operands[0].exponent + operands[1].exponent;
    case Op::kDiv:
      return operands[0].exponent - operands[1].exponent;
    case Op::kNeg:
    case Op::kAbs:
      return operands[0].exponent;
    case Op::kInv:
      return -operands[0].exponent;
    case Op::kSquare:
      return 2 * operands[0].exponent;
    case Op::kCube:
      return 3 * operands[0].exponent;
    case Op::kSqrt:
      return operands[0].exponent / 2;
    case Op::kCbrt:
      return operands[0].exponent / 3;
    case Op::kAdd:
    case Op::kSub:
    case Op::kMin:
    case Op::kMax:
      settleSum(operands[0], operands[1]);
      return operands[0].exponent;
    case Op::kPow:
      if (isConstant(operands[1])) return operands[0].exponent * operands[1].tokens.front().value;
      break;
    default:
      break;
  }
  for (Part& operand : operands) settle(operand, 0);
  return 0;
}

}  // namespace

Standardised standardise(std::span<const double> values, const RowSet& rows) {
  Standardised all{.deviations = {values.begin(), values.end()}};
  const auto divideByLargest = [&] {
    double largest = 0;
    for (const double value : all.deviations) largest = std::max(largest, std::fabs(value));
    const int exponent = largest > 0 ? std::ilogb(largest) : 0;
    for (double& value : all.deviations) value = std::ldexp(value, -exponent);
    return exponent;
  };
  all.exponent = divideByLargest();
  double sum = 0, weights = 0;
  for (std::size_t r = 0; r < values.size(); ++r) {
    sum += rows.weightOf(r) * all.deviations[r];
    weights += rows.weightOf(r);
  }
  // A mean that is rounded must not make equal numbers different from it.
  const auto [least, most] = std::ranges::minmax(all.deviations);
  const double mean = std::clamp(sum / weights, least, most);
  all.centre = std::ldexp(mean, all.exponent);
  for (double& value : all.deviations) value -= mean;
  all.exponent += divideByLargest();
  return all;
}

bool fitsF32(std::span<const double> values) {
  const std::optional<Magnitudes> of = magnitudesOf(values);
  const auto isKept = [](double value) {
    return !std::isfinite(value) || static_cast<double>(static_cast<float>(value)) == value;
  };
  if (!of) return true;
  if (of->least < kLeastExponentOfF32 || of->most > kOrdinaryExponent || of->mean < -kOrdinaryExponent) return false;
  return !of->range || *of->range >= of->most - kLevelsOfF32 || std::ranges::all_of(values, isKept);
}

Units Units::of(const RowSet& rows) {
  Units units;
  for (const std::vector<double>& column : rows.columns) {
    const Magnitudes of = magnitudesOf(column).value_or(Magnitudes{});
    const int unit = std::clamp(std::min(of.mean, of.range.value_or(of.mean)), -kMostUnit, kMostUnit);
    units.exponents_.push_back(std::abs(unit) <= kOrdinaryExponent ? 0 : unit);
  }
  return units;
}

bool Units::areNeeded() const noexcept {
  return std::ranges::any_of(exponents_, [](int exponent) { return exponent != 0; });
}

bool Units::areBeyondF64() const noexcept {
  return std::ranges::any_of(exponents_, [](int exponent) { return std::abs(exponent) > kMostExponent; });
}

std::vector<std::vector<double>> Units::divide(const std::vector<std::vector<double>>& columns) const {
  std::vector<std::vector<double>> divided = columns;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    for (double& value : divided[c]) value = std::ldexp(value, -exponents_[c]);
  }
  return divided;
}

std::optional<std::vector<Token>> Units::folded(std::span<const Token> tree, bool is_scaled) const {
  std::vector<Part> parts;
  for (const Token& token : tree) {
    const auto operands = std::span(parts).last(static_cast<std::size_t>(token.arity()));
    Part whole;
    if (token.kind == Token::Kind::kVariable) whole.exponent = -exponents_[token.index];
    if (token.kind == Token::Kind::kOp) whole.exponent = exponentOf(token.op, operands);
    for (const Part& operand : operands) {
      whole.tokens.insert(whole.tokens.end(), operand.tokens.begin(), operand.tokens.end());
    }
    whole.tokens.push_back(token);
    parts.resize(parts.size() - operands.size());
    parts.push_back(std::move(whole));
  }
  Part& whole = parts.front();
  if (!is_scaled) settle(whole, 0);
  const bool is_finite = std::ranges::all_of(whole.tokens, [](const Token& token) {
    return token.kind != Token::Kind::kConstant || std::isfinite(token.value);
  });
  if (!is_finite) return {};
  return std::move(whole.tokens);
}

std::vector<Token> Units::spelled(std::span<const Token> tree) const {
  std::vector<Token> tokens;
  for (const Token& token : tree) {
    tokens.push_back(token);
    if (token.kind != Token::Kind::kVariable || exponents_[token.index] == 0) continue;
    tokens.insert(tokens.end(),
                  {Token::constant(std::ldexp(1.0, -exponents_[token.index])), Token::operation(Op::kMul)});
  }
  return tokens;
}

}  // namespace srjit::search

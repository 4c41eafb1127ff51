#include "passes/shorten/writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <optional>

#include <fmt/format.h>

namespace srjit {
namespace {

constexpr int kTidyDigits = 15, kShortDigits = 12;
constexpr double kTidyShare = 16 * 0x1p-53;  // of a number: units in the last place, by which it becomes shorter
constexpr double kQuarter = std::numbers::pi / 2;
constexpr std::size_t kFewerDigits = 4;  // by which a divisor must be shorter than a factor
constexpr std::size_t kMostEffort = 8, kEffortOfParentheses = 3, kEffortOfVariable = 4, kEffortOfFraction = 10;
constexpr std::size_t kMostBaseDigits = 6;  // 10^x0, but not 0.36787944117144233^x0

/// The significant digits of a number.
std::size_t decimalDigits(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, std::fabs(value), std::chars_format::scientific).ptr;
  const std::size_t length = static_cast<std::size_t>(std::find(text, end, 'e') - text);
  return length > 1 ? length - 1 : length;
}

/// That of the parentheses around an operand whose operator is `operand`.
std::size_t effortOf(Op op, const Token& operand, bool is_right) {
  const auto isOf = [](Op tested, Op a, Op b) { return tested == a || tested == b; };
  if (operand.kind != Token::Kind::kOp) return 0;
  const bool is_sum = isOf(operand.op, Op::kAdd, Op::kSub), is_product = isOf(operand.op, Op::kMul, Op::kDiv);
  const bool needs =
      isOf(op, Op::kAdd, Op::kSub) ? is_sum && is_right : is_sum || (is_product && (is_right || op == Op::kPow));
  return needs ? kEffortOfParentheses : 0;
}

/// That of fractions within a divisor.
std::size_t effortOfDivisor(std::span<const Token> divisor) {
  const auto isFraction = [](const Token& token) {
    return token == Token::operation(Op::kDiv) || token == Token::operation(Op::kInv);
  };
  return std::ranges::any_of(divisor, isFraction) ? kEffortOfFraction : 0;
}

/// The short decimal that is as near to a number as its own rounding, or the number itself.
double tidied(double value) {
  const double decimal = std::strtod(fmt::format("{:.{}e}", value, kTidyDigits - 1).c_str(), nullptr);
  return std::fabs(decimal - value) <= kTidyShare * std::fabs(value) && decimalDigits(decimal) <= kShortDigits ? decimal
                                                                                                               : value;
}

}  // namespace

void Writer::take(Written& best, Written other) const {
  const bool is_easier = taste_ == Taste::kEasy && other.cost == best.cost && other.effort < best.effort;
  if (other.cost < best.cost || is_easier) best = std::move(other);
}

Written Writer::number(double value) const {
  const double tidy = tidied(value);
  const std::size_t effort = std::min(decimalDigits(tidy) - 1, kMostEffort);
  return {{Token::constant(tidy)}, writing_.constant_cost, effort};
}

Written Writer::apply(Op op, const Written& a) const {
  if (!has(op) || a.cost >= Written::kNever) return {};
  Written result = a;
  if (op == Op::kInv) result.effort += effortOfDivisor(a.tokens);
  result.tokens.push_back(Token::operation(op));
  result.cost += writing_.costs[static_cast<std::size_t>(op)];
  return result;
}

Written Writer::apply(Op op, const Written& a, const Written& b) const {
  if (!has(op) || a.cost >= Written::kNever || b.cost >= Written::kNever) return {};
  Written result = a;
  result.tokens.insert(result.tokens.end(), b.tokens.begin(), b.tokens.end());
  result.tokens.push_back(Token::operation(op));
  result.cost += b.cost + writing_.costs[static_cast<std::size_t>(op)];
  if (op == Op::kDiv) result.effort += effortOfDivisor(b.tokens);
  result.effort += b.effort + effortOf(op, a.tokens.back(), false) + effortOf(op, b.tokens.back(), true);
  return result;
}

Written Writer::productOf(std::span<const Written> factors) const {
  Written product = factors[0];
  for (const Written& factor : factors.subspan(1)) product = apply(Op::kMul, product, factor);
  return product;
}

Written Writer::scaled(double factor, const Written& written) const {
  if (factor == 1) return written;
  return quotientOf(factor, {written}, {});
}

/// factor times all that is above, by all that is below.
Written Writer::quotientOf(double factor, Options above, const Options& below) const {
  Written best;
  const auto close = [&](const Written& top, std::span<const Written> bottom) {
    if (bottom.empty()) return take(best, top);
    const Written divisor = productOf(bottom);
    take(best, apply(Op::kDiv, top, divisor));
    take(best, apply(Op::kMul, top, apply(Op::kInv, divisor)));
  };
  if (above.empty()) {
    close(number(factor), below);
    if (factor == 1 && !below.empty()) take(best, apply(Op::kInv, productOf(below)));
    if (factor == -1 && !below.empty()) take(best, apply(Op::kNeg, apply(Op::kInv, productOf(below))));
    return best;
  }
  if (factor == 1) {
    close(productOf(above), below);
    return best;
  }
  if (factor == -1) {
    close(productOf(above), below);
    best = apply(Op::kNeg, best);
  }
  const Written divisor = number(1 / factor);
  if (std::isnormal(1 / factor) && divisor.effort + kFewerDigits <= number(factor).effort) {
    Options bottom = {divisor};
    bottom.insert(bottom.end(), below.begin(), below.end());
    close(productOf(above), bottom);
  }
  above.insert(above.begin(), number(factor));
  close(productOf(above), below);
  return best;
}

Written Writer::write(const Value& value) {
  const auto [place, is_new] = known_.try_emplace({value.term, value.factor});
  if (is_new) {
    Written written = writeFresh(value);
    known_[{value.term, value.factor}] = written;
    return written;
  }
  return place->second;
}

Written Writer::writeFresh(const Value& value) {
  const Term& term = forms_.term(value.term);
  switch (term.kind) {
    case Term::Kind::kOne:
      return number(value.factor);
    case Term::Kind::kVariable:
      return scaled(value.factor, {{Token::variable(term.index)}, writing_.variable_cost, kEffortOfVariable});
    case Term::Kind::kFunction:
    case Term::Kind::kProduct:
      return writeProduct(value.factor, forms_.powersOf(value.term), true);
    case Term::Kind::kSum:
      return writeSum(forms_.addendsOf(value), true);
  }
  return {};
}

/// A function, whose sign may go into it.
Written Writer::writeFunction(const Value& value) {
  const Term& term = forms_.term(value.term);
  if (term.op == Op::kNeg) return write({-value.factor, term.values[0].term});
  if (term.op == Op::kExp) return scaled(value.factor, writeExponential(term.values[0]));
  const auto written = [&](double sign) {
    Written result = write({sign * term.values[0].factor, term.values[0].term});
    if (term.values.size() == 1) return apply(term.op, result);
    // All operands stand before the operator, which costs once.
    std::size_t cost = result.cost + writing_.costs[static_cast<std::size_t>(term.op)];
    for (const Value& operand : std::span(term.values).subspan(1)) {
      const Written other = write(operand);
      result.tokens.insert(result.tokens.end(), other.tokens.begin(), other.tokens.end());
      cost += other.cost;
      result.effort += other.effort;
    }
    result.tokens.push_back(Token::operation(term.op));
    result.cost = has(term.op) && cost < Written::kNever ? cost : Written::kNever;
    return result;
  };
  Written best = scaled(value.factor, written(1));
  const Parity parity = parityOf(term.op);
  if (parity == Parity::kOdd) take(best, scaled(-value.factor, written(-1)));
  if (parity == Parity::kEven) take(best, scaled(value.factor, written(-1)));
  if (term.op == Op::kSin || term.op == Op::kCos) {
    for (const int quarters : {1, -1, 2, -2, 3, -3}) take(best, writeShifted(value, quarters));
  }
  return best;
}

/// sin(u + c) by the cosine or sine of u + c + some quarters of the period, or the reverse, where that number is
/// shorter.
Written Writer::writeShifted(const Value& value, int quarters) {
  const bool is_sine = forms_.term(value.term).op == Op::kSin;
  std::vector<Value> addends = forms_.addendsOf(forms_.term(value.term).values[0]);
  const auto constant = std::ranges::find(addends, kOne, &Value::term);
  if (constant == addends.end()) return {};
  const double shift = quarters * kQuarter, moved = constant->factor + shift;
  const double decimal = std::strtod(fmt::format("{:.{}f}", moved, kShortDigits).c_str(), nullptr);
  const bool is_shorter =
      decimal == 0 || decimalDigits(decimal) + kFewerDigits <= decimalDigits(tidied(constant->factor));
  if (std::fabs(moved - decimal) > 2 * kTidyShare * std::fabs(shift) || !is_shorter) return {};
  constant->factor = decimal;
  if (decimal == 0) addends.erase(constant);
  const bool changes = quarters % 2 != 0, is_back = quarters == -1 || quarters == 3;
  const Value other = forms_.function(is_sine != changes ? Op::kSin : Op::kCos, {forms_.normalSum(std::move(addends))});
  const Value same{(changes && is_back == is_sine ? 1 : -1) * value.factor * other.factor, other.term};
  return forms_.term(other.term).kind == Term::Kind::kFunction ? writeFunction(same) : write(same);
}

Written Writer::writeExponential(const Value& exponent) {
  Written best = apply(Op::kExp, write(exponent));
  const double base = tidied(std::exp(exponent.factor));
  const bool is_same = std::fabs(std::log(base) - exponent.factor) <= kTidyShare * std::fabs(exponent.factor);
  if (exponent.factor != 1 && std::isnormal(base) && is_same && decimalDigits(base) <= kMostBaseDigits) {
    take(best, apply(Op::kPow, number(base), write({1, exponent.term})));
  }
  // exp(v log u) is u^v.
  std::vector<Power> powers = forms_.powersOf(exponent.term);
  const auto logarithm = std::ranges::find_if(
      powers, [&](const Power& power) { return power.exponent == 1 && forms_.isFunction(power.base, Op::kLog); });
  if (logarithm != powers.end()) {
    const Written inner = write(forms_.term(logarithm->base).values[0]);
    powers.erase(logarithm);
    take(best, apply(Op::kPow, inner, write(forms_.product(exponent.factor, std::move(powers)))));
  }
  return best;
}

Written Writer::writeSum(std::vector<Value> addends, bool may_factor) {
  if (addends.empty()) return number(0);
  if (addends.size() == 1) return write(addends[0]);
  std::vector<double> fronts = {1};
  const bool all_negative = std::ranges::all_of(addends, [](const Value& value) { return value.factor < 0; });
  if (all_negative) fronts.push_back(-1);
  for (const Value& addend : addends) {
    const double front = all_negative ? addend.factor : std::fabs(addend.factor);
    if (std::ranges::find(fronts, front) == fronts.end()) fronts.push_back(front);
  }
  if (taste_ == Taste::kOutside) std::ranges::rotate(fronts, fronts.begin() + 1);
  if (--left_ < 0) return writeAddends(addends, 1);
  Written best;
  for (const double front : fronts) take(best, writeAddends(addends, front));
  if (!may_factor) return best;
  take(best, writeFactored(addends));
  for (const int n : {2, 3}) take(best, writeComplete(addends, n));
  take(best, writeWithConstant(addends));
  return best;
}

/// front * (addends / front), addend by addend.
Written Writer::writeAddends(std::span<const Value> addends, double front) {
  Written sum;
  std::vector<Value> below;
  std::optional<Written> constant;  // above 0; it comes last, if another addend can come first
  for (const Value& addend : addends) {
    const double factor = addend.factor / front;
    if (!std::isnormal(factor)) return {};
    if (factor < 0) {
      below.push_back({factor, addend.term});
      continue;
    }
    Written written = write({factor, addend.term});
    if (addend.term == kOne && !sum.tokens.empty()) {
      constant = std::move(written);
    } else {
      sum = sum.tokens.empty() ? written : apply(Op::kAdd, sum, written);
      if (sum.cost >= Written::kNever) return {};
    }
  }
  if (sum.tokens.empty()) {
    // The one whose sign costs least comes first.
    const auto signCost = [&](const Value& addend) {
      const std::size_t with = write(addend).cost, without = write({-addend.factor, addend.term}).cost;
      return with - std::min(with, without);
    };
    const auto first = std::ranges::min_element(below, {}, signCost);
    sum = write(*first);
    below.erase(first);
  }
  for (const Value& addend : below) {
    Written next = apply(Op::kSub, sum, write({-addend.factor, addend.term}));
    if (next.cost >= Written::kNever) next = apply(Op::kAdd, sum, write(addend));
    sum = std::move(next);
  }
  if (constant) sum = apply(Op::kAdd, sum, *constant);
  return scaled(front, sum);
}

/// With a power that several addends have in front of them.
Written Writer::writeFactored(std::span<const Value> addends) {
  std::vector<Power> tried;
  for (const Value& addend : addends) {
    for (const Power& power : forms_.powersOf(addend.term)) {
      const auto isLike = [&](const Power& other) {
        return other.base == power.base && (other.exponent > 0) == (power.exponent > 0);
      };
      if (std::ranges::none_of(tried, isLike)) tried.push_back(power);
    }
  }
  Written best;
  for (const Power& power : tried) {
    std::vector<Value> some, rest;
    double exponent = HUGE_VAL;
    for (const Value& addend : addends) {
      const std::vector<Power> powers = forms_.powersOf(addend.term);
      const auto own = std::ranges::find(powers, power.base, &Power::base);
      const bool has_it = own != powers.end() && (own->exponent > 0) == (power.exponent > 0);
      (has_it ? some : rest).push_back(addend);
      if (has_it && std::fabs(own->exponent) < std::fabs(exponent)) exponent = own->exponent;
    }
    if (some.size() < 2) continue;
    const Value divisor = forms_.product(1, {{power.base, -exponent}});
    for (Value& addend : some) addend = forms_.multiply(addend, divisor);
    some = forms_.gathered(std::move(some));
    const Value common =
        forms_.multiply(forms_.product(1, {{power.base, exponent}}), forms_.normalSum(std::move(some)));
    const Written product = writeProduct(common.factor, forms_.powersOf(common.term), false);
    if (rest.empty()) {
      take(best, product);
    } else {
      const Written others = writeSum(rest, true);
      take(best, apply(Op::kAdd, product, others));
      for (Value& addend : rest) addend.factor = -addend.factor;
      take(best, apply(Op::kSub, product, writeSum(rest, true)));
    }
  }
  return best;
}

/// a t^n + b t^(n - 1) + rest as a (t + b / na)^n + the rest of rest, for n of 2 or 3.
Written Writer::writeComplete(std::span<const Value> addends, int n) {
  Written best;
  for (const Value& linear : addends) {
    if (linear.term == kOne) continue;
    const auto powerOf = [&](int exponent) { return forms_.power({1, linear.term}, exponent).term; };
    const auto top = std::ranges::find(addends, powerOf(n), &Value::term);
    const auto next = std::ranges::find(addends, powerOf(n - 1), &Value::term);
    if (top == addends.end() || next == addends.end()) continue;
    const double front = top->factor, shift = next->factor / front / n;
    std::vector<Value> rest, base = {{1, linear.term}, {shift, kOne}};
    for (const Value& addend : addends) {
      if (addend.term != top->term && addend.term != next->term) rest.push_back(addend);
    }
    rest.push_back({-front * std::pow(shift, n), kOne});
    if (n == 3) rest.push_back({-3 * front * shift * shift, linear.term});
    rest = forms_.gathered(std::move(rest));
    const Written root = writeSum(base, false), power = apply(n == 2 ? Op::kSquare : Op::kCube, root);
    const Written term = scaled(std::fabs(front), power);
    if (rest.empty()) {
      take(best, front > 0 ? term : scaled(front, power));
    } else if (front > 0) {
      take(best, apply(Op::kAdd, term, writeSum(rest, false)));
      for (Value& addend : rest) addend.factor = -addend.factor;
      take(best, apply(Op::kSub, term, writeSum(rest, false)));
    } else {
      take(best, apply(Op::kSub, writeSum(rest, false), term));
    }
  }
  return best;
}

/// The other addends, and factor * written in the place of addend `i` and the last one.
Written Writer::writeMerged(std::span<const Value> addends, std::size_t i, double factor, const Written& written) {
  std::vector<Value> rest(addends.begin(), addends.end() - 1);
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
  if (rest.empty()) return scaled(factor, written);
  return apply(factor > 0 ? Op::kAdd : Op::kSub, writeSum(rest, false), scaled(std::fabs(factor), written));
}

/// c log(u) + k as c log(exp(k / c) u), and k + k cos(u), k - k cos(u) as squares of cos(u / 2), sin(u / 2).
Written Writer::writeWithConstant(std::span<const Value> addends) {
  Written best;
  if (addends.back().term != kOne) return best;
  const double constant = addends.back().factor;
  for (std::size_t i = 0; i + 1 < addends.size(); ++i) {
    const Term& term = forms_.term(addends[i].term);
    const double factor = addends[i].factor;
    if (forms_.isFunction(addends[i].term, Op::kLog)) {
      const double inner = std::exp(constant / factor) * term.values[0].factor;
      if (!std::isnormal(inner)) continue;
      take(best, writeMerged(addends, i, factor, apply(Op::kLog, write({inner, term.values[0].term}))));
    }
    const bool is_like = std::fabs(std::fabs(factor) - std::fabs(constant)) <= kTidyShare * std::fabs(constant);
    if (forms_.isFunction(addends[i].term, Op::kCos) && is_like) {
      const Value half = forms_.function(factor * constant > 0 ? Op::kCos : Op::kSin,
                                         {{0.5 * term.values[0].factor, term.values[0].term}});
      take(best, writeMerged(addends, i, 2 * constant, write(forms_.power(half, 2))));
    }
  }
  return best;
}

}  // namespace srjit

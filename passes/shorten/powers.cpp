// Normal forms of products, powers, exponentials, logarithms and magnitudes.
#include <algorithm>
#include <cmath>
#include <utility>

#include "passes/shorten/normal_form.h"

namespace srjit {
namespace {

constexpr double kExponentParts = 12;  // exponents are rounded to such parts of 1
constexpr double kSameExponent = 1e-12;

double tidyExponent(double exponent) {
  const double parts = std::rint(exponent * kExponentParts);
  return std::fabs(exponent * kExponentParts - parts) < kSameExponent ? parts / kExponentParts : exponent;
}

}  // namespace

/// The powers of products that are bases apart, like bases merged.
std::vector<Power> NormalForms::merged(std::span<const Power> powers) const {
  std::vector<Power> flat;
  for (const Power& power : powers) {
    const Term& base = terms_[power.base];
    if (base.kind == Term::Kind::kProduct && isWhole(power.exponent)) {
      for (const Power& inner : base.powers) flat.push_back({inner.base, inner.exponent * power.exponent});
    } else if (isFunction(power.base, Op::kAbs) && isEven(power.exponent)) {
      for (const Power& inner : powersOf(base.values[0].term)) {
        flat.push_back({inner.base, inner.exponent * power.exponent});
      }
    } else {
      flat.push_back(power);
    }
  }
  std::ranges::stable_sort(flat, [&](const Power& a, const Power& b) { return compare(a.base, b.base) < 0; });
  std::vector<Power> merged;
  for (const Power& power : flat) {
    if (!merged.empty() && merged.back().base == power.base) {
      merged.back().exponent = tidyExponent(merged.back().exponent + power.exponent);
    } else {
      merged.push_back({power.base, tidyExponent(power.exponent)});
    }
  }
  std::erase_if(merged, [](const Power& power) { return power.exponent == 0; });
  return merged;
}

Value NormalForms::product(double factor, std::vector<Power> powers) {
  powers = merged(powers);
  const auto takeAll = [&](const auto& isTaken) {
    const auto rest = std::ranges::stable_partition(powers, [&](const Power& power) { return !isTaken(power); });
    std::vector<Power> taken(rest.begin(), rest.end());
    powers.erase(rest.begin(), rest.end());
    return taken;
  };
  const auto isExponential = [&](const Power& power) { return isFunction(power.base, Op::kExp); };
  const auto isMagnitude = [&](const Power& power) {
    return isFunction(power.base, Op::kAbs) && isWhole(power.exponent);
  };
  const auto isScaled = [&](const Power& power) { return isExponential(power) && power.exponent != 1; };
  if (std::ranges::count_if(powers, isExponential) > 1 || std::ranges::any_of(powers, isScaled)) {
    std::vector<Value> exponents;
    for (const auto& [base, exponent] : takeAll(isExponential)) {
      const Value& inner = terms_[base].values[0];
      exponents.push_back({inner.factor * exponent, inner.term});
    }
    return multiply(product(factor, std::move(powers)), exponential(add(exponents)));
  }
  if (std::ranges::count_if(powers, isMagnitude) > 1) {
    std::vector<Power> operands;
    for (const auto& [base, exponent] : takeAll(isMagnitude)) {
      operands.push_back({terms_[base].values[0].term, exponent});
    }
    return multiply(product(factor, std::move(powers)), absolute(product(1, std::move(operands))));
  }
  if (powers.empty()) return checked(factor, kOne);
  if (powers.size() == 1 && powers[0].exponent == 1) return checked(factor, powers[0].base);
  Term term{.kind = Term::Kind::kProduct};
  term.powers = std::move(powers);
  return checked(factor, intern(std::move(term)));
}

Value NormalForms::multiply(const Value& a, const Value& b) {
  if (a.factor == 0 || b.factor == 0) return {};
  if (a.term == kOne || b.term == kOne) return checked(a.factor * b.factor, a.term == kOne ? b.term : a.term);
  std::vector<Power> powers = powersOf(a.term);
  const std::vector<Power> others = powersOf(b.term);
  powers.insert(powers.end(), others.begin(), others.end());
  return product(a.factor * b.factor, std::move(powers));
}

/// A value whose base is the negation of a negative one: of a sum the sum of the negated addends, which only bases of
/// roots and operands of logarithms are, else a function neg.
Value NormalForms::negatedBase(const Value& base) {
  Term term{.kind = Term::Kind::kFunction, .op = Op::kNeg};
  if (terms_[base.term].kind == Term::Kind::kSum) {
    term = terms_[base.term];
    for (Value& addend : term.values) addend.factor = -addend.factor;
  } else {
    term.values = {{1, base.term}};
  }
  return {-base.factor, intern(std::move(term))};
}

Value NormalForms::power(const Value& base, double exponent) {
  exponent = tidyExponent(exponent);
  if (exponent == 0) return {1, kOne};
  if (base.factor == 0) {
    if (exponent < 0) has_failed_ = true;
    return {};
  }
  if (base.term == kOne && base.factor < 0 && !isWhole(exponent)) has_failed_ = true;
  if (isWhole(exponent) || base.term == kOne) {
    std::vector<Power> powers = powersOf(base.term);
    for (Power& power : powers) power.exponent *= exponent;
    return product(std::pow(base.factor, exponent), std::move(powers));
  }
  // Of factors that may be negative, one must have the sign of the rest where the power has a value.
  std::vector<Power> powers, unsure;
  for (const Power& power : powersOf(base.term)) {
    if (!isNonNegative(power.base) && !isEven(power.exponent)) {
      unsure.push_back(power);
      continue;
    }
    Value magnitude = absolute({1, power.base});
    if (magnitude.factor < 0) magnitude = negatedBase(magnitude);
    powers.push_back({magnitude.term, power.exponent * exponent});
  }
  Value rest{base.factor, kOne};
  if (unsure.size() == 1) {
    const Value certain = base.factor < 0 ? negatedBase({1, unsure[0].base}) : Value{1, unsure[0].base};
    rest.factor *= certain.factor;
    powers.push_back({certain.term, unsure[0].exponent * exponent});
    if (rest.factor < 0) has_failed_ = true;
  } else if (!unsure.empty()) {
    rest = {base.factor, product(1, unsure).term};
    if (base.factor < 0) rest = negatedBase(rest);
    powers.push_back({rest.term, exponent});
  } else if (base.factor < 0) {
    has_failed_ = true;
  }
  return product(std::pow(rest.factor, exponent), std::move(powers));
}

Value NormalForms::exponential(const Value& exponent) {
  Value result{1, kOne};
  std::vector<Value> rest;
  for (const Value& addend : addendsOf(exponent)) {
    if (addend.term == kOne && std::isnormal(std::exp(addend.factor))) {
      result = multiply(result, {std::exp(addend.factor), kOne});
    } else if (isFunction(addend.term, Op::kLog)) {
      result = multiply(result, power(terms_[addend.term].values[0], addend.factor));
    } else {
      rest.push_back(addend);
    }
  }
  if (rest.empty()) return result;
  const Value sum = add(rest);
  if (sum.factor == 0) return result;
  Term term{.kind = Term::Kind::kFunction, .op = Op::kExp};
  term.values = {sum};
  return multiply(result, {1, intern(std::move(term))});
}

Value NormalForms::logarithm(const Value& operand) {
  if (operand.term == kOne) {
    if (!(operand.factor > 0)) has_failed_ = true;
    return constant(std::log(operand.factor));
  }
  Value certain = operand;
  std::vector<Power> powers = powersOf(operand.term);
  if (certain.factor < 0) {
    certain = negatedBase(certain);
    powers = powersOf(certain.term);
  }
  std::vector<Value> addends = {{std::log(certain.factor), kOne}};
  const auto isExponential = [&](const Power& power) { return isFunction(power.base, Op::kExp); };
  for (const Power& power : powers) {
    if (isExponential(power)) addends.push_back(terms_[power.base].values[0]);
  }
  std::erase_if(powers, isExponential);
  double common = powers.empty() ? 1 : std::fabs(powers[0].exponent);
  for (const Power& power : powers) common = std::min(common, std::fabs(power.exponent));
  for (const Power& power : powers) common = isWhole(power.exponent / common) ? common : 1;
  if (powers.size() == 1) common = powers[0].exponent;
  if (std::ranges::all_of(powers, [](const Power& power) { return power.exponent < 0; })) common = -std::fabs(common);
  for (Power& power : powers) power.exponent /= common;
  if (!powers.empty()) {
    Value inner = product(1, std::move(powers));
    if (isEven(common)) inner = absolute(inner);
    Term term{.kind = Term::Kind::kFunction, .op = Op::kLog};
    term.values = {inner};
    addends.push_back({common, intern(std::move(term))});
  }
  return add(addends);
}

Value NormalForms::absolute(const Value& operand) {
  double factor = std::fabs(operand.factor);
  std::vector<Power> powers, unsure;
  for (const Power& power : powersOf(operand.term)) {
    const bool is_even = isEven(power.exponent), is_magnitude = isNonNegative(power.base);
    (is_even || is_magnitude || !isWhole(power.exponent) ? powers : unsure).push_back(power);
  }
  std::erase_if(unsure, [&](const Power& power) {
    if (terms_[power.base].range.high > 0) return false;
    powers.push_back(power);
    factor = isOdd(power.exponent) ? -factor : factor;
    return true;
  });
  if (!unsure.empty()) {
    const double common = unsure.size() == 1 ? unsure[0].exponent : 1;
    for (Power& power : unsure) power.exponent /= common;
    Term term{.kind = Term::Kind::kFunction, .op = Op::kAbs};
    term.values = {{1, product(1, std::move(unsure)).term}};
    powers.push_back({intern(std::move(term)), common});
  }
  return product(factor, std::move(powers));
}

}  // namespace srjit

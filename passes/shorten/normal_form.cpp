#include "passes/shorten/normal_form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "passes/rules/rewriter.h"

namespace srjit {
namespace {

constexpr double kSameNumber = 1e-15;  // share of numbers by which their sum is rounding
constexpr double kSameMagnitude = 1e-13;
constexpr double kMostExpanded = 3;  // a power of a sum that is multiplied out

struct FormFacts {
  Op op;
  Parity parity = Parity::kNeither;
  Op inner = op;
  double least = 0, most = 0;
};
constexpr double kHalfPi = std::numbers::pi / 2;
constexpr FormFacts kFormFacts[] = {
#define SRJIT_FUNCTION(op, parity, inner, least, most) {Op::k##op, Parity::parity, Op::k##inner, least, most},
#include "passes/shorten/functions.def"
#undef SRJIT_FUNCTION
};

FormFacts formFactsOf(Op op) noexcept {
  const auto found = std::ranges::find(kFormFacts, op, &FormFacts::op);
  return found == std::end(kFormFacts) ? FormFacts{op} : *found;
}

/// Of a base where the power is a number: a root's is not negative, and 0 is neared from the other end.
Interval powerOf(Interval base, double exponent) {
  if (!isWhole(exponent)) base = {std::max(base.low, 0.0), std::max(base.high, 0.0)};
  constexpr double kNearZero = std::numeric_limits<double>::denorm_min();
  if (exponent < 0 && base.low == 0) base.low = kNearZero;
  if (exponent < 0 && base.high == 0) base.high = -kNearZero;
  return intervalOf(Op::kPow, std::array{base, Interval{exponent, exponent}});
}

/// The magnitude that most numbers of a sum have; of equally frequent ones the first.
double commonMagnitude(std::span<const Value> addends) {
  double common = 0;
  std::ptrdiff_t most = 0;
  for (const Value& one : addends) {
    const double magnitude = std::fabs(one.factor);
    const auto count = std::ranges::count_if(addends, [&](const Value& other) {
      return std::fabs(std::fabs(other.factor) - magnitude) <= kSameMagnitude * magnitude;
    });
    if (count <= most) continue;
    most = count;
    common = magnitude;
  }
  return common;
}

}  // namespace

Parity parityOf(Op op) noexcept { return formFactsOf(op).parity; }

NormalForms::NormalForms(std::span<const Interval> ranges, bool expands) : ranges_(ranges), expands_(expands) {
  terms_.push_back({});
}

int NormalForms::compare(TermId a, TermId b) const noexcept {
  if (a == b) return 0;
  const Term &x = terms_[a], &y = terms_[b];
  const auto order = [](auto p, auto q) { return p < q ? -1 : p > q ? 1 : 0; };
  int result = order(x.kind, y.kind);
  if (result == 0) result = order(x.index, y.index);
  if (result == 0) result = order(x.op, y.op);
  if (result == 0) result = order(x.values.size(), y.values.size());
  for (std::size_t i = 0; result == 0 && i < x.values.size(); ++i) {
    result = compare(x.values[i].term, y.values[i].term);
    if (result == 0) result = order(x.values[i].factor, y.values[i].factor);
  }
  for (std::size_t i = 0; result == 0 && i < std::min(x.powers.size(), y.powers.size()); ++i) {
    result = compare(x.powers[i].base, y.powers[i].base);
    if (result == 0) result = order(x.powers[i].exponent, y.powers[i].exponent);
  }
  return result != 0 ? result : order(x.powers.size(), y.powers.size());
}

TermId NormalForms::intern(Term term) {
  const auto isSame = [&](const Term& other) {
    return other.kind == term.kind && other.op == term.op && other.index == term.index && other.values == term.values &&
           other.powers == term.powers;
  };
  const auto found = std::ranges::find_if(terms_, isSame);
  if (found != terms_.end()) return static_cast<TermId>(found - terms_.begin());
  term.range = rangeOf(term);
  terms_.push_back(std::move(term));
  return static_cast<TermId>(terms_.size() - 1);
}

/// A value that is not 0. Notes a number that is too large or too small.
Value NormalForms::checked(double factor, TermId term) {
  if (!std::isnormal(factor)) has_failed_ = true;
  return {factor, term};
}

Value NormalForms::constant(double number) { return number == 0 ? Value{} : checked(number, kOne); }

Value NormalForms::variable(std::uint32_t index) {
  Term term{.kind = Term::Kind::kVariable};
  term.index = index;
  return {1, intern(std::move(term))};
}

std::vector<Power> NormalForms::powersOf(TermId term) const {
  if (term == kOne) return {};
  if (terms_[term].kind == Term::Kind::kProduct) return terms_[term].powers;
  return {{term, 1}};
}

std::vector<Value> NormalForms::addendsOf(const Value& value) const {
  if (terms_[value.term].kind != Term::Kind::kSum) return {value};
  std::vector<Value> addends = terms_[value.term].values;
  for (Value& addend : addends) addend.factor *= value.factor;
  return addends;
}

/// Appends what `value` is the sum of, multiplied out.
void NormalForms::expand(const Value& value, std::vector<Value>& addends) {
  const Term& term = terms_[value.term];
  if (term.kind == Term::Kind::kSum) {
    for (const Value& addend : addendsOf(value)) expand(addend, addends);
    return;
  }
  std::vector<Power> powers = powersOf(value.term);
  const auto sum = std::ranges::find_if(powers, [&](const Power& power) {
    return terms_[power.base].kind == Term::Kind::kSum && power.exponent > 0 && power.exponent <= kMostExpanded &&
           isWhole(power.exponent);
  });
  if (sum == powers.end() || addends.size() >= kMostAddends) {
    addends.push_back(value);
    return;
  }
  has_expanded_ = true;
  const TermId base = sum->base;
  sum->exponent -= 1;
  const Value rest = product(value.factor, std::move(powers));
  for (const Value& addend : terms_[base].values) expand(multiply(rest, addend), addends);
}

Value NormalForms::add(std::span<const Value> values) {
  std::vector<Value> addends;
  for (const Value& value : values) {
    if (value.factor == 0) continue;
    if (expands_) {
      expand(value, addends);
    } else {
      const std::vector<Value> some = addendsOf(value);
      addends.insert(addends.end(), some.begin(), some.end());
    }
  }
  return normalSum(gathered(std::move(addends)));
}

std::vector<Value> NormalForms::gathered(std::vector<Value> addends) {
  gatherLogarithms(addends);
  std::ranges::stable_sort(addends, [&](const Value& a, const Value& b) { return compare(a.term, b.term) < 0; });
  std::vector<Value> merged;
  double largest = 0;  // of the numbers that the last one is the sum of
  const auto dropRounding = [&] {
    if (!merged.empty() && std::fabs(merged.back().factor) <= kSameNumber * largest) merged.pop_back();
  };
  for (const Value& addend : addends) {
    if (!merged.empty() && merged.back().term == addend.term) {
      merged.back().factor += addend.factor;
    } else {
      dropRounding();
      merged.push_back(addend);
      largest = 0;
    }
    largest = std::max(largest, std::fabs(addend.factor));
  }
  dropRounding();
  return merged;
}

/// c log(u) - c log(v) becomes c log(u / v), which has a value wherever the difference has.
void NormalForms::gatherLogarithms(std::vector<Value>& addends) {
  const auto isLogarithm = [&](const Value& value) { return isFunction(value.term, Op::kLog); };
  for (std::size_t i = 0; i < addends.size(); ++i) {
    if (!isLogarithm(addends[i])) continue;
    const double factor = addends[i].factor;
    Value operand = terms_[addends[i].term].values[0];
    bool has_more = false;
    for (std::size_t k = addends.size() - 1; k > i; --k) {
      const bool is_like = std::fabs(addends[k].factor) == std::fabs(factor) && addends[k].term != addends[i].term;
      if (!isLogarithm(addends[k]) || !is_like) continue;
      const Value other = terms_[addends[k].term].values[0];
      operand = multiply(operand, addends[k].factor == factor ? other : power(other, -1));
      addends.erase(addends.begin() + static_cast<std::ptrdiff_t>(k));
      has_more = true;
    }
    if (!has_more) continue;
    addends.erase(addends.begin() + static_cast<std::ptrdiff_t>(i--));
    for (const Value& addend : addendsOf(logarithm(operand))) addends.push_back({addend.factor * factor, addend.term});
  }
}

/// The powers that all addends have, to exponents of one sign.
std::vector<Power> NormalForms::commonPowers(std::span<const Value> addends) const {
  std::vector<Power> common = powersOf(addends[0].term);
  for (const Value& addend : addends.subspan(1)) {
    const std::vector<Power> powers = powersOf(addend.term);
    std::erase_if(common, [&](Power& power) {
      const auto other = std::ranges::find(powers, power.base, &Power::base);
      if (other == powers.end() || (other->exponent > 0) != (power.exponent > 0)) return true;
      // The smaller one, so that what is left has no quotients.
      power.exponent = std::min(power.exponent, other->exponent);
      return false;
    });
  }
  return common;
}

Value NormalForms::normalSum(std::vector<Value> addends) {
  if (addends.empty()) return {};
  if (addends.size() == 1) return checked(addends[0].factor, addends[0].term);
  const std::vector<Power> common = commonPowers(addends);
  if (!common.empty()) {
    std::vector<Power> inverse = common;
    for (Power& power : inverse) power.exponent = -power.exponent;
    const Value divisor = product(1, std::move(inverse));
    for (Value& addend : addends) addend = multiply(addend, divisor);
    return multiply(product(1, common), normalSum(gathered(std::move(addends))));
  }
  double signs = 0;
  for (const Value& addend : addends) signs += std::copysign(1, addend.factor);
  const double lead = std::copysign(commonMagnitude(addends), signs == 0 ? addends[0].factor : signs);
  for (Value& addend : addends) addend = checked(addend.factor / lead, addend.term);
  Term term{.kind = Term::Kind::kSum};
  term.values = std::move(addends);
  return checked(lead, intern(std::move(term)));
}

Interval NormalForms::rangeOf(const Value& value) const {
  const Interval& range = terms_[value.term].range;
  return value.factor == 1 ? range : intervalOf(Op::kMul, std::array{Interval{value.factor, value.factor}, range});
}

Interval NormalForms::rangeOf(const Term& term) const {
  switch (term.kind) {
    case Term::Kind::kVariable:
      return term.index < ranges_.size() ? ranges_[term.index] : Interval{-HUGE_VAL, HUGE_VAL};
    case Term::Kind::kFunction: {
      std::vector<Interval> operands;
      for (const Value& operand : term.values) operands.push_back(rangeOf(operand));
      return intervalOf(term.op, operands);
    }
    case Term::Kind::kProduct: {
      Interval range{1, 1};
      for (const Power& power : term.powers) {
        range = intervalOf(Op::kMul, std::array{range, powerOf(terms_[power.base].range, power.exponent)});
      }
      return range;
    }
    case Term::Kind::kSum: {
      Interval range{0, 0};
      for (const Value& addend : term.values) range = intervalOf(Op::kAdd, std::array{range, rangeOf(addend)});
      return range;
    }
    case Term::Kind::kOne:
      break;
  }
  return {1, 1};
}

Value NormalForms::function(Op op, std::vector<Value> operands) {
  if (std::ranges::all_of(operands, [](const Value& value) { return value.term == kOne; })) {
    std::vector<double> numbers;
    for (const Value& operand : operands) numbers.push_back(operand.factor);
    const double number = valueOf(op, numbers, Precision::kF64);
    return constant(number);
  }
  double sign = 1;
  if (operands.size() == 1) {
    Value& operand = operands[0];
    const Term& term = terms_[operand.term];
    if (term.kind == Term::Kind::kFunction && operand.factor == 1) {
      const FormFacts facts = formFactsOf(op);
      const Interval range = rangeOf(term.values[0]);
      const bool is_inverse = facts.inner == term.op && op != term.op;
      if (is_inverse && range.low >= facts.least && range.high <= facts.most) return term.values[0];
    }
    if (parityOf(op) != Parity::kNeither && operand.factor < 0) {
      sign = parityOf(op) == Parity::kOdd ? -1 : 1;
      operand.factor = -operand.factor;
    }
    const bool is_magnitude = isFunction(operand.term, Op::kAbs);
    if (parityOf(op) == Parity::kEven && is_magnitude) operand.term = term.values[0].term;
  }
  Term term{.kind = Term::Kind::kFunction, .op = op};
  term.values = std::move(operands);
  return {sign, intern(std::move(term))};
}

Value NormalForms::apply(Op op, std::span<const Value> operands) {
  const Value& x = operands[0];
  const Value y = operands.size() > 1 ? operands[1] : Value{};
  const auto negated = [](const Value& value) { return Value{-value.factor, value.term}; };
  const auto sum = [&](const Value& a, const Value& b) { return add(std::array{a, b}); };
  switch (op) {
    case Op::kAdd:
      return sum(x, y);
    case Op::kSub:
      return sum(x, negated(y));
    case Op::kNeg:
      return negated(x);
    case Op::kMul:
      return multiply(x, y);
    case Op::kDiv:
      return multiply(x, power(y, -1));
    case Op::kInv:
      return power(x, -1);
    case Op::kSquare:
      return power(x, 2);
    case Op::kCube:
      return power(x, 3);
    case Op::kSqrt:
      return power(x, 0.5);
    case Op::kExp:
      return exponential(x);
    case Op::kLog:
      return logarithm(x);
    case Op::kAbs:
      return absolute(x);
    case Op::kPow:
      if (y.term == kOne) return power(x, y.factor);
      if (x.term == kOne && x.factor > 0) return exponential(multiply(y, {std::log(x.factor), kOne}));
      break;
    default:
      break;
  }
  return function(op, {operands.begin(), operands.end()});
}

Value NormalForms::read(const Expression& expression) {
  std::vector<Value> stack;
  for (const Token& token : expression.tokens()) {
    switch (token.kind) {
      case Token::Kind::kConstant:
        stack.push_back(constant(token.value));
        break;
      case Token::Kind::kVariable:
        stack.push_back(variable(token.index));
        break;
      case Token::Kind::kParameter:
        has_failed_ = true;
        stack.push_back({});
        break;
      case Token::Kind::kOp: {
        const auto arity = static_cast<std::size_t>(token.arity());
        const Value value = apply(token.op, std::span(stack).last(arity));
        stack.resize(stack.size() - arity);
        stack.push_back(value);
        break;
      }
    }
    if (has_failed_) return {};
  }
  return stack.back();
}

}  // namespace srjit

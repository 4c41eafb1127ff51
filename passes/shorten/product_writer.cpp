// How products and powers are written.
#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "passes/shorten/writer.h"

namespace srjit {
namespace {

constexpr double kMostWholePower = 64;
constexpr std::size_t kMostDistributed = 5;  // powers

}  // namespace

Written Writer::writeProduct(double factor, const std::vector<Power>& powers, bool may_distribute) {
  Written best = writeFlat(factor, powers, nullptr, false);
  if (--left_ < 0) return best;
  take(best, writeGrouped(factor, powers));
  if (may_distribute) take(best, writeDistributed(factor, powers));
  return best;
}

/// Factor by factor, and a `group` that is written already. The number stands in front, or goes into one of the
/// factors.
Written Writer::writeFlat(double factor, std::span<const Power> powers, const Written* group, bool is_below) {
  Written best;
  // With the number in the power `absorber`; powers.size(): in front.
  for (std::size_t absorber = powers.size() + 1; absorber-- > 0;) {
    if (absorber < powers.size() && (factor == 1 || left_ < 0)) break;
    Options above, below;
    if (group != nullptr) (is_below ? below : above).push_back(*group);
    bool is_possible = true;
    for (std::size_t i = 0; i < powers.size(); ++i) {
      const Term& base = forms_.term(powers[i].base);
      const bool is_exponential = forms_.isFunction(powers[i].base, Op::kExp);
      const double own = i == absorber ? factor : 1;
      if (i == absorber && base.kind != Term::Kind::kSum && !is_exponential) is_possible = false;
      if (!is_possible) break;
      if (!is_exponential) {
        const bool is_divisor = powers[i].exponent < 0;
        const Power power{powers[i].base, std::fabs(powers[i].exponent)};
        (is_divisor ? below : above).push_back(writePower(is_divisor ? 1 / own : own, power));
        continue;
      }
      if (own < 0) is_possible = false;
      const Value exponent = forms_.add(std::array{base.values[0], Value{std::log(std::fabs(own)), kOne}});
      const Written direct = writeExponential(exponent);
      const Written inverse = writeExponential({-exponent.factor, exponent.term});
      const bool is_alone = powers.size() == 1 && group == nullptr && (factor == 1 || absorber == i);
      (inverse.cost < direct.cost && !is_alone ? below : above)
          .push_back(inverse.cost < direct.cost && !is_alone ? inverse : direct);
    }
    std::ranges::stable_partition(above, [](const Written& one) { return one.tokens.size() == 1; });
    if (is_possible) take(best, quotientOf(absorber < powers.size() ? 1 : factor, std::move(above), below));
  }
  return best;
}

/// Powers of exponents that are multiples of 2, 3 or a half within one square, cube or root.
Written Writer::writeGrouped(double factor, std::span<const Power> powers) {
  Written best;
  for (const auto& [op, unit] : {std::pair(Op::kSquare, 2.0), std::pair(Op::kCube, 3.0), std::pair(Op::kSqrt, 0.5)}) {
    if (!has(op)) continue;
    std::vector<Power> some, rest;
    for (const Power& power : powers) {
      const bool is_exponential = forms_.isFunction(power.base, Op::kExp);
      const bool is_within = isWhole(power.exponent / unit) && (unit > 1 || !isWhole(power.exponent));
      (is_within && !is_exponential ? some : rest).push_back(power);
    }
    if (some.empty()) continue;
    const bool is_below = std::ranges::all_of(some, [](const Power& power) { return power.exponent < 0; });
    for (Power& power : some) power.exponent /= is_below ? -unit : unit;
    const Written group = apply(op, writeProduct(1, some, true));
    take(best, writeFlat(factor, rest, &group, is_below));
    const double inner = std::pow(std::fabs(factor), (is_below ? -1 : 1) / unit);
    if (factor == 1 || (factor < 0 && op != Op::kCube) || !std::isnormal(inner)) continue;
    const Written absorbing = apply(op, writeProduct(std::copysign(inner, factor), some, true));
    take(best, writeFlat(1, rest, &absorbing, is_below));
  }
  return best;
}

/// With other factors multiplied into a sum.
Written Writer::writeDistributed(double factor, std::span<const Power> powers) {
  Written best;
  if (powers.size() > kMostDistributed) return best;
  for (std::size_t sum = 0; sum < powers.size(); ++sum) {
    const Term& base = forms_.term(powers[sum].base);
    if (base.kind != Term::Kind::kSum || std::fabs(powers[sum].exponent) != 1) continue;
    for (std::size_t set = 1; set < (std::size_t{1} << powers.size()); ++set) {
      if ((set >> sum & 1) != 0) continue;
      std::vector<Power> within, rest;
      for (std::size_t i = 0; i < powers.size(); ++i) {
        if (i == sum) continue;
        const Power own{powers[i].base, powers[i].exponent * powers[sum].exponent};
        ((set >> i & 1) != 0 ? within : rest).push_back((set >> i & 1) != 0 ? own : powers[i]);
      }
      const Value multiplier = forms_.product(1, within);
      for (const bool takes_number : {true, false}) {
        if (!takes_number && factor == 1) continue;
        const double own = takes_number ? std::pow(factor, powers[sum].exponent) : 1;
        std::vector<Value> addends;
        for (const Value& addend : base.values) {
          const Value product = forms_.multiply(addend, multiplier);
          addends.push_back({product.factor * own, product.term});
        }
        const Written group = writeSum(forms_.gathered(std::move(addends)), false);
        take(best, writeFlat(takes_number ? 1 : factor, rest, &group, powers[sum].exponent < 0));
      }
    }
  }
  return best;
}

/// factor * base^exponent, for a positive exponent; the factor goes into the base.
Written Writer::writePower(double factor, const Power& power) {
  if (power.exponent == 1) {
    if (forms_.term(power.base).kind == Term::Kind::kFunction) return writeFunction({factor, power.base});
    return write({factor, power.base});
  }
  const auto key = std::tuple(power.base, power.exponent, factor);
  if (const auto found = known_powers_.find(key); found != known_powers_.end()) return found->second;
  return known_powers_[key] = writeFreshPower(factor, power);
}

Written Writer::writeFreshPower(double factor, const Power& power) {
  const double exponent = power.exponent;
  const Term& base = forms_.term(power.base);
  if (factor != 1) {
    const double root = std::pow(std::fabs(factor), 1 / exponent);
    if (base.kind != Term::Kind::kSum || (factor < 0 && !isOdd(exponent)) || !std::isnormal(root)) return {};
    factor = std::copysign(root, factor);
  }
  const auto one = [&](double own) {
    const double inner = factor == 1 ? 1 : std::copysign(std::pow(std::fabs(factor), own), factor);
    return writePower(inner, {power.base, own});
  };
  const Written plain = one(1);
  // So that x^1.5 is written for sqrt(cube(x)), which costs the same.
  Written own = number(exponent);
  if (own.effort == 1) own.effort = 0;
  Written best = apply(Op::kPow, plain, own);
  const bool is_whole = isWhole(exponent);
  if (is_whole && exponent <= kMostWholePower) {
    if (isEven(exponent)) {
      const Written half = one(exponent / 2);
      take(best, apply(Op::kSquare, half));
      take(best, apply(Op::kMul, half, half));
    } else {
      take(best, apply(Op::kMul, one(exponent - 1), plain));
    }
    if (isWhole(exponent / 3)) take(best, apply(Op::kCube, one(exponent / 3)));
  } else if (!is_whole && isWhole(exponent * 8)) {
    take(best, apply(Op::kSqrt, one(exponent * 2)));
    if (exponent > 1) take(best, apply(Op::kMul, one(std::floor(exponent)), one(exponent - std::floor(exponent))));
  }
  if (best.cost >= Written::kNever) best = apply(Op::kExp, scaled(exponent, apply(Op::kLog, plain)));
  return best;
}

}  // namespace srjit

#include "passes/operator_facts.h"

#include <array>
#include <bitset>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "ir/numbers/fast_forms.h"
#include "ir/ops.h"
#include "ir/rows.h"

namespace srjit {
namespace {

/// The domain (ir/rows.h) in which a value, or a comparison, is the set of operands that it contains, and whether a
/// step that computed it is approximate.
struct Contents {
  Contents(double literal) : is_zero(literal == 0) {}
  explicit Contents(unsigned bits, bool approximate)
      : operands(static_cast<std::uint8_t>(bits)), is_approximate(approximate) {}
  std::uint8_t operands = 0;
  bool is_zero = false, is_approximate = false;
};

template <class... Values>
Contents computed(bool is_approximate, const Values&... values) {
  return Contents((0U | ... | values.operands), (is_approximate || ... || values.is_approximate));
}

Contents operator+(const Contents& x, const Contents& y) { return computed(false, x, y); }
Contents operator-(const Contents& x, const Contents& y) { return computed(false, x, y); }
Contents operator*(const Contents& x, const Contents& y) { return computed(false, x, y); }
Contents operator/(const Contents& x, const Contents& y) { return computed(true, x, y); }
Contents operator-(const Contents& x) { return computed(false, x); }
Contents lt(const Contents& x, const Contents& y) { return computed(false, x, y); }
Contents le(const Contents& x, const Contents& y) { return computed(false, x, y); }
Contents eq(const Contents& x, const Contents& y) { return computed(false, x, y); }
Contents select(const Contents& mask, const Contents& x, const Contents& y) { return computed(false, mask, x, y); }

// The bound of a correctly rounded function is one kUlp at r = 1.
template <class... Values>
Contents called(Function function, const Values&... values) {
  return computed(fastErrorOf(function, 1, 1, 1) > kUlp, values...);
}
#define SRJIT_VALUE Contents
#define SRJIT_CALL called
#include "ir/functions/define.def"

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kFinite[] = {0, 1, -1, 0.5, -0.5, 2, -2, 1e4, -1e4};
constexpr double kExceptional[] = {kInfinite, -kInfinite, kNotANumber};

using Row = std::array<double, kMaxArity>;

/// Calls `use(row, value)` for all rows of these operands.
template <class Use>
void forEachRow(Op op, const std::array<std::span<const double>, kMaxArity>& operands, const Use& use) {
  for (const double x : operands[0]) {
    for (const double y : operands[1]) {
      for (const double z : operands[2]) use(Row{x, y, z}, applyRow<double>(op, x, y, z));
    }
  }
}

/// Of one operator.
struct Facts {
  bool exceptional = false, approximate = false;
  std::bitset<kMaxArity> hides, fails_beside;
  std::array<std::optional<std::uint8_t>, kMaxArity> partials{};
};

void findExceptions(Op op, Facts& facts) {
  const auto arity = static_cast<std::size_t>(arityOf(op));
  std::array<std::span<const double>, kMaxArity> operands;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    operands[k] = std::span(kFinite).first(k < arity ? std::size(kFinite) : 1);
  }
  forEachRow(op, operands, [&](const Row&, double value) { facts.exceptional |= !std::isfinite(value); });
  for (std::size_t k = 0; k < arity; ++k) {
    auto with_exceptional = operands;
    with_exceptional[k] = kExceptional;
    forEachRow(op, with_exceptional, [&](const Row& row, double value) {
      if (!std::isfinite(value)) return;
      facts.hides[k] = true;
      for (std::size_t by = 0; by < arity; ++by) {
        const double cell = derivativeRow<double>(op, static_cast<int>(by), row[0], row[1], row[2], value);
        if (!std::isfinite(cell)) facts.fails_beside[by] = true;
      }
    });
  }
}

Facts factsFor(Op op) {
  Facts facts;
  findExceptions(op, facts);
  const Contents x(1, false), y(2, false), z(4, false);
  facts.approximate = applyRow(op, x, y, z).is_approximate;
  const Contents result((1U << arityOf(op)) - 1, false);
  for (int k = 0; k < kMaxArity; ++k) {
    const Contents partial = derivativeRow(op, k, x, y, z, result);
    if (!partial.is_zero) facts.partials[static_cast<std::size_t>(k)] = partial.operands;
  }
  return facts;
}

const Facts& factsOf(Op op) {
  static const std::array<Facts, kOpCount> facts = [] {
    std::array<Facts, kOpCount> all{};
    for (std::size_t i = 0; i < kOpCount; ++i) all[i] = factsFor(static_cast<Op>(i));
    return all;
  }();
  return facts[static_cast<std::size_t>(op)];
}

}  // namespace

bool hasApproximateStep(Op op) noexcept { return factsOf(op).approximate; }
std::optional<std::uint8_t> operandsOfPartial(Op op, int operand) noexcept {
  return factsOf(op).partials[static_cast<std::size_t>(operand)];
}
bool mayBeExceptional(Op op) noexcept { return factsOf(op).exceptional; }
bool mayHide(Op op, int operand) noexcept { return factsOf(op).hides[static_cast<std::size_t>(operand)]; }
bool mayFailBeside(Op op, int operand) noexcept { return factsOf(op).fails_beside[static_cast<std::size_t>(operand)]; }

}  // namespace srjit

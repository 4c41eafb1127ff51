#include "passes/gradient/exceptional_operands.h"

#include <array>
#include <bitset>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "ir/ops.h"
#include "ir/rows.h"

namespace srjit {
namespace {

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
  bool exceptional = false;
  std::bitset<kMaxArity> hides, fails_beside;
};

Facts factsFor(Op op) {
  Facts facts;
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

bool mayBeExceptional(Op op) noexcept { return factsOf(op).exceptional; }
bool mayHide(Op op, int operand) noexcept { return factsOf(op).hides[static_cast<std::size_t>(operand)]; }
bool mayFailBeside(Op op, int operand) noexcept { return factsOf(op).fails_beside[static_cast<std::size_t>(operand)]; }

}  // namespace srjit

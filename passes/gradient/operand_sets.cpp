#include "passes/gradient/operand_sets.h"

#include <array>
#include <cstddef>

#include "ir/ops.h"
#include "ir/rows.h"

namespace srjit {
namespace {

/// The domain (ir/rows.h) in which a value, or a comparison, is the set of operands that it contains.
struct Contents {
  Contents(double literal) : set{0, literal == 0} {}
  explicit Contents(OperandSet operands) : set(operands) {}
  OperandSet set;
};

template <class... Others>
Contents all(const Contents& x, const Others&... others) {
  return Contents(OperandSet{static_cast<std::uint8_t>((x.set.bits | ... | others.set.bits)), false});
}

Contents operator+(const Contents& x, const Contents& y) { return all(x, y); }
Contents operator-(const Contents& x, const Contents& y) { return all(x, y); }
Contents operator*(const Contents& x, const Contents& y) { return all(x, y); }
Contents operator/(const Contents& x, const Contents& y) { return all(x, y); }
Contents operator-(const Contents& x) { return all(x); }
Contents lt(const Contents& x, const Contents& y) { return all(x, y); }
[[maybe_unused]] Contents le(const Contents& x, const Contents& y) { return all(x, y); }
Contents eq(const Contents& x, const Contents& y) { return all(x, y); }
Contents select(const Contents& mask, const Contents& x, const Contents& y) { return all(mask, x, y); }

#define SRJIT_FUNCTION(id, arity, ...) SRJIT_DEFINE_##arity(id)
#define SRJIT_DEFINE_1(id) \
  [[maybe_unused]] Contents id(const Contents& x) { return all(x); }
#define SRJIT_DEFINE_2(id) \
  [[maybe_unused]] Contents id(const Contents& x, const Contents& y) { return all(x, y); }
#define SRJIT_DEFINE_3(id) \
  [[maybe_unused]] Contents id(const Contents& x, const Contents& y, const Contents& z) { return all(x, y, z); }
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_DEFINE_1
#undef SRJIT_DEFINE_2
#undef SRJIT_DEFINE_3

using SetsOfOp = std::array<OperandSet, kMaxArity>;

std::array<SetsOfOp, kOpCount> makeSets() {
  std::array<SetsOfOp, kOpCount> sets{};
  for (std::size_t op = 0; op < kOpCount; ++op) {
    const Contents x(OperandSet{1}), y(OperandSet{2}), z(OperandSet{4});
    const Contents result = arityOf(static_cast<Op>(op)) == 1   ? x
                            : arityOf(static_cast<Op>(op)) == 2 ? all(x, y)
                                                                : all(x, y, z);
    for (int k = 0; k < kMaxArity; ++k) {
      sets[op][static_cast<std::size_t>(k)] = derivativeRow(static_cast<Op>(op), k, x, y, z, result).set;
    }
  }
  return sets;
}

}  // namespace

OperandSet operandsOfPartial(Op op, int operand) noexcept {
  static const std::array<SetsOfOp, kOpCount> sets = makeSets();
  return sets[static_cast<std::size_t>(op)][static_cast<std::size_t>(operand)];
}

}  // namespace srjit

#include "compiler/interpreter/op_family.h"

#include <algorithm>
#include <array>
#include <vector>

namespace srjit {
namespace {

constexpr std::array kArithmetic = {Op::kAdd,  Op::kSub, Op::kMul,    Op::kDiv,  Op::kNeg, Op::kFma, Op::kFms,
                                    Op::kFnma, Op::kInv, Op::kSquare, Op::kCube, Op::kAbs, Op::kMin, Op::kMax};

// What populations of the usual systems have besides: the elementary functions, the protected forms of gplearn, and
// what the simplifier makes of them.
constexpr std::array kMoreOfCommon = {Op::kPow,  Op::kSqrt,  Op::kExp,  Op::kLog,  Op::kLog2,
                                      Op::kSin,  Op::kCos,   Op::kTan,  Op::kTanh, Op::kPdiv,
                                      Op::kPlog, Op::kPsqrt, Op::kPinv, Op::kExp2, Op::kLogistic};

std::array<OpFamily, kOpCount> allFamilies() {
  std::array<OpFamily, kOpCount> families;
  families.fill(OpFamily::kAll);
  for (const Op op : kMoreOfCommon) families[static_cast<std::size_t>(op)] = OpFamily::kCommon;
  for (const Op op : kArithmetic) families[static_cast<std::size_t>(op)] = OpFamily::kArithmetic;
  return families;
}

}  // namespace

std::string_view nameOf(OpFamily family) noexcept {
  return family == OpFamily::kArithmetic ? "arithmetic" : family == OpFamily::kCommon ? "common" : "all";
}

OpFamily familyOf(Op op) noexcept {
  static const std::array<OpFamily, kOpCount> families = allFamilies();
  return families[static_cast<std::size_t>(op)];
}

OpFamily familyOf(std::span<const Op> ops) noexcept {
  OpFamily family = OpFamily::kArithmetic;
  for (const Op op : ops) family = std::max(family, familyOf(op));
  return family;
}

std::span<const Op> opsOf(OpFamily family) noexcept {
  static const std::array<std::vector<Op>, std::size(kOpFamilies)> members = [] {
    std::array<std::vector<Op>, std::size(kOpFamilies)> all;
    for (std::size_t i = 0; i < kOpCount; ++i) {
      const auto op = static_cast<Op>(i);
      for (const OpFamily of : kOpFamilies) {
        if (familyOf(op) <= of) all[static_cast<std::size_t>(of)].push_back(op);
      }
    }
    return all;
  }();
  return members[static_cast<std::size_t>(family)];
}

}  // namespace srjit

#include "compiler/interpreter/op_family.h"

#include <algorithm>
#include <array>
#include <vector>

#include "ir/ops.h"

namespace srjit {

std::string_view nameOf(OpFamily family) noexcept {
  return family == OpFamily::kArithmetic ? "arithmetic" : family == OpFamily::kCommon ? "common" : "all";
}

OpFamily familyOf(Op op) noexcept {
  const OpInfo& info = infoOf(op);
  if (info.has(OpProps::kArithmetic)) return OpFamily::kArithmetic;
  return info.has(OpProps::kCommon) ? OpFamily::kCommon : OpFamily::kAll;
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

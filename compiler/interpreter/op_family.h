// Families of operators: one interpreter kernel per family, so that few kernels serve all populations.
#pragma once

#include <span>
#include <string_view>

#include "ir/op.h"

namespace srjit {

/// Each contains the one before, and every operator that passes derive from its own. A kernel with fewer operators
/// compiles faster and fits the instruction cache.
enum class OpFamily { kArithmetic, kCommon, kAll };

inline constexpr OpFamily kOpFamilies[] = {OpFamily::kArithmetic, OpFamily::kCommon, OpFamily::kAll};

/// "arithmetic", "common" or "all".
std::string_view nameOf(OpFamily family) noexcept;

/// The operators of a family, ascending.
std::span<const Op> opsOf(OpFamily family) noexcept;

/// The smallest family that has `op`, from its row of ops.def.
OpFamily familyOf(Op op) noexcept;

/// The smallest family that has all of `ops`.
OpFamily familyOf(std::span<const Op> ops) noexcept;

}  // namespace srjit

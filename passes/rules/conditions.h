// The conditions of the rules of simplify.def, as code without pointers to functions: the same source serves a host and
// a device.
#pragma once

#include <cstddef>

#include "ir/numeric.h"

namespace srjit {

/// Whether the condition of rule number `rule` of allRules() holds for these constants. Thread-safe.
bool conditionHolds(std::size_t rule, double p0, double p1, Precision precision) noexcept;

}  // namespace srjit

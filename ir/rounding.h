// Division and multiples of sizes, rounded up.
#pragma once

#include <cstddef>

namespace srjit {

/// value / part, rounded up; `part` is not 0.
constexpr std::size_t ceilDivide(std::size_t value, std::size_t part) { return (value + part - 1) / part; }

/// The smallest multiple of `quantum` that is not below `value`.
constexpr std::size_t roundUp(std::size_t value, std::size_t quantum) { return ceilDivide(value, quantum) * quantum; }

}  // namespace srjit

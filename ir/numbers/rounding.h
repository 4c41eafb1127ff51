// Sizes: division and multiples, rounded up; conversion.
#pragma once

#include <cstddef>

namespace srjit {

/// value / part, rounded up; `part` is not 0.
constexpr std::size_t ceilDivide(std::size_t value, std::size_t part) { return (value + part - 1) / part; }

/// The smallest multiple of `quantum` that is not below `value`.
constexpr std::size_t roundUp(std::size_t value, std::size_t quantum) { return ceilDivide(value, quantum) * quantum; }

/// `value`, which is below 2^32, as launches of kernels take it.
constexpr unsigned toUnsigned(std::size_t value) { return static_cast<unsigned>(value); }

}  // namespace srjit

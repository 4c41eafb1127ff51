// The sort of a node: what rules ask of an operand before they look at its own operands. A constant of those that
// patterns name, another constant, another leaf, or one of the operators.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ir/op.h"

namespace srjit {

inline constexpr std::uint8_t kOtherConstantSort = 0;
// Patterns name -0 and halves from -4 to 4.
inline constexpr int kMostHalves = 8;
inline constexpr std::uint8_t kNegativeZeroSort = 2 * kMostHalves + 2;
inline constexpr std::uint8_t kLeafSort = kNegativeZeroSort + 1;
inline constexpr std::uint8_t kFirstOpSort = kLeafSort + 1;

inline std::uint8_t sortOfConstant(double value) noexcept {
  const double halves = 2 * value;
  if (!(std::fabs(halves) <= kMostHalves)) return kOtherConstantSort;
  const int whole = static_cast<int>(halves);
  if (whole != halves) return kOtherConstantSort;
  if (whole == 0 && std::signbit(value)) return kNegativeZeroSort;
  return static_cast<std::uint8_t>(1 + whole + kMostHalves);
}
inline std::uint8_t sortOfOperator(Op op) noexcept {
  return static_cast<std::uint8_t>(kFirstOpSort + static_cast<std::uint8_t>(op));
}
constexpr bool isSortOfConstant(std::uint8_t sort) noexcept { return sort < kLeafSort; }

}  // namespace srjit

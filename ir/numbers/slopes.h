// Derivatives by one variable, forward through the cells of ops.def, in any domain of ir/rows.h.
#pragma once

#include <cstddef>
#include <span>

#include "ir/rows.h"

namespace srjit {

/// A value, and its derivative by a variable.
template <class T>
struct Slope {
  T value = T(0), slope = T(0);
  bool varies = false;  ///< whether the variable is in it
};

/// Of an operator over its operands.
template <class T>
Slope<T> slopeOf(Op op, std::span<const Slope<T>> operands) {
  const T x = operands[0].value, y = operands[operands.size() > 1 ? 1 : 0].value, z = operands.back().value;
  Slope<T> result{.value = applyRow<T>(op, x, y, z)};
  for (std::size_t k = 0; k < operands.size(); ++k) {
    if (!operands[k].varies) continue;
    result.slope = result.slope + derivativeRow<T>(op, static_cast<int>(k), x, y, z, result.value) * operands[k].slope;
    result.varies = true;
  }
  return result;
}

}  // namespace srjit

#include "passes/value_of.h"

#include <algorithm>
#include <array>

#include "ir/ops.h"
#include "ir/rows.h"

namespace srjit {

double valueOf(Op op, std::span<const double> operands, Precision precision) {
  std::array<double, kMaxArity> x{};
  std::ranges::copy(operands, x.begin());
  return withZeroOf(precision, [&]<class T>(T) {
    return static_cast<double>(applyRow<T>(op, static_cast<T>(x[0]), static_cast<T>(x[1]), static_cast<T>(x[2])));
  });
}

}  // namespace srjit

#include <algorithm>
#include <array>

#include "ir/rows.h"
#include "passes/rules/fold.h"

namespace srjit {

double valueOf(Op op, std::span<const double> operands, Precision precision) {
  std::array<double, kMaxArity> x{};
  std::ranges::copy(operands, x.begin());
  return withZeroOf(precision, [&]<class T>(T) {
    return static_cast<double>(applyRow<T>(op, static_cast<T>(x[0]), static_cast<T>(x[1]), static_cast<T>(x[2])));
  });
}

double foldedValue(const Dag& dag, Op op, std::span<const NodeId> operands) {
  std::array<double, kMaxArity> values{};
  for (std::size_t i = 0; i < operands.size(); ++i) values[i] = dag.node(operands[i]).value;
  return valueOf(op, std::span(values).first(operands.size()), dag.precision());
}

}  // namespace srjit

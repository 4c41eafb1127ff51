// How a thread finishes the loss of an expression.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "compiler/interpreter/lanes/arguments.h"
#include "ir/numbers/loss_sums.h"

namespace srjit {

/// Writes loss `e`.
inline void writeLoss(const LossArguments& arguments, std::uint32_t e) {
  double loss = std::numeric_limits<double>::quiet_NaN();
  std::int64_t valid = -1;
  if (arguments.faults[e] == DeviceFault::kNone) {
    const std::uint64_t all = arguments.rows;
    const double terms = arguments.totals[e];
    double weights = arguments.all_weights;
    bool has_value = true;
    if (arguments.skips_invalid) {
      const double counted = arguments.totals[std::uint64_t{arguments.expressions} + e];
      valid = static_cast<std::int64_t>(countedRows(counted, all));
      const bool is_all = static_cast<std::uint64_t>(valid) == all;
      if (!is_all) {
        weights = arguments.is_weighted ? arguments.totals[2 * std::uint64_t{arguments.expressions} + e]
                                        : static_cast<double>(valid);
      }
      if (arguments.rejects_invalid && !is_all) loss = arguments.worst;
      has_value = arguments.rejects_invalid ? is_all : valid > 0;
    } else if (std::isfinite(terms)) {
      valid = static_cast<std::int64_t>(all);
    }
    if (has_value) {
      loss = withLossFormula(arguments.kind, arguments.target_variance,
                             [&](const auto& formula) { return double{formula(terms, terms / weights)}; });
    }
  }
  if (arguments.losses_type == Precision::kF32) {
    reinterpret_cast<float*>(arguments.losses)[e] = static_cast<float>(loss);
  } else {
    reinterpret_cast<double*>(arguments.losses)[e] = loss;
  }
  if (arguments.valid_rows != nullptr) arguments.valid_rows[e] = valid;
}

}  // namespace srjit

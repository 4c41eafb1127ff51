// From sums over rows to the value of a loss.
#pragma once

#include <cstdint>
#include <span>

#include "compiler/lowering/loss.h"
#include "runtime/engine_options.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

/// What one evaluation over the rows gives.
struct LossSums {
  double terms = 0;         ///< of the rows that count
  double weights = 0;       ///< of the rows that count
  std::uint64_t rows = 0;   ///< all
  std::uint64_t valid = 0;  ///< with a finite prediction; not used under kPropagate
};

/// What a kernel, of the host or of a device, must sum for `options`; `weighted` if the data have weights.
LossSpec lossSpec(const LossOptions& options, bool weighted);

/// The value as LossKind says; divisions follow IEEE 754, so a constant target gives an infinite or NaN kNmse.
double lossValue(const LossSums& sums, double target_variance, const LossOptions& options);

/// The same of many expressions by the sums of their terms, as many as `values`, where no row is left out: `weights` is
/// the sum over all rows.
void lossValues(std::span<const double> terms, double weights, double target_variance, LossKind kind,
                std::span<double> values);

/// Losses::valid_rows under kPropagate, of an expression whose terms over all `rows` add up to `terms`. A prediction
/// that is not finite makes its term, and so every sum with it, infinite or NaN.
std::uint64_t validRows(double terms, std::uint64_t rows) noexcept;

}  // namespace srjit

// From sums over rows to the value of a loss.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ir/numbers/loss_sums.h"
#include "runtime/engine_options.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

/// Sums over the rows of one evaluation, in scaled units.
struct LossSums {
  double terms = 0;         ///< of the rows that count
  double weights = 0;       ///< of the rows that count
  std::uint64_t rows = 0;   ///< all rows
  std::uint64_t valid = 0;  ///< rows with a finite prediction; not used under kPropagate
  // Of scaled losses, in the rows that count:
  std::array<double, kScaledTerms.size() - 1> more_terms{};  ///< of kScaledTerms behind the first
  double targets = 0, squared_targets = 0;                   ///< of z and z z (losses.def)
  bool is_constant = false;                                  ///< whether the prediction counts as constant
  double scale = 1, weight_scale = 1;                        ///< the units (LossConstants)
};

/// Whether the loss is a sum of predictions of graphs. If not, kernels of losses have its term.
bool isOfGraphs(const LossOptions& options) noexcept;

/// The sums that a kernel, of the host or of a device, must compute for `options`, which are not of graphs; `weighted`
/// if the data have weights.
LossSpec lossSpec(const LossOptions& options, bool weighted);

/// The value as LossKind defines it, in the units of the data; target_variance is in scaled units. Divisions follow
/// IEEE 754, so a constant target gives an infinite or NaN kNmse.
double lossValue(const LossSums& sums, double target_variance, const LossOptions& options);

/// The derivatives of lossValue() by the sums of its terms, where no policy gives another value; NaN where one does.
std::array<double, kScaledTerms.size()> lossSlopes(const LossSums& sums, double target_variance,
                                                   const LossOptions& options);

/// The same as lossValue() where the sum of terms of a scaled loss, but of kCorrelation, is that of the squared errors
/// with the best a and b.
double lossOfSum(const LossSums& sums, double target_variance, const LossOptions& options);

/// The same as lossValue() for values.size() expressions, from the sums of their terms, where no row is skipped,
/// for a kind that kernels have and data that need no scaled units: `weights` is the sum over all rows.
void lossValues(std::span<const double> terms, double weights, double target_variance, LossKind kind,
                std::span<double> values);

/// Losses::valid_rows under kPropagate of an expression whose terms over all `rows` have the sum `terms`. A prediction
/// that is not finite makes its term, and so every sum with it, infinite or NaN.
std::uint64_t validRows(double terms, std::uint64_t rows) noexcept;
/// Of `rows` rows, those that a kernel has counted as valid. For an expression that failed `counted` may be any number.
std::uint64_t countedRows(double counted, std::uint64_t rows) noexcept;
/// Losses::valid_rows under each policy.
std::uint64_t validRows(const LossSums& sums, NanPolicy nan) noexcept;

}  // namespace srjit

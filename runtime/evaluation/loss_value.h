// Losses: whether one has a meaning for some data, the sums over rows that it is of, their accuracy, and its value.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "ir/numbers/loss_sums.h"
#include "ir/numeric.h"
#include "passes/gradient/derivation.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/dataset_state.h"
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
  std::array<double, kMomentSums - 1> more_terms{};  ///< of the moments behind the first
  double targets = 0, squared_targets = 0;           ///< of z and z z (losses.def)
  bool is_constant = false;                          ///< whether the prediction counts as constant
  double scale = 1, weight_scale = 1;                ///< the units (LossConstants)
};

/// From the sums of one output: its first spec.sums() ones, and its last ones, those of the target and the counts
/// (LossSpec::channels()). There may be others between. Without skipped rows, the data tell the sums of the target.
LossSums readSums(std::span<const double> sums, const LossSpec& spec, const LossConstants& constants,
                  const Dataset::State& data);

/// Whether the loss is a sum of predictions of graphs. If not, kernels of losses have its term.
bool isOfGraphs(const LossOptions& options) noexcept;

/// The sums that a kernel, of the host or of a device, must compute for `options`, which are not of graphs; `weighted`
/// if the data have weights.
LossSpec lossSpec(const LossOptions& options, bool weighted);

/// The value as LossKind defines it, in the units of the data; target_variance is in scaled units. Divisions follow
/// IEEE 754, so a constant target gives an infinite or NaN kNmse.
double lossValue(const LossSums& sums, double target_variance, const LossOptions& options);

/// The derivatives of lossValue() by the sums of its terms, where no policy gives another value; NaN where one does.
std::array<double, kMomentSums> lossSlopes(const LossSums& sums, double target_variance, const LossOptions& options);

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
/// Losses::valid_rows under each policy.
std::uint64_t validRows(const LossSums& sums, NanPolicy nan) noexcept;

/// Scaled losses do not depend on the scale and the offset of a prediction f, but the rounding of their sums does. The
/// sums of fma(f, factor, offset), with a factor that is a power of two, round no more than those of a prediction with
/// a mean near 0 and squares near 1. Both are exact in the precision of the sums.
struct Conditioning {
  double factor = 1, offset = 0;

  friend bool operator==(const Conditioning&, const Conditioning&) = default;
};

/// How often the sums of an expression are computed at most: of f; in another range; about its mean; about its mean as
/// the sums about the first estimate tell it, twice.
inline constexpr int kMostConditionings = 4;

/// Of the sums of a scaled loss of fma(f, now.factor, now.offset): the conditioning with which they are to be computed
/// again; nothing if they are good enough, if no other sums would be better, or if a prediction is not finite. Sets
/// sums.is_constant where they show that f is: where its standard deviation is at most two units of the last place of
/// its mean. Accurate sums are those of a prediction whose mean's square is at most 16 times its variance. Pure: the
/// same numbers on every device.
std::optional<Conditioning> betterConditioning(LossSums& sums, const Conditioning& now, Precision precision);

/// The same, of sums that were computed again `times` times, and nothing once that is enough: after kMostConditionings
/// times, and at once for an expression without variables, which is constant wherever it has a value.
std::optional<Conditioning> nextConditioning(LossSums& sums, const Conditioning& now, int times, bool has_variables,
                                             Precision precision);

/// Errors: kInvalid for data without a target or with targets that the loss has no meaning for, or whose losses are
/// beyond the range of f64; for a constant that the loss does not have or that is out of range, and for a custom loss
/// with other variables than x0, x1 and x2, or with parameters; kLimit for one with more nodes than an expression may
/// have.
Status checkLoss(const LossOptions& options, const Dataset::State& data, const Limits& limits);

/// Whether the loss of these data is a sum of predictions of graphs: as isOfGraphs(options), or since the data need
/// scaled units.
bool isOfGraphs(const LossOptions& options, const Dataset::State& data) noexcept;

/// The terms of a loss that checkLoss() accepts. Without leastDifference().
DerivedLoss derivedLoss(const LossOptions& options, const Dataset::State& data);

/// LossConstants::target_centre of moments of these data.
double targetCentre(const Dataset::State& data);

/// LossConstants::least_difference for fits to the target, in scaled units: a small part of its standard deviation,
/// rounded to a power of two, so that samples of the same data have the same or the next one.
double leastDifference(const Dataset::State& data);

}  // namespace srjit

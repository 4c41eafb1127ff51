// The quick look at many trees: losses and short fits on rows for selection. Each frame has data of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "runtime/engine.h"
#include "tools/search/formulas/units.h"
#include "tools/search/rows.h"
#include "tools/search/trees/arrays.h"
#include "tools/search/trees/form.h"

namespace srjit::search {

/// Trees with parameters in the place of constants, and the constants to start from.
struct FitBatch {
  Trees trees;
  std::vector<double> starts;           ///< of all trees, one after another
  std::vector<ParameterBounds> bounds;  ///< of the same, if they have a form with bounds

  /// Those of a tree's constants that `exponents` chooses become parameters, within the bounds of a form.
  void add(const TreeView& tree, Exponents exponents, const Form* form = nullptr);
};

/// Datasets of an engine, one for each frame. A cheap handle to shared state; const members are thread-safe.
class Screen {
 public:
  /// `loss` is what the search minimises. One of squared errors is the normalised one against the target of the link,
  /// of a + b f with the best a and b if `is_scaled`, for which the target is standardised; others, for which there can
  /// be only the identity, are computed as they are. `rows` may go afterwards. Throws the errors of the engine, as all
  /// of these do.
  static Screen create(const Engine& engine, const RowSet& rows, std::span<const Frame> frames, const Units& units,
                       const LossOptions& loss, bool is_scaled);

  /// Losses of `trees`, which are read before this returns. Not finite: not to be used.
  Pending<Losses> submitLoss(const Trees& trees, std::size_t frame) const;
  /// Fits of at most `iterations` passes.
  Pending<Fits> submitFit(const FitBatch& batch, std::size_t frame, unsigned iterations) const;

 private:
  Screen(Engine engine, LossOptions loss) : engine_(std::move(engine)), loss_(std::move(loss)) {}

  Engine engine_;
  LossOptions loss_;
  std::vector<Dataset> data_;  ///< by frame
};

/// The engine, whose calls end with an error of kLimit when `stop` is requested.
Engine withStop(const Engine& engine, std::stop_token stop);

/// Whether `loss` is a function of the sum of squared errors, so that scaling and links make sense.
bool isOfSquares(const LossOptions& loss) noexcept;

/// Losses that stand for shares of the target's weighted variance.
using SharesAsLosses = std::array<double, 3>;

/// The losses of formulas that leave these shares of the variance. Of a loss that is no function of the squared errors,
/// what it is if each prediction is off by the root of such a variance, to the side where the loss is smaller; minus
/// infinity, which no loss is below, if the loss of exact predictions is not 0. `engine` must be of Precision::kF64.
SharesAsLosses lossesOfShares(const Engine& engine, const LossOptions& loss, const SharesAsLosses& shares,
                              const RowSet& rows);

/// The loss, one of squares, of predictions that are off by this share of each target; for other losses minus infinity.
double lossOfErrors(const LossOptions& loss, double share, const RowSet& rows);

}  // namespace srjit::search

// The terms of a loss, and their derivatives by the prediction, as nodes of an expression's graph.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "passes/dag.h"
#include "passes/gradient/derivation.h"
#include "passes/gradient/differentiate.h"
#include "passes/gradient/graph_domain.h"
#include "passes/members.h"

namespace srjit {

/// The operands of the terms: the prediction, the target, and the weight, 1 without weights. Not in scaled units.
struct LossRow {
  graph::Value f, y, w;
};

/// `value` times a power of two; without a node for 1.
graph::Value inUnits(const graph::Value& value, double scale);

/// Adds nodes as they are written: rules could make a term in which f does not occur. Borrows all. Not thread-safe.
class LossGraph {
 public:
  LossGraph(const DerivedLoss& loss, const LossRow& row, const graph::NodeMaker& maker);

  /// loss.terms() of them.
  std::span<const graph::Value> terms() const noexcept { return terms_; }
  /// The derivative of a term by the prediction in its units (predictionScale()), finite where the term is, unless it
  /// overflows. 0 if f is a constant, which may be a number that the loss has elsewhere, too: nothing that f is derived
  /// by has an effect.
  graph::Value slopeOf(const graph::Value& term, Differentiator& differentiator, RootMembers& members) const;
  /// What fits take for the second derivative of the only term by f, whose first is `slope`, in the same units: not
  /// negative. If the table of losses has none, the larger of the second derivative and |slope| / |f - y|, which is
  /// that of a parabola with its minimum at y (iteratively reweighted least squares: P. W. Holland, R. E. Welsch, Comm.
  /// Statist. A6(9), 1977), as far as these exist. Where that is 0, a step would have no bound, and a row that only has
  /// a slope would not count: there it is |slope| / |f - y|, too. Any curvature above 0 gives a direction in which the
  /// loss falls (J. Nocedal, S. J. Wright, "Numerical Optimization", 2nd ed., 2006, 3.4), and this gives a step as long
  /// as f - y.
  graph::Value curvature(const graph::Value& slope, Differentiator& differentiator, RootMembers& members) const;
  /// The target less its centre.
  graph::Value centredTarget() const { return row_.y - graph::Value(loss_.constants.target_centre); }
  /// The factor of the prediction in the terms.
  double predictionScale() const noexcept { return loss_.is_scaled ? 1 : loss_.constants.scale; }

 private:
  graph::Value customTerm() const;

  const DerivedLoss& loss_;
  LossRow row_;  ///< in scaled units, but for w
  const graph::NodeMaker& maker_;
  std::vector<graph::Value> terms_;
  std::optional<graph::Value> reweighting_;  ///< of the table
};

}  // namespace srjit

// What a loss is the sum of, and whether it has a meaning for some data.
#pragma once

#include "passes/gradient/derivation.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/dataset_state.h"

namespace srjit {

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

/// LossConstants::least_difference for fits to the target, in scaled units: a small part of its standard deviation,
/// rounded to a power of two, so that samples of the same data have the same or the next one.
double leastDifference(const Dataset::State& data);

}  // namespace srjit

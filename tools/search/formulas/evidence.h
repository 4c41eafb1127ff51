// How much of the target a formula explains for its length: a description length, from which the front's choice
// follows.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "runtime/engine.h"
#include "tools/search/formulas/front.h"

namespace srjit::search {

/// A constant of a formula.
struct WeighedConstant {
  double value = 0;
  double error = 0;       ///< standard error; not above 0 or not finite: not known
  bool is_fitted = true;  ///< whether the data decided it
};

/// What else decides the evidence of a formula.
struct EvidenceTerms {
  double rows = 0;            ///< observations: rows of a weight above 0 that the loss is over
  double floor = 0;           ///< losses up to this are rounding
  std::size_t variables = 1;  ///< that a formula may have
};

/// How the negative logarithm of the likelihood follows from a loss, in nats per row: `logs` log(loss) + `nats` loss
/// for noise whose scale is estimated from p constants less, hence + `freedom` log(n / (n - p)).
struct Likelihood {
  double logs = 0, freedom = 0, nats = 0;
};
/// Of normal noise for losses of squared errors (and Huber's), of Laplace's for absolute errors and quantiles, and of
/// the losses that are likelihoods; none for others.
std::optional<Likelihood> likelihoodOf(const LossOptions& loss) noexcept;

/// Sets `evidence` and `bic` of a formula with a loss. `constants` are all of its constants.
///
/// The evidence is the negative description length in nats, up to a number that all formulas share (D. J. Bartlett,
/// H. Desmond, P. G. Ferreira, "Exhaustive Symbolic Regression", arXiv 2211.11461):
///  - the data: the negative logarithm of the likelihood. The noise is estimated from the formula's own residuals: its
///    variance is the sum of squares by n - p. With as many constants as rows the evidence is minus infinity.
///  - each constant: log(|c| / error), the digits that the data support, but no more than the decimal digits that it
///    has, and log 2 at least.
///  - each token: 3/4 of -log(its share among the tokens of laws), chosen on real tables. Most sequences of tokens
///    are no formulas or equal to another, so a token costs less than its choice. The shares are about those of the 100
///    laws of S.-M. Udrescu and M. Tegmark (arXiv 1905.11481), in which products and columns are frequent and functions
///    rare; a sum counts as a quotient, since it is as frequent in tables of measurements.
/// A loss within `floor` counts as the floor: the shortest exact formula has the largest evidence.
///
/// The BIC is -2 log(likelihood) + p log(n), without the correction for few rows.
void weigh(Formula& formula, const Likelihood& likelihood, std::span<const WeighedConstant> constants,
           const EvidenceTerms& terms);

}  // namespace srjit::search

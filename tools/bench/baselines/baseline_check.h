// Whether a baseline computes what it should, before it is timed.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/baselines/baseline.h"

namespace srjit {

struct BaselineCheckOptions {
  std::uint64_t seed = 1;
  std::size_t expressions = 64;  ///< how many are drawn
  std::size_t rows = 32;         ///< of each, how many are compared
};

struct BaselineAgreement {
  std::size_t compared = 0;  ///< predictions
  std::size_t promised = 0;  ///< those of them for which there is a finite bound
  std::size_t sums = 0;      ///< finite sums that were compared with the predictions

  /// "checked: 1800 of 2048 predictions within their bound, 60 sums".
  std::string text() const;
};

/// How sums of squared errors agree with those of another evaluator, as compareSums() says.
struct SumAgreement {
  std::size_t compared = 0;
  std::size_t finite = 0;  ///< of the other's, those that are small enough to be compared
  std::size_t same = 0;

  /// "1995 of 2000 sums as sr-jit's, 1900 of them finite".
  std::string text() const;
};

/// Throws BenchFailure (kInvalid) if a span of a step has not the size that the prepared expressions need.
void checkStepSize(std::size_t got, std::size_t expected, const char* what);

/// Draws expressions, half of them among those that look finite, prepares the baseline with them alone, and compares:
/// predictions in random rows with the float64 reference, within its error bound for f32 `fast`; sums of squared errors
/// with those of all predictions. What has no finite bound, and sums that are not finite, are left out. `parameters`
/// are those of all expressions. At most 256 MiB of predictions. The baseline must be prepared again afterwards. Throws
/// BenchFailure for the first number that is wrong, with where it is, what it is and what it should be; if fewer than a
/// quarter of the predictions or an eighth of the sums could be compared, so that nothing was shown; and what the
/// baseline throws.
BaselineAgreement checkBaseline(Baseline& baseline, std::span<const Expression> expressions, const BaselineData& data,
                                std::span<const double> parameters, const BaselineCheckOptions& options = {});

/// Compares the sums of a whole population, whose functions may be approximated in another way. Finite sums are the
/// same if they differ by less than 1 %, or by what relative errors of 1e-4 in all predictions of this target would
/// make; others, not finite or a thousand times the target's own (those of a few rows next to a pole), if the sum is
/// not below ten times the target's. Single expressions may differ, where a rounding of one operand decides (a pole, a
/// difference of large numbers). Throws BenchFailure if more than one and 2 % of the finite ones do, or of the others,
/// with the first of them; and without any finite sum of the other's.
SumAgreement compareSums(std::span<const double> sums, std::span<const double> expected, std::span<const float> target);

}  // namespace srjit

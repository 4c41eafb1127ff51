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

/// Throws BenchFailure (kInvalid) if a span of a step has not the size that the prepared expressions need.
void checkStepSize(std::size_t got, std::size_t expected, const char* what);

/// Draws expressions, prepares the baseline with them alone, and compares: predictions in random rows with the float64
/// reference, within its error bound for f32 `fast`; sums of squared errors with those of all predictions. What has no
/// finite bound, and sums that are not finite, are left out. `parameters` are those of all expressions. At most 256 MiB
/// of predictions. The baseline must be prepared again afterwards. Throws BenchFailure for the first number that is
/// wrong, with where it is, what it is and what it should be; and what the baseline throws.
BaselineAgreement checkBaseline(Baseline& baseline, std::span<const Expression> expressions, const BaselineData& data,
                                std::span<const double> parameters, const BaselineCheckOptions& options = {});

}  // namespace srjit

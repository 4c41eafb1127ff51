// Published designs on a scenario's work: checked first, then timed.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/bench/baselines/check.h"
#include "tools/bench/gpu_context.h"
#include "tools/bench/scenarios/baseline_timer.h"

namespace srjit {

/// The work of a design. References must outlive the runs.
struct BaselineWork {
  std::string part;  ///< of the report
  std::string what;  ///< prefix of its figures' names
  const BenchData& data;
  std::span<const Expression> expressions;
  int steps = 1;                ///< evaluations, each with new parameters
  double frontend_seconds = 0;  ///< time from text to expressions, common to all designs
  /// If set, a sample is one preparation and one step for losses of expressions that it returns, new ones of the same
  /// kind and number each time; else one preparation counts, and `steps`. Designs that compile are then left out.
  std::function<std::vector<Expression>()> renewed = {};
};

/// Runs every baseline for the selected results, in about `seconds` altogether. Each is checked before it is timed
/// (checkBaseline()), and the sums of the timed run are checked again (OwnSums). An error after construction is
/// reported as a fault. A design that cannot be constructed on this machine, or has no time left, is reported as not
/// run. Throws nothing. If there is too little time for all expressions, measures two evenly spread samples of
/// different size and extrapolates linearly; omitted steps count with the median of the others. Adds figures to the
/// report and returns the measurements, one object per design and kind of result.
nlohmann::ordered_json runBaselines(const BenchContext& context, const BaselineWork& work, double seconds);

/// Reference sums of sr-jit, on the processor in `precise`: designs compute expressions as written, while rewrite rules
/// of `fast` give numbers where designs give NaN (docs/accuracy.md). Throws BenchFailure.
class OwnSums {
 public:
  /// `data` must outlive it.
  explicit OwnSums(const DataView& data);
  /// Compares the sums of the timer's last step. Precondition: it computed losses.
  SumAgreement compareWith(const BaselineTimer& timer) const;

 private:
  Engine engine_;
  Dataset data_;
};

/// `count` of the expressions, evenly spread.
std::vector<Expression> evenlySpread(std::span<const Expression> expressions, std::size_t count);

}  // namespace srjit

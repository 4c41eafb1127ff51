// Published designs on a scenario's work: checked first, then timed.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "tools/bench/baselines/baseline_check.h"
#include "tools/bench/gpu_bench.h"
#include "tools/bench/scenarios/baseline_timer.h"

namespace srjit {

/// What a design has to do. References must outlive the runs.
struct BaselineWork {
  std::string part;  ///< of the report
  std::string what;  ///< begins its figures' names
  const BenchData& data;
  std::span<const Expression> expressions;
  int steps = 1;                ///< evaluations, each with new parameters
  double frontend_seconds = 0;  ///< from text to expressions, which every design needs
};

/// Runs every baseline for the results that are asked for, in about `seconds` altogether. Each is checked before it is
/// timed (checkBaseline()), and again with the sums of what is timed (OwnSums). What goes wrong once a design is
/// made is a fault; one that cannot be made on this machine, or has no time left, is said not to have been run. Nothing
/// is thrown. Where the time does not allow for all expressions, two numbers of them are measured, evenly spread, and
/// the line through both tells what all would take; steps that are left out take the median of the others. Adds figures
/// to the report and returns what was measured, one object a design and kind of result.
nlohmann::ordered_json runBaselines(const BenchContext& context, const BaselineWork& work, double seconds);

/// sr-jit's own sums to compare with: on the processor in `precise`, since designs compute expressions as written,
/// while rules of `fast` give numbers where those give NaN (docs/accuracy.md). Throws BenchFailure.
class OwnSums {
 public:
  /// `data` must outlive it.
  explicit OwnSums(const DataView& data);
  /// Compares those of the timer's last step, which was one of losses.
  SumAgreement compareWith(const BaselineTimer& timer) const;

 private:
  Engine engine_;
  Dataset data_;
};

/// `count` of the expressions, evenly spread.
std::vector<Expression> evenlySpread(std::span<const Expression> expressions, std::size_t count);

}  // namespace srjit

// Published designs on a scenario's work: checked first, then timed.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "tools/bench/baselines/baseline.h"
#include "tools/bench/gpu_bench.h"

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

/// Runs every baseline for the results that are asked for, in about `seconds` altogether, each checked before it is
/// timed (baseline_check.h): one that is wrong is a fault, and one that this machine cannot run is only said to be so.
/// Where the time does not allow for all expressions or steps, fewer are measured, evenly spread, and scaled. Adds
/// figures to the report and returns what was measured, one object a design and kind of result.
nlohmann::ordered_json runBaselines(const BenchContext& context, const BaselineWork& work, double seconds);

/// `count` of the expressions, evenly spread.
std::vector<Expression> evenlySpread(std::span<const Expression> expressions, std::size_t count);
std::size_t parametersOf(std::span<const Expression> expressions);

}  // namespace srjit

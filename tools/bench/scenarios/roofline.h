// What a GPU could reach at most on a population: its limits, and what one row of the population costs.
#pragma once

#include <optional>
#include <span>

#include <nlohmann/json.hpp>

#include "tools/bench/gpu_bench.h"

namespace srjit {

/// Of one row of a population, f32 fast, each expression by itself after the passes.
struct RowCost {
  double tokens = 0;        ///< as they were given
  double instructions = 0;  ///< of operators alone (codeWeight())
  double special = 0;       ///< approximations of the special-function unit
};
RowCost rowCost(std::span<const Expression> expressions);

/// JSON of a GPU's limits: multiprocessors, clock_hz, bytes_per_second, and the lanes a cycle and multiprocessor of
/// instruction issue and of the special-function unit (CUDA C++ programming guide 13.0, arithmetic instructions; sm_75
/// to sm_90). Null for a processor. Throws BenchFailure.
nlohmann::ordered_json deviceLimits(const BenchContext& context);

/// JSON of the least seconds of one pass that each limit allows; null for a processor. `bytes` are those that have to
/// be moved.
nlohmann::ordered_json leastSeconds(const nlohmann::ordered_json& limits, const RowCost& cost, double rows,
                                    double bytes);

}  // namespace srjit

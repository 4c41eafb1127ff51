// Roofline of a GPU on a population: the limits of the device, and the operations per row of the population.
#pragma once

#include <optional>
#include <span>

#include <nlohmann/json.hpp>

#include "tools/bench/gpu_context.h"

namespace srjit {

/// Operations per row of a population, f32 fast, each expression in a graph of its own after the passes.
struct RowCost {
  double tokens = 0;        ///< before the passes
  double instructions = 0;  ///< of operators alone (codeWeight())
  double special = 0;       ///< approximations of the special-function unit
};
RowCost rowCost(std::span<const Expression> expressions);

/// JSON of a GPU's limits: multiprocessors, clock_hz, bytes_per_second, and the lanes per cycle and multiprocessor of
/// instruction issue and of the special-function unit (CUDA C++ programming guide 13.0, arithmetic instructions; sm_75
/// to sm_90). Null for a processor. Throws BenchFailure.
nlohmann::ordered_json deviceLimits(const BenchContext& context);

/// JSON of the minimum seconds of one evaluation under each limit; null for a processor. `bytes` is the memory traffic.
nlohmann::ordered_json leastSeconds(const nlohmann::ordered_json& limits, const RowCost& cost, double rows,
                                    double bytes);

}  // namespace srjit

// The textbook loop on a processor: one row at a time, one switch per token, all cores. Libm's functions; any operator.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tools/bench/baselines/design.h"

namespace srjit {

/// The values of an expression in rows `first` to first + out.size() - 1. Thread-safe.
void runSwitch(const Expression& expression, std::span<const std::vector<float>> columns,
               std::span<const float> parameters, std::size_t first, std::span<float> out);

/// kernelSeconds() is the time that the loops took.
std::unique_ptr<Baseline> makeCpuSwitch(const BaselineData& data);

}  // namespace srjit

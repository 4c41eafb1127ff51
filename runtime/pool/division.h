// How expressions are divided among devices: a pure function.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/evaluation/program_source.h"

namespace srjit {

/// Divides the expressions into adjacent ones for devices that take so many seconds per token, all above 0: device i
/// gets those from the i-th number to the next, so that all devices take about as long. Code of outputs counts as
/// ProgramSource::lengthFactor() has it. One number more than there are devices, ascending.
std::vector<std::size_t> divideExpressions(const ProgramSource& source, std::span<const double> seconds_per_token);

}  // namespace srjit

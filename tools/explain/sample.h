// Numbers about expressions on rows of data: error bounds and times.
#pragma once

#include "runtime/engine.h"
#include "tools/explain/graphs.h"
#include "tools/explain/request.h"

namespace srjit::explain {

/// Rows of which error bounds are taken.
inline constexpr std::size_t kBoundRows = 256;
/// Rows of which times are taken, if no data are given.
inline constexpr std::size_t kTimedRows = 65'536;

/// Columns of the request's data, or drawn ones: uniform on [0.5, 2), the same in every run.
struct Sample {
  std::vector<std::vector<double>> columns;
  std::size_t rows;
  std::string description;
};
Sample sampleFor(const Request& request);

/// Sets the error bounds of the nodes of the last graph, in the first kBoundRows rows.
void addErrorBounds(const Request& request, const FinalGraph& graph, const Sample& sample, Explanation& to);

/// Measures the tiers of an engine of this device, which has the precision and math mode of the request. A tier that
/// does not work is a notice. Errors: those of Engine::upload().
Status addTimesOf(const Engine& engine, const std::string& device, const Request& request, const Sample& sample,
                  Explanation& to);

/// Measures the tiers of the processor, and those of the first GPU if there is one that can be used.
Status addTimes(const Request& request, const Sample& sample, Explanation& to);

}  // namespace srjit::explain

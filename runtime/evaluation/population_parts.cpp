#include "runtime/evaluation/population_parts.h"

#include <algorithm>

namespace srjit {

std::vector<PopulationView> divide(const PopulationView& population, std::size_t count) {
  std::vector<PopulationView> parts;
  const std::span<const std::int64_t> offsets = population.offsets;
  std::size_t first = 0;
  for (std::size_t p = 1; p < count && population.size() > 0; ++p) {
    const auto end = static_cast<std::int64_t>(population.codes.size() * p / count);
    const auto last = static_cast<std::size_t>(std::ranges::lower_bound(offsets, end) - offsets.begin());
    if (last <= first || last >= population.size()) continue;
    parts.push_back(population);
    parts.back().offsets = offsets.subspan(first, last - first + 1);
    first = last;
  }
  parts.push_back(population);
  if (first > 0) parts.back().offsets = offsets.subspan(first);
  return parts;
}

}  // namespace srjit

#include "runtime/pool/division.h"

#include <numeric>

namespace srjit {

// An expression goes where the middle of its cost is.
std::vector<std::size_t> divideExpressions(const ProgramSource& source, std::span<const double> seconds_per_token) {
  const std::size_t count = source.expressions.size();
  const auto cost = [&](std::size_t e) {
    return static_cast<double>(source.expressions[e].size() * source.lengthFactor(e));
  };
  double all_cost = 0, all_speed = 0;
  for (std::size_t e = 0; e < count; ++e) all_cost += cost(e);
  for (const double seconds : seconds_per_token) all_speed += 1 / seconds;
  std::vector<std::size_t> ends = {0};
  double before = 0, speed = 0;
  std::size_t next = 0;
  for (const double seconds : seconds_per_token.first(seconds_per_token.size() - 1)) {
    speed += 1 / seconds;
    const double end = all_cost * (speed / all_speed);
    while (next < count && before + cost(next) / 2 < end) before += cost(next++);
    ends.push_back(next);
  }
  ends.push_back(count);
  return ends;
}

}  // namespace srjit

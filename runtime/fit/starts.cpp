#include "runtime/fit/starts.h"

#include <cmath>
#include <new>

#include "ir/numbers/random.h"

namespace srjit::fit {
namespace {

void drawStart(std::span<const double> given, std::uint64_t seed, std::uint64_t expression, std::uint64_t start,
               std::span<double> out) noexcept {
  Random random(seed);
  random = Random(random.next() + expression);
  random = Random(random.next() + start);
  for (std::size_t p = 0; p < given.size(); ++p) {
    out[p] = random.magnitude(-4, 3) * (given[p] == 0 ? 1 : std::fabs(given[p]));
  }
}

}  // namespace

std::vector<double> drawStarts(std::span<const double> given, std::span<const std::int64_t> offsets, std::size_t count,
                               std::uint64_t seed, std::span<const std::size_t> numbers) {
  if (given.empty()) return {};
  std::vector<double> starts(given.begin(), given.end());
  if (count > starts.max_size() / given.size()) throw std::bad_alloc();
  starts.resize(count * given.size());
  for (std::size_t s = 1; s < count; ++s) {
    const std::span<double> vector = std::span(starts).subspan(s * given.size(), given.size());
    for (std::size_t e = 0; e + 1 < offsets.size(); ++e) {
      const auto first = static_cast<std::size_t>(offsets[e]), own = static_cast<std::size_t>(offsets[e + 1]) - first;
      drawStart(given.subspan(first, own), seed, numbers.empty() ? e : numbers[e], s, vector.subspan(first, own));
    }
  }
  return starts;
}

}  // namespace srjit::fit

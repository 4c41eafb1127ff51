#include "runtime/fit/progress.h"

#include <algorithm>
#include <limits>

namespace srjit::fit {
namespace {

/// Nielsen's tau. The scaled columns have length 1.
constexpr double kFirstDamping = 1e-3;

}  // namespace

ParameterFit::ParameterFit(std::span<const double> start, std::span<const std::uint32_t> linear, Scale scale,
                           std::pmr::memory_resource* memory)
    : numbers_(kPerParameter * start.size() + 2 * triangleSize(start.size()), memory),
      columns_(memory),
      linear_(linear.size()),
      start_loss_(std::numeric_limits<double>::infinity()),
      best_loss_(std::numeric_limits<double>::infinity()),
      damping_(kFirstDamping),
      has_scale_(scale == Scale::kLastTwo) {
  columns_.reserve(start.size());
  for (const std::uint32_t parameter : linear) columns_.push_back({parameter});
  for (std::uint32_t i = 0; i < start.size(); ++i) {
    if (std::ranges::find(linear, i) == linear.end()) columns_.push_back({i});
  }
  std::ranges::copy(start, nextTrial().begin());
  std::ranges::copy(start, best().begin());
}

}  // namespace srjit::fit

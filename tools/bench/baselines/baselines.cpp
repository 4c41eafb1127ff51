#include "tools/bench/baselines/baseline.h"

namespace srjit {

std::span<const BaselineInfo> allBaselines() { return {}; }

}  // namespace srjit

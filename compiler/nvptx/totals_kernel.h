// The kernel that adds the sums of a loss' row groups. Thread-safe and parallel.
//
// Kernel `srjit_totals`: u64 sums, u64 channel_stride, u64 row_groups, u32 outputs, u32 lanes, u64 chains, u64 totals,
// u32 first, u32 last. Chain c of an output adds the row groups c, c + kSumChains, ... in double, in order; the chains
// are added pairwise (ir/numbers/loss_sums.h). `lanes` threads share an output: kSumChains, or any power of two that is
// not below `row_groups` if first and last are set. totals[channel * outputs + o] gets the total if `last`; otherwise
// chains[(channel * outputs + o) * kSumChains + c] the chains, which the next call, with `first` unset, goes on from:
// so rows may come in chunks of multiples of kSumChains * kGroupRows. Grid: x = ceil(outputs * lanes / kBlockThreads),
// y = channels.
#pragma once

#include <string>

#include "compiler/nvptx/options.h"
#include "ir/error.h"

namespace srjit {

inline constexpr const char* kTotalsKernel = "srjit_totals";

/// The kernel that adds sums of options.precision; only precision and arch count. Errors: as rowsPtx().
Result<std::string> totalsPtx(const DeviceOptions& options);

}  // namespace srjit

// Which expressions should stand in the same kernel, so that it computes their common subexpressions once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/numeric.h"
#include "ir/population.h"

namespace srjit {

/// The `chosen` expressions in another order: those that have costly subtrees in common stand side by side. They are
/// sorted by the hashes of their most costly subtrees (codeWeight()) that occur in another expression, too, and where
/// those are equal as `chosen` has them. Subtrees with parameters are never common. The same for the same expressions,
/// on every machine and number of threads; in parallel on the calling thread's arena, linear in the tokens but for the
/// sorting.
std::vector<std::uint32_t> orderedBySharing(const Population& expressions, std::span<const std::uint32_t> chosen,
                                            Precision precision, Math math);

}  // namespace srjit

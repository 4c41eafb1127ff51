// Bounds of what one call may take, for input from elsewhere: each is 0, no bound, unless it is set. Who checks which
// is in docs/architecture.md ("Limits"); what happens then in docs/reliability.md ("Limits").
#pragma once

#include <cstddef>

#include "ir/error.h"

namespace srjit {

/// The names are those of the options of the bindings; the command has --max-nodes and so on.
struct Limits {
  std::size_t max_nodes = 0;       ///< tokens of one expression
  std::size_t max_call_nodes = 0;  ///< tokens of all expressions of one call, with one for each output that is derived
  double max_seconds = 0;          ///< wall time of one call, from its begin until its result is there
};

/// Whether `found` is more than a limit, which may be 0.
constexpr bool exceeds(std::size_t found, std::size_t limit) noexcept { return limit != 0 && found > limit; }

// The errors of exceeded limits (kLimit): each names the limit, what was found, and how more is allowed.

Error tooManyNodes(std::size_t found, std::size_t max_nodes);
/// Of a text that is not read any further than the first node that is too many.
Error nodesBeyond(std::size_t max_nodes, const Span& where);
Error tooManyCallNodes(std::size_t found, std::size_t max_call_nodes);
Error tooManySeconds(double max_seconds);

/// kInvalid for a time that is negative or no number.
Status checkLimits(const Limits& limits);

}  // namespace srjit

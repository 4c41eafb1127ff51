#include "ir/limits.h"

#include <fmt/format.h>

namespace srjit {

Error tooManyNodes(std::size_t found, std::size_t max_nodes) {
  return {Errc::kLimit,
          fmt::format("{} nodes, but an expression may have at most {}; a larger max_nodes (--max-nodes) allows it",
                      found, max_nodes),
          {}};
}

Error nodesBeyond(std::size_t max_nodes, const Span& where) {
  Error error = tooManyNodes(max_nodes + 1, max_nodes);
  error.message = "at least " + error.message;
  error.where = where;
  return error;
}

Error tooManyCallNodes(std::size_t found, std::size_t max_call_nodes) {
  return {Errc::kLimit,
          fmt::format("{} nodes in all expressions, but a call may have at most {}; fewer expressions per call, or a "
                      "larger max_call_nodes (--max-call-nodes) avoid this",
                      found, max_call_nodes),
          {}};
}

Error tooManySeconds(double max_seconds) {
  return {Errc::kLimit,
          fmt::format("stopped after {} s, the longest that a call may take; a larger max_seconds (--max-seconds) "
                      "allows more",
                      max_seconds),
          {}};
}

Status checkLimits(const Limits& limits) {
  if (limits.max_seconds >= 0) return okStatus();
  return Error{Errc::kInvalid, fmt::format("max_seconds is {}, expected 0 or more", limits.max_seconds), {}};
}

}  // namespace srjit

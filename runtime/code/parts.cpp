#include "runtime/code/parts.h"

#include <algorithm>

namespace srjit {

std::size_t InterpreterCode::mostTokens(const InterpreterSection& section, std::size_t count) const {
  std::uint32_t most = 0;
  const std::size_t end = section.first_program + section.programs;
  for (std::size_t first = section.first_program; first < end; first += count) {
    most = std::max(most, offsets[std::min(first + count, end)] - offsets[first]);
  }
  return most;
}

}  // namespace srjit

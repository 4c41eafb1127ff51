// Numbers of operators that stay the same from one graph to the next, for the names of printDag().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "passes/dag.h"

namespace srjit {

/// Gives every operator of the graphs passed to it a number, from 0 in the order in which they are seen. An
/// operator over the same operands has the same number in all graphs; a literal counts as the same before and after it
/// was hoisted. So an operator whose whole subtree a pass leaves unchanged keeps its number, and what a pass makes has
/// one that no other had. Not thread-safe.
class NodeNumbers {
 public:
  /// The numbers of the nodes of `dag`, by id; those of leaves are 0 and mean nothing.
  std::vector<std::size_t> of(const Dag& dag);

 private:
  /// An operator, and for each operand what kind it is of and which.
  using Identity = std::array<std::uint64_t, 1 + 2 * kMaxArity>;

  std::map<Identity, std::size_t> numbers_;
  std::size_t next_ = 0;
};

}  // namespace srjit

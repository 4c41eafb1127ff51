// The interface through which a program's graphs read kept values of subtrees, which are columns of a data set.
#pragma once

#include <cstddef>

#include "passes/dag.h"
#include "runtime/engine_options.h"

namespace srjit {

/// Maximum number of columns per data set that hold values of subtrees. The interpreter stages all columns of a strip
/// in shared memory, so more columns would reduce its occupancy.
inline constexpr std::size_t kMaxKeptSubtrees = 32;

/// The kept subtrees that one program may read. read() is thread-safe; close() is called once, after the first graphs
/// and before the program is used.
class SubtreeReader {
 public:
  virtual ~SubtreeReader() = default;

  /// Replaces subtrees of `dag` by variables, which are columns of the program's data, where in code for `tier` reading
  /// takes less time than computing. `tokens` is the number of tokens of its expressions as given.
  virtual Dag read(Dag dag, Tier tier, std::size_t tokens) = 0;
  /// Ends the reading: columns that no graph has read may now be overwritten.
  virtual void close() = 0;

  /// Number of columns read, and of graph nodes not computed because of them. Call after close().
  virtual std::size_t columns() const noexcept = 0;
  virtual std::size_t sparedNodes() const noexcept = 0;
};

}  // namespace srjit

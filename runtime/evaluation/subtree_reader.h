// Columns of a data set that have the values of subtrees, as far as whoever makes a program's graphs needs to know.
#pragma once

#include <cstddef>

#include "passes/dag.h"
#include "runtime/engine_options.h"

namespace srjit {

/// Columns of a data set that hold values of subtrees, at most. More would not leave a block of the interpreter, which
/// stages all columns of a strip, its share of a multiprocessor's shared memory.
inline constexpr std::size_t kMaxKeptSubtrees = 32;

/// What one program may read instead of computing it. read() is thread-safe; close() is called once, after the first
/// graphs and before the program is used.
class SubtreeReader {
 public:
  virtual ~SubtreeReader() = default;

  /// `dag` with variables, which are columns of the program's data, in place of those subtrees whose reading costs less
  /// than computing them in code for `tier`. `tokens` are those of its expressions as given.
  virtual Dag read(Dag dag, Tier tier, std::size_t tokens) = 0;
  /// From now on columns that no graph has read may get other values.
  virtual void close() = 0;

  /// Columns that are read, and nodes of graphs that are not computed for that reason; after close().
  virtual std::size_t columns() const noexcept = 0;
  virtual std::size_t sparedNodes() const noexcept = 0;
};

}  // namespace srjit

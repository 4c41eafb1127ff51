// Rewrites the graphs of a program before code is made of them: to read values that are kept with its data
// (runtime/subtrees).
#pragma once

#include <cstddef>

#include "passes/dag.h"
#include "runtime/program.h"

namespace srjit {

/// Belongs to one program. pass() is thread-safe; close() is called once, after the first graphs and before the program
/// is used.
class GraphFilter {
 public:
  virtual ~GraphFilter() = default;

  /// The graph to make code for `tier` of, instead of `dag`: with the same roots, and variables that are columns of the
  /// program's data. `tokens` is the number of tokens of its expressions as given.
  virtual Dag pass(Dag dag, Tier tier, std::size_t tokens) = 0;
  /// Ends the choice of columns that graphs read, and adds it to the facts of the program. Later graphs read no others.
  virtual void close(ProgramInfo& info) = 0;
};

}  // namespace srjit

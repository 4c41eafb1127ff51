// Where the nodes of a graph stand in a source text, for code that names its source.
#pragma once

#include <string>
#include <vector>

namespace srjit {

/// A place in a text, from 1; line 0: none.
struct SourcePlace {
  unsigned line = 0, column = 0;

  friend bool operator==(const SourcePlace&, const SourcePlace&) = default;
};

/// The source of one graph. Code that is made with it has the same instructions as without, and says where each comes
/// from: assembly and PTX by lines `.loc FILE LINE COLUMN` above instructions, LLVM IR by a comment `; at LINE:COLUMN`
/// behind them. An instruction that serves several nodes has no place.
struct SourceMap {
  std::string file, directory;      ///< as in the `.file` line
  std::vector<SourcePlace> places;  ///< by NodeId; those of further nodes are none
};

}  // namespace srjit

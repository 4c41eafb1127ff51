// Names of straight-line kernels, and where the nodes of their graphs stand in a source text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace srjit {

/// The name of the kernel of graph `index` of a module, on GPUs and on the host.
inline std::string rowsKernelName(std::size_t index) { return "srjit_rows_" + std::to_string(index); }

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

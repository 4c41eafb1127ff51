// The graphs of kernels, as a text that profilers and debuggers show beside machine code.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/lowering/source_map.h"
#include "ir/error.h"
#include "passes/dag.h"

namespace srjit {

struct GraphListing {
  /// printDag() of each graph, below a line with the name of its kernel. Literals that are hoisted and parameters are
  /// those of these graphs: graphs that differ only in them may have the same code.
  std::string text;
  /// By graph: the lines of its operators.
  std::vector<SourceMap> sources;
};

/// Of graphs that become the kernels of one module. `file` is how code names the text: for profilers an absolute path.
GraphListing listGraphs(std::span<const Dag> dags, std::string_view file);

/// Writes the text to a file of `directory`, which is made if it is missing. Its name is a digest of the text. An
/// existing file is complete, and stays. Thread-safe; several processes, also of several hosts, may use one directory.
/// Errors: kIo.
Result<GraphListing> writeGraphListing(std::span<const Dag> dags, const std::filesystem::path& directory);

}  // namespace srjit

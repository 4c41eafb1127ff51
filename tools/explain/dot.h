// Graphs as Graphviz's dot reads them.
#pragma once

#include <string>
#include <vector>

#include "passes/dag.h"

namespace srjit::explain {

struct NamedGraph {
  std::string name;
  Dag dag;
};

/// One digraph; of several graphs, each is a cluster. Operators have the numbers of printDag(), which are the same in
/// all of them; operands are numbered from 0 where their order matters.
std::string dotOf(const std::vector<NamedGraph>& graphs);

}  // namespace srjit::explain

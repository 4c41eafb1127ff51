#include "tools/explain/dot.h"

#include <fmt/format.h>

#include "ir/ops.h"
#include "tools/explain/names.h"

namespace srjit::explain {
namespace {

/// The statements of one graph, whose nodes begin with `prefix`.
std::string statementsOf(const Dag& dag, const std::string& prefix, NodeNames& names) {
  const std::vector<NodeFacts> facts = names.factsOf(dag);
  std::string text;
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    const std::string label =
        node.isOperator() ? fmt::format("{} {}", facts[id].id, infoOf(node.op).name) : facts[id].text;
    text += fmt::format("    {}{} [label=\"{}\"{}];\n", prefix, id, label, node.isOperator() ? "" : ", shape=ellipse");
    const bool exchangeable = node.isOperator() && node.arity() == 2 && infoOf(node.op).has(OpProps::kCommutative);
    const bool ordered = node.arity() > 1 && !exchangeable;
    for (std::size_t k = 0; k < node.inputs().size(); ++k) {
      text += fmt::format("    {0}{1} -> {0}{2}{3};\n", prefix, id, node.operands[k],
                          ordered ? fmt::format(" [label=\"{}\"]", k) : "");
    }
  }
  for (std::size_t root = 0; root < dag.roots().size(); ++root) {
    text += fmt::format("    {0}root{1} [label=\"root {1}\", shape=plaintext];\n    {0}root{1} -> {0}{2};\n", prefix,
                        root, dag.roots()[root]);
  }
  return text;
}

}  // namespace

std::string dotOf(const std::vector<NamedGraph>& graphs) {
  NodeNames names;
  std::string text = "digraph srjit {\n  node [shape=box, fontname=\"monospace\"];\n";
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    const std::string statements = statementsOf(graphs[g].dag, fmt::format("g{}n", g), names);
    text += graphs.size() == 1
                ? statements
                : fmt::format("  subgraph cluster{} {{\n    label=\"{}\";\n{}  }}\n", g, graphs[g].name, statements);
  }
  return text + "}\n";
}

}  // namespace srjit::explain

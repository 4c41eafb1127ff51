#include <fmt/format.h>

#include "ir/ops.h"
#include "ir/text/words.h"
#include "tools/explain/graphs.h"
#include "tools/line_diff.h"

namespace srjit::explain {
namespace {

Id leafId(const Dag& dag, const Node& node) {
  if (node.kind == Token::Kind::kVariable) return fmt::format("x{}", node.index);
  if (node.kind == Token::Kind::kConstant) return text::numberText(node.value, dag.precision());
  const ParameterSource& source = dag.parameters()[node.index];
  if (source.isLiteral()) return text::numberText(source.literal, dag.precision());
  return fmt::format("p{}@{}", source.index, source.expression);
}

/// The statements of one graph, whose nodes begin with `prefix`.
std::string statementsOf(const Dag& dag, const std::string& prefix, NodeNames& names) {
  const Ids ids = names.of(dag);
  std::string text;
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    text += node.isOperator() ? fmt::format("    {}{} [label=\"{} {}\"];\n", prefix, id, ids[id], infoOf(node.op).name)
                              : fmt::format("    {}{} [label=\"{}\", shape=ellipse];\n", prefix, id, ids[id]);
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

Ids NodeNames::of(const Dag& dag) {
  const std::vector<std::size_t> numbers = numbers_.of(dag);
  Ids ids;
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    ids.push_back(node.isOperator() ? fmt::format("%{}", numbers[id]) : leafId(dag, node));
  }
  return ids;
}

std::vector<std::pair<Id, std::string>> NodeNames::linesOf(const Dag& dag) {
  std::vector<std::pair<Id, std::string>> lines;
  for (const std::string& line : splitLines(printDag(dag, numbers_))) {
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('%')) lines.emplace_back(line.substr(0, equals), line.substr(equals + 3));
  }
  return lines;
}

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

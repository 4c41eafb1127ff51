#include "tools/explain/names.h"

#include <fmt/format.h>

#include "ir/text.h"
#include "ir/text/words.h"
#include "passes/pass.h"

namespace srjit::explain {
namespace {

constexpr std::size_t kLongestInfix = 60;  // tokens

Id leafId(const Dag& dag, const Node& node) {
  if (node.kind == Token::Kind::kVariable) return fmt::format("x{}", node.index);
  if (node.kind == Token::Kind::kConstant) return text::numberText(node.value, dag.precision());
  const ParameterSource& source = dag.parameters()[node.index];
  if (source.isLiteral()) return text::numberText(source.literal, dag.precision());
  return fmt::format("p{}@{}", source.index, source.expression);
}

std::string kindOf(const Dag& dag, const Node& node) {
  switch (node.kind) {
    case Token::Kind::kOp:
      return "operator";
    case Token::Kind::kVariable:
      return "variable";
    case Token::Kind::kConstant:
      return "literal";
    case Token::Kind::kParameter:
      break;
  }
  return dag.parameters()[node.index].isLiteral() ? "literal" : "parameter";
}

/// Calls `take` with the parts of each line `FIRST = SECOND` of a printed graph.
template <class Take>
void forLines(const std::string& text, const Take& take) {
  constexpr std::string_view kEquals = " = ";
  for (std::size_t first = 0; first < text.size();) {
    const std::size_t end = text.find('\n', first);
    const std::size_t equals = text.find(kEquals, first);
    take(text.substr(first, equals - first), text.substr(equals + kEquals.size(), end - equals - kEquals.size()));
    first = end + 1;
  }
}

}  // namespace

std::vector<Id> NodeNames::of(const Dag& dag) {
  const std::vector<std::size_t> numbers = numbers_.of(dag);
  std::vector<Id> ids(dag.size());
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    ids[id] = node.isOperator() ? fmt::format("%{}", numbers[id]) : leafId(dag, node);
  }
  return ids;
}

Graph NodeNames::print(const Dag& dag) {
  Graph graph;
  const std::vector<Id> ids = of(dag);
  forLines(printDag(dag, numbers_), [&](std::string left, std::string right) {
    if (left.starts_with('%')) graph.lines.push_back({std::move(left), std::move(right)});
  });
  for (std::size_t root = 0; root < dag.roots().size(); ++root) {
    graph.roots.emplace_back(fmt::format("root {}", root), ids[dag.roots()[root]]);
  }
  return graph;
}

std::vector<NodeFacts> NodeNames::factsOf(const Dag& dag) {
  const std::vector<Id> ids = of(dag);
  const Graph printed = print(dag);
  std::vector<NodeFacts> facts(dag.size());
  std::size_t next = 0;  // of the printed lines
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    NodeFacts& fact = facts[id];
    fact.id = ids[id];
    fact.text = node.isOperator() ? printed.lines[next++].text : ids[id];
    fact.kind = kindOf(dag, node);
    for (const NodeId operand : node.inputs()) fact.operands.push_back(ids[operand]);
    const Result<Expression> subtree = dag.subtree(id, kLongestInfix);
    if (subtree) fact.infix = srjit::print(*subtree, Language::kInfix, columns_);
  }
  return facts;
}

}  // namespace srjit::explain

#include "passes/node_numbers.h"

#include <bit>
#include <set>

namespace srjit {
namespace {

enum Operand : std::uint64_t { kNone, kLiteral, kVariable, kParameter, kOperator };

struct OperandIdentity {
  Operand kind;
  std::uint64_t which;
};

OperandIdentity identityOf(const Dag& dag, NodeId id, const std::vector<std::size_t>& numbers) {
  const Node& node = dag.node(id);
  switch (node.kind) {
    case Token::Kind::kConstant:
      return {kLiteral, std::bit_cast<std::uint64_t>(node.value)};
    case Token::Kind::kVariable:
      return {kVariable, node.index};
    case Token::Kind::kParameter: {
      const ParameterSource& source = dag.parameters()[node.index];
      if (source.isLiteral()) return {kLiteral, std::bit_cast<std::uint64_t>(source.literal)};
      return {kParameter, std::uint64_t{source.expression} << 32 | source.index};
    }
    case Token::Kind::kOp:
      break;
  }
  return {kOperator, numbers[id]};
}

}  // namespace

std::vector<std::size_t> NodeNumbers::of(const Dag& dag) {
  std::vector<std::size_t> numbers(dag.size());
  std::set<std::size_t> taken;  // a graph may have a literal both hoisted and not
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    if (node.kind != Token::Kind::kOp) continue;
    Identity identity{static_cast<std::uint64_t>(node.op)};
    std::size_t next = 1;
    for (const NodeId operand : node.inputs()) {
      const OperandIdentity is = identityOf(dag, operand, numbers);
      identity[next++] = is.kind;
      identity[next++] = is.which;
    }
    std::size_t& number = numbers[id];
    number = numbers_.try_emplace(identity, next_).first->second;
    if (!taken.insert(number).second) {
      number = next_;
      taken.insert(number);
    }
    if (number == next_) ++next_;
  }
  return numbers;
}

}  // namespace srjit

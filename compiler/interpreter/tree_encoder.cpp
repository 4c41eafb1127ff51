#include "compiler/interpreter/tree_encoder.h"

#include <algorithm>

#include "compiler/interpreter/tree_writing.h"

namespace srjit {
namespace {

static_assert(TreeNode::kInColumn == kInColumn && TreeNode::kInNumber == kInParameter && onStack(1) == 2);

/// Most tokens of a node: the body of a long operator, its result, and an argument for each operand.
constexpr std::size_t kMostTokens = 2 + kMaxArity;

}  // namespace

/// In local memory: a compiler keeps in registers what no store can change.
struct TreeEncoder::Nodes {
  const TreeNode* nodes;
  const std::uint32_t* columns;  ///< by variable; null: the identity
  std::uint8_t *used_operators, *used_columns;
  std::uint32_t first_parameter;
  PendingValue* waiting;
  NodeId* parameters;  ///< those so far, and
  std::uint32_t parameter_count = 0;

  bool isOperator(std::uint32_t i) const { return nodes[i].isOperator(); }
  OperandPlace place(std::uint32_t i) const { return nodes[i].place; }
  Op op(std::uint32_t i) const { return nodes[i].op; }
  Operands operands(std::uint32_t i) const { return nodes[i].operands; }
  PendingValue& pending(std::uint32_t k) { return waiting[k]; }
  void noteOperator(Op op) { used_operators[static_cast<std::size_t>(op)] = 1; }
  std::uint32_t columnOf(std::uint32_t i) {
    const std::uint32_t number = columns == nullptr ? nodes[i].index() : columns[nodes[i].index()];
    used_columns[number] = 1;
    return number;
  }
  std::uint32_t parameterOf(std::uint32_t i) {
    parameters[parameter_count] = i;
    return first_parameter + parameter_count++;
  }
};

bool TreeEncoder::encode(const Tree& tree, std::uint32_t output, const EncodeOptions& options,
                         const UsedByPrograms& used, Bytecode& code) {
  if (table_.handlers > DeviceToken::kHandlerMask + std::size_t{1}) return false;
  tokens_.resize(std::max(tokens_.size(), kMostTokens * tree.nodes.size() + 1));
  parameters_.resize(std::max(parameters_.size(), tree.nodes.size()));
  Nodes nodes{.nodes = tree.nodes.data(),
              .columns = options.columns.empty() ? nullptr : options.columns.data(),
              .used_operators = used.operators.data(),
              .used_columns = used.columns.data(),
              .first_parameter = options.first_parameter,
              .waiting = pending_.data(),
              .parameters = parameters_.data()};
  DeviceToken* const end = tokens_.data() + tokens_.size();
  TreeWriting<Nodes> writing(table_, nodes, end);
  writing.put(DeviceToken::of(table_.find(Handler::Kind::kEnd, 1), 0, output));
  if (!writing.write(tree.root())) return false;
  code.tokens.insert(code.tokens.end(), writing.first(), end);
  code.parameters.assign(parameters_.begin(), parameters_.begin() + nodes.parameter_count);
  return true;
}

}  // namespace srjit

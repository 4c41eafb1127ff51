#include "compiler/interpreter/tree_encoder.h"

#include <algorithm>
#include <array>

namespace srjit {
namespace {

using Kind = Handler::Kind;

static_assert(TreeNode::kInColumn == kInColumn && TreeNode::kInNumber == kInParameter && onStack(1) == 2);

/// Most tokens of a node: the body of a long operator, its result, and an argument for each operand.
constexpr std::size_t kMostTokens = 2 + kMaxArity;

}  // namespace

/// The writing of one program, in local memory: a compiler keeps in registers what no store can change.
struct TreeEncoder::Call {
  const HandlerNumbers& table;
  const TreeNode* nodes;
  const std::uint32_t* columns;  ///< by variable; null: the identity
  std::uint8_t* used_columns;
  std::uint32_t first_parameter;
  DeviceToken* next;   ///< before it is the place of the next token
  NodeId* parameters;  ///< those so far, and
  std::uint32_t parameter_count = 0;

  std::uint32_t columnOf(const TreeNode& node) const {
    const std::uint32_t number = columns == nullptr ? node.index() : columns[node.index()];
    used_columns[number] = 1;
    return number;
  }
  std::uint32_t parameterOf(std::uint32_t node) {
    parameters[parameter_count] = node;
    return first_parameter + parameter_count++;
  }

  void pushLeaf(std::uint32_t number, std::uint32_t height) {
    const TreeNode& node = nodes[number];
    *--next = node.place == kInColumn ? DeviceToken::of(table.find(Kind::kPushColumn, height), columnOf(node))
                                      : DeviceToken::of(table.find(Kind::kPushParameter, height), 0,
                                                        parameterOf(number), DeviceToken::kParameter);
  }

  void applyShort(const TreeNode& node, const HandlerNumbers::OpFacts& facts, const OperandPlan& plan,
                  std::uint32_t height) {
    std::uint32_t column = 0, argument = 0, kind = DeviceToken::kNumber;
    if (plan.column != OperandPlan::kNone) column = columnOf(nodes[node.operands[plan.column]]);
    if (plan.argument_place == kInParameter) {
      argument = parameterOf(node.operands[plan.argument]);
      kind = DeviceToken::kParameter;
    } else if (plan.argument_place == kInColumn) {
      argument = columnOf(nodes[node.operands[plan.argument]]);
      kind = DeviceToken::kColumn;
    }
    const int handler = table.applyOf(facts, plan.operand_form, height + plan.stack_count);
    *--next = DeviceToken::of(handler, column, argument, kind);
  }

  // Operands on the stack become arguments before the others, so their tokens are written after those.
  void applyLong(const TreeNode& node, const OperandPlan& plan, std::uint32_t height) {
    *--next = DeviceToken::of(table.find(Kind::kPushResult, height));
    *--next = DeviceToken::of(table.findBody(node.op));
    for (unsigned k = node.arity; k-- > 0;) {
      const TreeNode& operand = nodes[node.operands[k]];
      if (operand.place == kInColumn) {
        *--next = DeviceToken::of(table.find(Kind::kArgumentColumn, 0, k), columnOf(operand));
      } else if (operand.place == kInParameter) {
        *--next = DeviceToken::of(table.find(Kind::kArgumentParameter, 0, k), 0, parameterOf(node.operands[k]),
                                  DeviceToken::kParameter);
      }
    }
    for (unsigned k = 0; k < plan.stack_count; ++k) {
      *--next = DeviceToken::of(table.find(Kind::kArgumentStack, height + k + 1, plan.stack[k]));
    }
  }
};

bool TreeEncoder::encode(const Tree& tree, std::uint32_t output, const EncodeOptions& options,
                         const UsedByPrograms& used, Bytecode& code) {
  if (table_.handlers > DeviceToken::kHandlerMask + std::size_t{1}) return false;
  tokens_.resize(std::max(tokens_.size(), kMostTokens * tree.nodes.size() + 1));
  parameters_.resize(std::max(parameters_.size(), tree.nodes.size()));
  DeviceToken* const end = tokens_.data() + tokens_.size();
  const HandlerNumbers table = table_;
  std::uint8_t* const used_operators = used.operators.data();
  Call call{.table = table,
            .nodes = tree.nodes.data(),
            .columns = options.columns.empty() ? nullptr : options.columns.data(),
            .used_columns = used.columns.data(),
            .first_parameter = options.first_parameter,
            .next = end,
            .parameters = parameters_.data()};
  *--call.next = DeviceToken::of(table.find(Kind::kEnd, 1), 0, output);
  PendingValue* const bottom = pending_.data();
  PendingValue* top = bottom;
  std::uint32_t number = tree.root(), height = 0;
  for (;;) {
    const TreeNode& node = call.nodes[number];
    unsigned computed = 0;  // operands that are still to be
    if (!node.isOperator()) {
      call.pushLeaf(number, height);
    } else {
      const auto place = [&](std::size_t k) { return call.nodes[node.operands[k]].place; };
      const HandlerNumbers::OpFacts& facts = table.facts(node.op);
      if (node.place > onStack(table.depth) || !facts.has) return false;
      const OperandPlan& plan = table.planOf(facts, place(0), place(1), place(2));
      computed = plan.stack_count;
      if (height + std::max(computed, 1U) > table.depth) return false;
      used_operators[static_cast<std::size_t>(node.op)] = 1;
      facts.is_long ? call.applyLong(node, plan, height) : call.applyShort(node, facts, plan, height);
      // The last one's tokens come last, so they are written first.
      for (unsigned k = 0; k + 1 < computed; ++k) *top++ = pendingAt(node.operands[plan.stack[k]], height + k);
      if (computed > 0) {
        number = node.operands[plan.stack[computed - 1]];
        height += computed - 1;
      }
    }
    if (computed > 0) continue;
    if (top == bottom) break;
    const PendingValue pending = *--top;
    number = static_cast<std::uint32_t>(pending);
    height = static_cast<std::uint32_t>(pending >> 32);
  }
  code.tokens.insert(code.tokens.end(), call.next, end);
  code.parameters.assign(parameters_.begin(), parameters_.begin() + call.parameter_count);
  return true;
}

}  // namespace srjit

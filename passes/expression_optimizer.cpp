#include "passes/expression_optimizer.h"

#include <algorithm>

#include "ir/ops.h"

namespace srjit {
namespace {

// Programs of no more registers keep no value elsewhere.
constexpr unsigned kFewRegisters = 3;

}  // namespace

ExpressionOptimizer::ExpressionOptimizer(Precision precision, Math math)
    : math_(math), dag_(precision), rewriter_(dag_, ruleClassOf(math, precision), math), fuser_(dag_) {}

void ExpressionOptimizer::run(const ExpressionView& tokens, std::uint32_t expression) {
  dag_.clear(tokens.size());
  rewriter_.clear();
  NodeId root = readTokens(tokens, expression);
  findMembers(root);
  if (math_ != Math::kStrict && rewriter_.hasSumsOfProducts()) {
    const NodeId fused = fuser_.fuse(root, members_, uses_);
    if (fused != root) findMembers(fused);
    root = fused;
  }
  dag_.addRoot(root);
  if (is_shared_ || dag_.node(root).need > kFewRegisters) {
    members_ = scheduler_.run(dag_, dag_.roots(), members_.size());
  }
}

NodeId ExpressionOptimizer::readTokens(const ExpressionView& tokens, std::uint32_t expression) {
  constexpr int kOperators = static_cast<int>(Token::Kind::kOp);
  stack_.resize(std::max(stack_.size(), tokens.size() + kMaxArity));
  NodeId* top = stack_.data();
  for (const Token token : tokens) {
    // One branch on kind and arity, since each would be hard to predict.
    switch (static_cast<int>(token.kind) + token.arity()) {
      case static_cast<int>(Token::Kind::kConstant):
        *top++ = dag_.constant(token.value);
        break;
      case static_cast<int>(Token::Kind::kVariable):
        *top++ = variable(token.index);
        break;
      case static_cast<int>(Token::Kind::kParameter):
        *top++ = dag_.parameter(expression, token.index);
        break;
      case kOperators + 1:
        top[-1] = rewriter_.build<1>(token.op, {top[-1], 0, 0});
        break;
      case kOperators + 2:
        top -= 1;
        top[-1] = rewriter_.build<2>(token.op, {top[-1], top[0], 0});
        break;
      default:
        top -= 2;
        top[-1] = rewriter_.build<3>(token.op, {top[-1], top[0], top[1]});
        break;
    }
  }
  return top[-1];
}

NodeId ExpressionOptimizer::variable(std::uint32_t column) {
  if (column >= variables_.size()) variables_.resize(column + std::size_t{1});
  NodeId& known = variables_[column];
  const bool is_it =
      known < dag_.size() && dag_.node(known).kind == Token::Kind::kVariable && dag_.node(known).index == column;
  if (!is_it) known = dag_.variable(column);
  return known;
}

// Operands have smaller ids than their users, so a sweep from the root down meets every user before its operands.
void ExpressionOptimizer::findMembers(NodeId root) {
  uses_.assign(dag_.size(), 0);
  member_list_.resize(std::max(member_list_.size(), dag_.size()));
  std::uint32_t* const uses = uses_.data();
  NodeId* const end = member_list_.data() + dag_.size();
  NodeId* first = end;
  uses[root] = 1;
  bool is_shared = false;
  for (NodeId id = root + 1; id-- > 0;) {
    if (uses[id] == 0) continue;
    *--first = id;
    const Node& node = dag_.node(id);
    is_shared |= (uses[id] > 1) & node.isOperator();
    // Without branches, which would be hard to predict: absent operands are node 0.
    uses[node.operands[0]] += std::uint32_t{node.operand_count > 0};
    uses[node.operands[1]] += std::uint32_t{node.operand_count > 1};
    uses[node.operands[2]] += std::uint32_t{node.operand_count > 2};
  }
  members_ = {first, end};
  is_shared_ = is_shared;
}

void ExpressionOptimizer::appendTo(Dag& batch) {
  places_.resize(std::max(places_.size(), dag_.size()));
  for (const NodeId id : members_) {
    const Node& node = dag_.node(id);
    if (node.kind != Token::Kind::kOp) {
      places_[id] = batch.copyLeaf(dag_, id);
      continue;
    }
    Operands operands{};
    for (std::size_t k = 0; k < node.inputs().size(); ++k) operands[k] = places_[node.operands[k]];
    places_[id] = batch.applyOrdered(node.op, operands);
  }
  batch.addRoot(places_[dag_.roots()[0]]);
}

Dag BatchOptimizer::take() {
  Dag result(merged_.precision());
  const std::span<const NodeId> order = scheduler_.run(merged_, merged_.roots(), merged_.size());
  merged_.renumber(order, Dag::Literals::kParameters, result, places_);
  merged_.clear(0);
  return result;
}

}  // namespace srjit

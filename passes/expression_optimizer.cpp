#include "passes/expression_optimizer.h"

#include "ir/ops.h"

namespace srjit {
namespace {

// Programs of no more registers keep no value elsewhere.
constexpr unsigned kFewRegisters = 3;

}  // namespace

void ExpressionOptimizer::run(const ExpressionView& tokens, std::uint32_t expression) {
  dag_.addRoot(optimize(tokens, expression));
  order();
}

void ExpressionOptimizer::run(const Tree& tree, std::uint32_t expression) {
  dag_.addRoot(optimize(tree, expression));
  order();
}

// Gives the expression's node, whose members are found.
NodeId ExpressionOptimizer::optimize(const ExpressionView& tokens, std::uint32_t expression) {
  dag_.clear(tokens.size());
  rewriter_.clear();
  const NodeId root = readTokens(tokens, expression);
  sweep_.run(dag_, {&root, 1});
  if (math_ == Math::kStrict || !rewriter_.hasSumsOfProducts()) return root;
  const NodeId fused = fuser_.fuse(root, sweep_.members(), sweep_.uses());
  if (fused != root) sweep_.run(dag_, {&fused, 1});
  return fused;
}

NodeId ExpressionOptimizer::optimize(const Tree& tree, std::uint32_t expression) {
  dag_.clear(tree.nodes.size());
  const NodeId root = addTree(tree, expression, dag_, stack_);
  sweep_.run(dag_, {&root, 1});
  return root;
}

void ExpressionOptimizer::order() {
  const std::span<const NodeId> roots = dag_.roots();
  members_ = sweep_.members();
  if (sweep_.isShared() || roots.size() != 1 || dag_.node(roots[0]).need > kFewRegisters) {
    members_ = scheduler_.run(dag_, roots, members_.size());
  }
}

NodeId ExpressionOptimizer::readTokens(const ExpressionView& tokens, std::uint32_t expression) {
  if (stack_.size() < tokens.size() + kMaxArity) stack_.resize(tokens.size() + kMaxArity);
  NodeId* top = stack_.data();
  const double* constant = tokens.constants().data();
  for (const std::int32_t code : tokens.codes()) {
    if (code < 0) {
      *top++ = isParameterCode(code) ? dag_.parameter(expression, indexOfCode(code)) : variable(indexOfCode(code));
      continue;
    }
    if (code == kConstantCode) {
      *top++ = dag_.constant(*constant++);
      continue;
    }
    const Op op = kOpsByCode[static_cast<std::size_t>(code)];
    switch (arityOf(op)) {
      case 1:
        top[-1] = rewriter_.build<1>(op, top[-1]);
        break;
      case 2:
        top -= 1;
        top[-1] = rewriter_.build<2>(op, top[-1], top[0]);
        break;
      default:
        top -= 2;
        top[-1] = rewriter_.build<3>(op, top[-1], top[0], top[1]);
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

}  // namespace srjit

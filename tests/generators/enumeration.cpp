#include "tests/generators/enumeration.h"

#include <cstdint>

#include "ir/ops.h"

namespace srjit {
namespace {

using TreeId = std::uint32_t;

struct Tree {
  Token root;
  TreeId x = 0, y = 0;  ///< operands
  bool has_variable = false, has_parameter = false;
};

constexpr Op kEnumeratedUnary[] = {Op::kAbs, Op::kLog, Op::kExp, Op::kInv, Op::kSqrt};
constexpr Op kEnumeratedBinary[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kPow};

/// All trees of the added sizes, by size.
class Enumeration {
 public:
  Enumeration() : ends_{0} {
    trees_ = {{.root = Token::variable(0), .has_variable = true},
              {.root = Token::variable(1), .has_variable = true},
              {.root = Token::parameter(0), .has_parameter = true}};
    ends_.push_back(3);
  }

  /// Calls visit(tree) for every tree of `size` tokens; all smaller sizes must have been added.
  template <class Visit>
  void forEach(unsigned size, const Visit& visit) const {
    for (const Op op : kEnumeratedUnary) {
      for (TreeId x = ends_[size - 2]; x < ends_[size - 1]; ++x) {
        if (isNew(op, trees_[x])) visit(operation(op, x, x));
      }
    }
    for (const Op op : kEnumeratedBinary) {
      for (unsigned left = 1; left + 1 < size; ++left) {
        const unsigned right = size - 1 - left;
        for (TreeId x = ends_[left - 1]; x < ends_[left]; ++x) {
          for (TreeId y = ends_[right - 1]; y < ends_[right]; ++y) {
            if (isNew(op, x, y)) visit(operation(op, x, y));
          }
        }
      }
    }
  }

  void add(unsigned size) {
    std::vector<Tree> found;
    forEach(size, [&](const Tree& tree) { found.push_back(tree); });
    trees_.insert(trees_.end(), found.begin(), found.end());
    ends_.push_back(static_cast<TreeId>(trees_.size()));
  }

  std::size_t size() const { return trees_.size(); }
  const Tree& tree(std::size_t id) const { return trees_[id]; }

  Expression expression(const Tree& tree) const {
    std::vector<Token> tokens;
    write(tree, tokens);
    std::uint32_t parameters = 0;
    for (Token& token : tokens) {
      if (token.kind == Token::Kind::kParameter) token.index = parameters++;
    }
    return Expression::create(std::move(tokens)).value();
  }
  Expression expression(std::size_t id) const { return expression(trees_[id]); }

 private:
  Tree operation(Op op, TreeId x, TreeId y) const {
    return {.root = Token::operation(op),
            .x = x,
            .y = y,
            .has_variable = trees_[x].has_variable || trees_[y].has_variable,
            .has_parameter = trees_[x].has_parameter || trees_[y].has_parameter};
  }

  static bool isNew(Op op, const Tree& x) {
    if (!x.has_variable) return false;
    if (x.root.kind != Token::Kind::kOp) return true;
    const Op below = x.root.op;
    switch (op) {
      case Op::kExp:
        return below != Op::kLog;
      case Op::kLog:
        return below != Op::kExp;
      case Op::kInv:
        return below != Op::kInv && below != Op::kDiv;
      case Op::kAbs:
        return below != Op::kAbs && below != Op::kExp && below != Op::kSqrt;
      default:
        return true;
    }
  }

  bool isNew(Op op, TreeId x, TreeId y) const {
    const Tree &left = trees_[x], &right = trees_[y];
    if (!left.has_variable && !right.has_variable) return false;
    if (op == Op::kAdd || op == Op::kMul) return x <= y;
    if (op == Op::kPow) return true;
    return right.has_variable && (x != y || left.has_parameter);
  }

  // Recursive: the depth is bounded by the size of the trees, which is small.
  void write(const Tree& tree, std::vector<Token>& tokens) const {
    const int arity = tree.root.arity();
    if (arity > 0) write(trees_[tree.x], tokens);
    if (arity > 1) write(trees_[tree.y], tokens);
    tokens.push_back(tree.root);
  }

  std::vector<Tree> trees_;
  std::vector<TreeId> ends_;  ///< end index of the trees of each size, from size 1 on
};

}  // namespace

std::vector<Expression> enumerateExpressions(std::size_t count) {
  Enumeration enumeration;
  unsigned size = 1;
  std::size_t whole = 0, all = enumeration.size();
  while (all <= count) {
    whole = all;
    enumeration.add(++size);
    all = enumeration.size();
  }
  std::vector<Expression> expressions;
  expressions.reserve(count);
  for (std::size_t id = 0; id < whole; ++id) expressions.push_back(enumeration.expression(id));
  const std::size_t rest = count - whole;
  if (rest == 0) return expressions;
  std::size_t candidates = all - whole, number = 0;
  enumeration.forEach(size + 1, [&](const Tree&) { ++candidates; });
  const auto visit = [&](const Tree& tree) {
    if ((number + 1) * rest / candidates > number * rest / candidates) {
      expressions.push_back(enumeration.expression(tree));
    }
    ++number;
  };
  for (std::size_t id = whole; id < all; ++id) visit(enumeration.tree(id));
  enumeration.forEach(size + 1, visit);
  return expressions;
}

}  // namespace srjit

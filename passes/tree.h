// An expression as it is written: a tree in one array, without rules and without shared subterms. Only what every tier
// does alike is done to it: operators over constants are computed, and sums of a product become multiply-adds (not in
// `strict`). Engines prepare populations with it where CompileOptions::simplify is false.
//
// One walk over the tokens makes it (passes/tree_reading.h). A node's number is that of its token, so operands come
// before their operator, the last node is the root, and the subtree of a node is a range of nodes that ends with it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/expression_view.h"
#include "ir/numeric.h"
#include "passes/dag.h"

namespace srjit {

/// A node of a tree. What an operator replaced, as the product of a multiply-add, stays in the array as a leaf that no
/// node reads.
struct TreeNode {
  Operands
      operands{};  ///< of an operator; those past the arity are 0, a leaf. Of another leaf than a constant: its index
  Token::Kind kind = Token::Kind::kConstant;
  Op op{};                 ///< kOp only
  std::uint8_t arity = 0;  ///< kOp: arityOf(op); else 0
  /// Where users find the value: kInColumn, kInNumber, or computed with place - kInNumber registers, if the operand
  /// that needs most is evaluated first (Node::need).
  std::uint8_t place = kInNumber;

  static constexpr std::uint8_t kInColumn = 0, kInNumber = 1;
  bool isOperator() const noexcept { return kind == Token::Kind::kOp; }
  std::uint32_t index() const noexcept { return operands[0]; }  ///< the column of a variable; of a parameter
  std::uint8_t need() const noexcept { return place > kInNumber ? place - kInNumber : 0; }
};
static_assert(sizeof(TreeNode) == 16);

/// Valid until its reader's next call.
struct Tree {
  std::span<const TreeNode> nodes;
  const double* values;  ///< by node: those of constants, rounded to the precision; every NaN is one

  std::uint32_t root() const noexcept { return static_cast<std::uint32_t>(nodes.size() - 1); }
};

/// Reads one expression after another into the same memory. Not recursive. Linear in the tokens, but for factors of
/// products in sums, which are compared if they are equally long: then n log n at worst. Not thread-safe.
class TreeReader {
 public:
  TreeReader(Precision precision, Math math) : precision_(precision), fuses_(math != Math::kStrict) {}

  /// The tree of a valid postfix program. Valid until the next call.
  ///
  /// Of a sum or difference the first operand that is a product (Op::kMul) is fused: a*b + c and c + a*b become fma,
  /// a*b - c fms, and c - a*b fnma. Two products of the same factors stay, since their difference is 0 as written; and
  /// so does a product that undoes one of its factors, as (x / y) * y (passes/fma.h). Factors are the same whose tokens
  /// are, and constants of one value.
  Tree read(const ExpressionView& tokens);

 private:
  struct Nodes;

  Precision precision_;
  bool fuses_;
  // By token; at least as many as tokens:
  std::vector<TreeNode> nodes_;
  std::vector<double> values_;
  std::vector<std::uint32_t> begins_;  ///< the first token of the subtree
};

/// Adds the tree to `dag`, whose nodes share equal subterms; parameters are those of expression `expression`. Gives the
/// node of the root. The memory of `places` is used again.
NodeId addTree(const Tree& tree, std::uint32_t expression, Dag& dag, std::vector<NodeId>& places);

}  // namespace srjit

// The graph of a batch of expressions. Nodes are hash-consed (value numbering): equal subtrees, of one expression or of
// several, are one node. So making the graph eliminates common subexpressions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ir/expression.h"
#include "ir/numeric.h"

namespace srjit {

using NodeId = std::uint32_t;

/// The operands of an operator; those past its arity are 0.
using Operands = std::array<NodeId, kMaxArity>;

/// One node. Operands are earlier nodes, so ascending ids are a topological order.
struct Node {
  double value = 0;         ///< kConstant only; rounded to the Dag's precision
  Operands operands{};      ///< kOp only; the first operand_count count, the others are 0
  std::uint32_t index = 0;  ///< kVariable: column; kParameter: index into Dag::parameters()
  Token::Kind kind = Token::Kind::kConstant;
  Op op{};                         ///< kOp only
  std::uint8_t operand_count = 0;  ///< kOp: arityOf(op); else 0
  /// The registers that its evaluation needs if the operand that needs most is evaluated first (R. Sethi, J. D. Ullman,
  /// "The Generation of Optimal Code for Arithmetic Expressions", JACM 17(4), 1970): 0 for a leaf, which is read where
  /// it is used; at least 1 for an operator. Shared nodes count at every use, as if the graph were a forest. Saturates.
  std::uint8_t need = 0;
  std::uint8_t sort = 0;  ///< passes/rules/node_sort.h

  bool isOperator() const noexcept { return kind == Token::Kind::kOp; }
  int arity() const noexcept { return operand_count; }
  std::span<const NodeId> inputs() const noexcept { return {operands.data(), operand_count}; }
};

/// Where the value of a parameter slot comes from at run time.
struct ParameterSource {
  static constexpr std::uint32_t kLiteral = ~0u;
  std::uint32_t expression = kLiteral;  ///< which expression of the batch, or kLiteral
  std::uint32_t index = 0;              ///< which of its parameters
  double literal = 0;                   ///< the value, if kLiteral; rounded to the Dag's precision

  bool isLiteral() const noexcept { return expression == kLiteral; }
};

/// A batch as one graph with one root per expression. Not thread-safe while it is being changed.
class Dag {
 public:
  explicit Dag(Precision precision) : precision_(precision) {}

  /// The graph of a batch. Constants are rounded to `precision`. Parameters of different expressions are different
  /// nodes, since their values differ. Operands stand as they are written, so x0 + x1 and x1 + x0 are two nodes until a
  /// pass makes them one. Linear in the tokens.
  static Dag fromExpressions(std::span<const Expression> batch, Precision precision);

  /// The node for these arguments, added if it is new; equal arguments give equal ids. The first two operands of a
  /// commutative operator are put in the order of their shapeHash(), and kept as they are given where that is equal:
  /// neither depends on the rest of the batch, nor on the values of literals. Every NaN is one constant; 0 and -0 are
  /// two.
  NodeId constant(double value);
  NodeId variable(std::uint32_t column);
  NodeId parameter(std::uint32_t expression, std::uint32_t index);
  NodeId literalParameter(double value);
  NodeId apply(Op op, Operands operands) {
    orderOperands(op, operands[0], operands[1]);
    return applyOrdered(op, operands);
  }
  NodeId apply(Op op, std::span<const NodeId> operands);
  NodeId apply(Op op, std::initializer_list<NodeId> operands) {
    return apply(op, std::span<const NodeId>(operands.begin(), operands.size()));
  }
  /// The two steps of apply(); without the first, operands stay as given.
  void orderOperands(Op op, NodeId& a, NodeId& b) const noexcept {
    // With a branch: what follows need not wait for the hashes if the order is predicted.
    if (kCommutes[static_cast<std::size_t>(op)] && hashes_[b] < hashes_[a]) std::swap(a, b);
  }
  NodeId applyOrdered(Op op, const Operands& operands);
  /// The same of an operator of this arity, without a branch on it; operands past it are 0. They are no array, which
  /// would be written as three numbers and read as two words, so that the load would wait for the stores.
  template <int kArity>
  NodeId applyOrdered(Op op, NodeId a, NodeId b, NodeId c);
  /// The constant, variable or parameter `leaf` of another graph of this precision.
  NodeId copyLeaf(const Dag& from, NodeId leaf);
  /// Adds `nodes` of another graph of this precision, each after its operands, which are among them. `places` becomes
  /// where each is here; its memory is used again.
  void copyNodes(const Dag& from, std::span<const NodeId> nodes, std::vector<NodeId>& places);
  void addRoot(NodeId id) { roots_.push_back(id); }
  void setRoot(std::size_t root, NodeId id) { roots_[root] = id; }
  /// Reserves memory for `nodes` nodes, only for speed.
  void reserve(std::size_t nodes);

  Precision precision() const noexcept { return precision_; }
  std::span<const Node> nodes() const noexcept { return nodes_; }
  const Node& node(NodeId id) const noexcept { return nodes_[id]; }
  std::span<const NodeId> roots() const noexcept { return roots_; }
  std::span<const ParameterSource> parameters() const noexcept { return parameters_; }
  std::size_t size() const noexcept { return nodes_.size(); }
  /// One more than the largest variable index used.
  std::uint32_t variableCount() const noexcept { return variables_; }

  /// Number of uses of every node, by operands (with multiplicity) and by roots.
  std::vector<std::uint32_t> useCounts() const;

  /// Expression `root` as a postfix program again; a shared node is written at every use, so the text may be
  /// exponentially longer than the graph: fails with kInvalid above `max_tokens`. Literal parameters become constants.
  Result<Expression> toExpression(std::size_t root, std::size_t max_tokens = 1u << 20) const;
  /// The same for the value of node `id`.
  Result<Expression> subtree(NodeId id, std::size_t max_tokens) const;

  /// A hash of the shape of the term at `id`: its operators, variables, and the expression-local indices of
  /// parameters, but neither the values of literals (constants and literal parameters count as the same) nor which
  /// expression the parameters belong to. Passes that must choose between equals choose by it and then by operand
  /// order, so that an expression gives the same bits in whatever batch it stands, and the same structure whatever its
  /// numbers.
  std::uint64_t shapeHash(NodeId id) const noexcept { return hashes_[id]; }

  /// Appends to `bytes` everything that code depends on: precision, nodes in their order and roots, but not the sources
  /// of parameters. So batches that differ only in numbers append the same once their literals are hoisted. Different
  /// structures append different bytes, and none is a prefix of another. The same in every process
  /// on machines of one byte order; a new operator changes nothing about graphs without it.
  void appendStructure(std::vector<std::byte>& bytes) const;

  /// The form of constants in the new graph.
  enum class Literals : std::uint8_t { kConstants, kParameters };
  /// The graph of only the nodes of `order`, numbered as they stand there: each once, after its operands, and all that
  /// a root reaches.
  Dag renumbered(std::span<const NodeId> order) const;
  /// The same in `to`, whose memory is used again. `places` becomes the new number of every node of `order`.
  void renumber(std::span<const NodeId> order, Literals literals, Dag& to, std::vector<NodeId>& places) const;

  /// Removes everything, and makes room for `nodes` nodes in the memory that it has.
  void clear(std::size_t nodes);

  /// Turns every constant into a literal parameter, in place. There must be no literal parameter before.
  void hoistConstants();

  /// Bit equality of structure and numbers.
  friend bool operator==(const Dag& a, const Dag& b);

 private:
  static const std::array<bool, kMostOps> kCommutes;
  struct Slot {
    std::uint32_t hash;
    NodeId id;
  };
  /// The existing node of identity `hash` for which `same(node)` holds, or else a new one, which `make(node)` fills in,
  /// with its shape.
  template <class Make, class Shape, class Same>
  NodeId intern(std::uint32_t hash, const Make& make, const Shape& shape, const Same& same);
  NodeId internParameter(const ParameterSource& source, std::uint64_t shape);
  template <int kArity>
  std::uint8_t needOf(NodeId a, NodeId b, NodeId c) const noexcept;
  std::uint32_t identityOf(const Node& node) const noexcept;
  void makeTable(std::size_t size);

  Precision precision_;
  std::vector<Node> nodes_;
  std::vector<NodeId> roots_;
  std::vector<ParameterSource> parameters_;
  std::vector<std::uint64_t> hashes_;  ///< shapeHash of every node
  std::vector<Slot> table_;            ///< open-addressing hash table of all nodes, at most 2/3 in use; its size is a
                                       ///< power of two, or 0 until the first new node of a renumbered or hoisted graph
  std::size_t room_ = 0;               ///< nodes that the table may have
  std::uint32_t variables_ = 0;
};

}  // namespace srjit

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "ir/ops.h"
#include "passes/pass.h"
#include "passes/working_dag.h"

namespace srjit {
namespace {

/// The product x * y, or -(x * y) if `negated`.
struct Product {
  NodeId x, y;
  bool negated;
};

bool isSum(const Node& node) { return node.kind == Token::Kind::kOp && (node.op == Op::kAdd || node.op == Op::kSub); }

bool multiplies(const Node& node) {
  return node.kind == Token::Kind::kOp && (node.op == Op::kMul || node.op == Op::kSquare || node.op == Op::kCube);
}

/// Fuses one root at a time, because which product a sum takes depends on the number of its uses, and uses in other
/// roots of the batch must not count.
class Fuser {
 public:
  explicit Fuser(WorkingDag& work) : work_(work), dag_(work.dag()), order_(work.order()) {}

  void run() && {
    findSums();
    work_.begin();
    for (std::size_t i = 0; i < dag_.roots().size(); ++i) {
      const NodeId root = dag_.roots()[i];
      if (has_sums_[root] != 0) {
        dag_.setRoot(i, fuseRoot(root));
      } else {
        keepRoot(root);
      }
    }
    work_.commit();
  }

 private:
  static constexpr NodeId kNone = WorkingDag::kNone;

  /// Finds the nodes whose subgraphs contain a sum of a product; the others stay as they are.
  void findSums() {
    ranks_.resize(dag_.size());
    uses_.resize(dag_.size());
    image_.resize(dag_.size());
    has_sums_.resize(dag_.size());
    for (std::uint32_t rank = 0; rank < order_.size(); ++rank) {
      const NodeId id = order_[rank];
      ranks_[id] = rank;
      const Node& node = dag_.node(id);
      const bool sum = isSum(node);
      bool has = false;
      for (const NodeId operand : node.inputs()) {
        has = has || has_sums_[operand] != 0 || (sum && multiplies(dag_.node(operand)));
      }
      has_sums_[id] = has ? 1 : 0;
    }
  }

  /// Lists the nodes of a root whose subgraph contains no sum of a product.
  void keepRoot(NodeId root) {
    if (work_.isKept(root)) return;
    members_.assign(1, ranks_[root]);
    for (std::size_t i = 0; i < members_.size(); ++i) {
      for (const NodeId operand : dag_.node(order_[members_[i]]).inputs()) {
        if (!work_.isKept(operand) && uses_[operand]++ == 0) members_.push_back(ranks_[operand]);
      }
    }
    std::ranges::sort(members_);
    for (const std::uint32_t rank : members_) uses_[work_.keep(order_[rank])] = 0;
  }

  NodeId fuseRoot(NodeId root) {
    collect(root);
    for (const std::uint32_t rank : members_) image_[order_[rank]] = work_.keep(imageOf(order_[rank]));
    for (const std::uint32_t rank : members_) uses_[order_[rank]] = 0;
    return image_[root];
  }

  /// Lists the nodes of `root` in topological order, and counts their uses within it.
  void collect(NodeId root) {
    members_.assign(1, ranks_[root]);
    uses_[root] = 1;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      for (const NodeId operand : dag_.node(order_[members_[i]]).inputs()) {
        if (uses_[operand]++ == 0) members_.push_back(ranks_[operand]);
      }
    }
    std::ranges::sort(members_);
  }

  NodeId imageOf(NodeId id) {
    if (has_sums_[id] == 0) return id;
    const Node node = dag_.node(id);
    if (isSum(node)) {
      if (const NodeId fused = fusedSum(node); fused != kNone) return fused;
    }
    Operands operands{};
    for (std::size_t i = 0; i < node.inputs().size(); ++i) operands[i] = image_[node.operands[i]];
    return operands == node.operands ? id : dag_.apply(node.op, operands);
  }

  /// The fused form of a sum or difference; kNone if no operand is a product, and for the difference of a value and
  /// itself, which is 0 as written but the product's rounding error when fused. Of two products it fuses the one that
  /// this root uses nowhere else, since that multiplication becomes dead; otherwise the first. A product with another
  /// use is fused as well: the sum is one instruction either way, does not depend on the product, and rounds once.
  NodeId fusedSum(const Node& sum) {
    if (sum.operands[0] == sum.operands[1]) return kNone;
    const bool second_first = isProduct(sum.operands[1]) && uses_[sum.operands[1]] == 1 &&
                              !(isProduct(sum.operands[0]) && uses_[sum.operands[0]] == 1);
    for (const std::size_t side : {second_first ? std::size_t{1} : 0, second_first ? std::size_t{0} : 1}) {
      if (!isProduct(sum.operands[side])) continue;
      const NodeId other = image_[sum.operands[1 - side]];
      if (sum.op == Op::kSub && side == 0) {
        const auto [x, y] = factorsOf(sum.operands[side]);
        return dag_.apply(Op::kFms, {x, y, other});
      }
      const auto [x, y, negated] = withoutSign(factorsOf(sum.operands[side]));
      return dag_.apply(negated == (sum.op == Op::kSub) ? Op::kFma : Op::kFnma, {x, y, other});
    }
    return kNone;
  }

  bool isOneOf(NodeId id, std::initializer_list<Op> ops) const {
    const Node& node = dag_.node(id);
    return node.kind == Token::Kind::kOp && std::ranges::find(ops, node.op) != ops.end();
  }

  /// Whether the product `id` undoes what made a factor: the square of a square root, the cube of a cube root, a value
  /// times its reciprocal, a quotient times its divisor. Such a product is its operand but for rounding. As written,
  /// the difference of the two is 0 in most rows, and dividing by it is infinite; fused, it would never be 0.
  bool undoesAFactor(NodeId id) const {
    const auto& operands = dag_.node(id).operands;
    switch (dag_.node(id).op) {
      case Op::kSquare:
        return isOneOf(operands[0], {Op::kSqrt, Op::kPsqrt, Op::kLooseSqrt});
      case Op::kCube:
        return isOneOf(operands[0], {Op::kCbrt});
      default:
        return isReciprocalOf(operands[0], operands[1]) || isReciprocalOf(operands[1], operands[0]);
    }
  }
  bool isReciprocalOf(NodeId id, NodeId other) const {
    if (isOneOf(id, {Op::kInv, Op::kPinv, Op::kLooseInv})) return dag_.node(id).operands[0] == other;
    return isOneOf(id, {Op::kDiv, Op::kPdiv, Op::kLooseDiv}) && dag_.node(id).operands[1] == other;
  }

  bool isProduct(NodeId id) const {
    const Node& node = dag_.node(id);
    // A cube with another use stays, at two multiplications, and fusing needs one more for the square.
    return multiplies(node) && (node.op != Op::kCube || uses_[id] == 1) && !undoesAFactor(id);
  }

  /// The factors of the product `id`, themselves fused.
  std::array<NodeId, 2> factorsOf(NodeId id) {
    const Node& node = dag_.node(id);
    const NodeId x = image_[node.operands[0]];
    if (node.op == Op::kSquare) return {x, x};
    if (node.op == Op::kCube) return {work_.keep(dag_.apply(Op::kSquare, {x})), x};
    return {x, image_[node.operands[1]]};
  }

  Product withoutSign(std::array<NodeId, 2> factors) const {
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      const NodeId inner = negatedOperand(factors[i]);
      if (inner != kNone) return {inner, factors[1 - i], true};
    }
    return {factors[0], factors[1], false};
  }

  NodeId negatedOperand(NodeId id) const {
    const Node& node = dag_.node(id);
    return node.kind == Token::Kind::kOp && node.op == Op::kNeg ? node.operands[0] : kNone;
  }

  WorkingDag& work_;
  Dag& dag_;
  std::span<const NodeId> order_;
  std::vector<std::uint32_t> ranks_;    ///< where in order_ a node stands
  std::vector<std::uint8_t> has_sums_;  ///< whether the subgraph of a node contains a sum of a product
  std::vector<std::uint32_t> uses_;     ///< of every node, within the current root
  std::vector<NodeId> image_;           ///< the replacement of every node of the current root
  std::vector<std::uint32_t> members_;  ///< ranks of the nodes of the current root
};

}  // namespace

void fuseMultiplyAdd(WorkingDag& work, const PassContext&) { Fuser(work).run(); }

}  // namespace srjit

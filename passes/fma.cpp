#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include "passes/pass.h"
#include "passes/rebuild.h"

namespace srjit {
namespace {

/// The product x * y, or -(x * y) if `negated`.
struct Product {
  NodeId x, y;
  bool negated;
};

/// Fuses one root at a time, because which product a sum takes depends on the number of its uses, and uses in other
/// roots of the batch must not count.
class Fuser {
 public:
  explicit Fuser(const Dag& from)
      : from_(from), to_(from.precision()), uses_(from.size()), image_(from.size(), kNone) {}

  Dag run() && {
    for (const NodeId root : from_.roots()) fuseRoot(root);
    return std::move(to_);
  }

 private:
  static constexpr NodeId kNone = ~NodeId{0};

  void fuseRoot(NodeId root) {
    collect(root);
    for (const NodeId id : members_) image_[id] = copy(id);
    to_.addRoot(image_[root]);
    for (const NodeId id : members_) {
      uses_[id] = 0;
      image_[id] = kNone;
    }
  }

  /// Lists the nodes of `root` in topological order, and counts their uses within it.
  void collect(NodeId root) {
    members_.assign(1, root);
    uses_[root] = 1;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      for (const NodeId operand : from_.node(members_[i]).inputs()) {
        if (uses_[operand]++ == 0) members_.push_back(operand);
      }
    }
    std::ranges::sort(members_);
  }

  NodeId copy(NodeId id) {
    const Node& node = from_.node(id);
    if (node.kind != Token::Kind::kOp) return to_.copyLeaf(from_, id);
    if (node.op == Op::kAdd || node.op == Op::kSub) {
      if (const NodeId fused = fusedSum(node); fused != kNone) return fused;
    }
    std::array<NodeId, kMaxArity> operands{};
    for (std::size_t i = 0; i < node.inputs().size(); ++i) operands[i] = image_[node.operands[i]];
    return to_.apply(node.op, std::span<const NodeId>(operands.data(), node.inputs().size()));
  }

  /// The fused form of a sum or difference; kNone if no operand is a product, and for the difference of a value and
  /// itself, which is 0 as written but the product's rounding when fused. Where both are products, it takes the one
  /// that this root uses nowhere else, since that multiplication disappears, and else the first. A product that stays
  /// for another use is fused as well: the sum costs one instruction either way, no longer waits for the product, and
  /// rounds once.
  NodeId fusedSum(const Node& sum) {
    if (sum.operands[0] == sum.operands[1]) return kNone;
    const bool second_first = isProduct(sum.operands[1]) && uses_[sum.operands[1]] == 1 &&
                              !(isProduct(sum.operands[0]) && uses_[sum.operands[0]] == 1);
    for (const std::size_t side : {second_first ? std::size_t{1} : 0, second_first ? std::size_t{0} : 1}) {
      if (!isProduct(sum.operands[side])) continue;
      const NodeId other = image_[sum.operands[1 - side]];
      if (sum.op == Op::kSub && side == 0) {
        const auto [x, y] = factorsOf(sum.operands[side]);
        return to_.apply(Op::kFms, {x, y, other});
      }
      const auto [x, y, negated] = withoutSign(factorsOf(sum.operands[side]));
      return to_.apply(negated == (sum.op == Op::kSub) ? Op::kFma : Op::kFnma, {x, y, other});
    }
    return kNone;
  }

  bool isOneOf(NodeId id, std::initializer_list<Op> ops) const {
    const Node& node = from_.node(id);
    return node.kind == Token::Kind::kOp && std::ranges::find(ops, node.op) != ops.end();
  }

  /// Whether the product `id` undoes what made a factor: the square of a square root, the cube of a cube root, a value
  /// times its reciprocal, a quotient times its divisor. Such a product is its operand but for rounding. As written,
  /// the difference of the two is 0 in most rows, and dividing by it is infinite; fused, it would never be 0.
  bool undoesAFactor(NodeId id) const {
    const auto& operands = from_.node(id).operands;
    switch (from_.node(id).op) {
      case Op::kSquare:
        return isOneOf(operands[0], {Op::kSqrt, Op::kPsqrt, Op::kLooseSqrt});
      case Op::kCube:
        return isOneOf(operands[0], {Op::kCbrt});
      default:
        return isReciprocalOf(operands[0], operands[1]) || isReciprocalOf(operands[1], operands[0]);
    }
  }
  bool isReciprocalOf(NodeId id, NodeId other) const {
    if (isOneOf(id, {Op::kInv, Op::kPinv, Op::kLooseInv})) return from_.node(id).operands[0] == other;
    return isOneOf(id, {Op::kDiv, Op::kPdiv, Op::kLooseDiv}) && from_.node(id).operands[1] == other;
  }

  bool isProduct(NodeId id) const {
    const Node& node = from_.node(id);
    if (node.kind != Token::Kind::kOp) return false;
    // A cube that stays for another use would be two multiplications beside the square that fusing needs.
    const bool product = node.op == Op::kMul || node.op == Op::kSquare || (node.op == Op::kCube && uses_[id] == 1);
    return product && !undoesAFactor(id);
  }

  /// The factors of the product `id`, in the new graph.
  std::array<NodeId, 2> factorsOf(NodeId id) {
    const Node& node = from_.node(id);
    const NodeId x = image_[node.operands[0]];
    if (node.op == Op::kSquare) return {x, x};
    if (node.op == Op::kCube) return {to_.apply(Op::kSquare, {x}), x};
    return {x, image_[node.operands[1]]};
  }

  Product withoutSign(std::array<NodeId, 2> factors) const {
    for (const std::size_t i : {0, 1}) {
      const NodeId inner = negatedOperand(factors[i]);
      if (inner != kNone) return {inner, factors[1 - i], true};
    }
    return {factors[0], factors[1], false};
  }

  NodeId negatedOperand(NodeId id) const {
    const Node& node = to_.node(id);
    return node.kind == Token::Kind::kOp && node.op == Op::kNeg ? node.operands[0] : kNone;
  }

  const Dag& from_;
  Dag to_;
  std::vector<std::uint32_t> uses_;  ///< of every node of from_, within the root at hand
  std::vector<NodeId> image_;        ///< the node of to_ for every node of from_, for the root at hand
  std::vector<NodeId> members_;      ///< nodes of the root at hand
};

}  // namespace

Dag fuseMultiplyAdd(const Dag& dag, const PassContext&) { return withoutUnreachable(Fuser(dag).run()); }

}  // namespace srjit

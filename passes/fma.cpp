#include "passes/fma.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "ir/ops.h"
#include "passes/members.h"
#include "passes/pass.h"
#include "passes/working_dag.h"

namespace srjit {

NodeId Fuser::fuse(NodeId root, std::span<const NodeId> members, std::span<const std::uint32_t> uses, NodeId first) {
  image_.resize(std::max(image_.size(), dag_.size()));
  has_sums_.resize(image_.size());
  if (first > 0) keepOperandsBefore(first, members);
  if (!findSums(members)) return root;
  uses_ = uses;
  for (const NodeId id : members) image_[id] = imageOf(id);
  if (log_ != nullptr) {
    for (const NodeId id : members) log_->replace(id, image_[id]);
  }
  return image_[root];
}

void Fuser::findSumsFrom(NodeId first) {
  has_sums_.resize(std::max(has_sums_.size(), dag_.size()));
  for (NodeId id = first; id < dag_.size(); ++id) {
    const Node& node = dag_.node(id);
    has_sums_[id] = static_cast<std::uint8_t>(isSumOfProduct(node));
    for (const NodeId operand : node.inputs()) has_sums_[id] |= operand < first ? std::uint8_t{0} : has_sums_[operand];
  }
}

void Fuser::keepOperandsBefore(NodeId first, std::span<const NodeId> members) {
  for (const NodeId id : members) {
    for (const NodeId operand : dag_.node(id).inputs()) {
      if (operand >= first) continue;
      image_[operand] = operand;
      has_sums_[operand] = 0;
      // It may be a product, whose factors a sum takes.
      for (const NodeId factor : dag_.node(operand).inputs()) image_[factor] = factor;
    }
  }
}

// Absent operands are node 0, a leaf.
unsigned Fuser::isSumOfProduct(const Node& node) const {
  const unsigned of_product =
      unsigned{isFusible(dag_.node(node.operands[0]))} | unsigned{isFusible(dag_.node(node.operands[1]))};
  return of_product & unsigned{node.isOperator()} & unsigned{isSum(node.op)};
}

bool Fuser::findSums(std::span<const NodeId> members) {
  std::uint8_t* const has_sums = has_sums_.data();
  has_sums[0] = 0;
  unsigned any = 0;
  for (const NodeId id : members) {
    const Node& node = dag_.node(id);
    const auto [a, b, c] = node.operands;
    const unsigned own = isSumOfProduct(node);
    has_sums[id] = static_cast<std::uint8_t>(own | has_sums[a] | has_sums[b] | has_sums[c]);
    any |= own;
  }
  return any != 0;
}

NodeId Fuser::imageOf(NodeId id) {
  if (has_sums_[id] == 0) return id;
  const Node node = dag_.node(id);
  if (isSum(node.op)) {
    if (const NodeId fused = fusedSum(node); fused != kNone) {
      report(node, fused);
      return fused;
    }
  }
  Operands operands{};
  for (std::size_t i = 0; i < node.inputs().size(); ++i) operands[i] = image_[node.operands[i]];
  return operands == node.operands ? id : dag_.apply(node.op, operands);
}

void Fuser::report(const Node& sum, NodeId fused) {
  if (log_ == nullptr) return;
  const Op op = dag_.node(fused).op;
  const std::string_view pattern = op == Op::kFma ? "x0*x1 + x2" : op == Op::kFms ? "x0*x1 - x2" : "x2 - x0*x1";
  const std::string_view replacement = op == Op::kFma   ? "fma(x0, x1, x2)"
                                       : op == Op::kFms ? "fms(x0, x1, x2)"
                                                        : "fnma(x0, x1, x2)";
  log_->begin({pattern, replacement, "precise", sum.op, sum.operands, 0, 0});
  log_->end(fused);
}

// The fused form of a sum or difference; kNone if no operand is a product, and for the difference of a value and
// itself, which is 0 as written but the product's rounding error when fused. Of two products it fuses the one that
// this root uses nowhere else, since that multiplication becomes dead; otherwise the first. A product with another
// use is fused as well: the sum is one instruction either way, does not depend on the product, and rounds once.
NodeId Fuser::fusedSum(const Node& sum) {
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

bool Fuser::isOneOf(NodeId id, std::initializer_list<Op> ops) const {
  const Node& node = dag_.node(id);
  return node.kind == Token::Kind::kOp && std::ranges::find(ops, node.op) != ops.end();
}

// Whether the product `id` undoes what made a factor: the square of a square root, the cube of a cube root, a value
// times its reciprocal, a quotient times its divisor. Such a product is its operand but for rounding. As written,
// the difference of the two is 0 in most rows, and dividing by it is infinite; fused, it would never be 0.
bool Fuser::undoesAFactor(NodeId id) const {
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
bool Fuser::isReciprocalOf(NodeId id, NodeId other) const {
  const Node& node = dag_.node(id);
  if (!node.isOperator()) return false;
  return (isReciprocal(node.op) && node.operands[0] == other) || (isQuotient(node.op) && node.operands[1] == other);
}

bool Fuser::isProduct(NodeId id) const {
  const Node& node = dag_.node(id);
  // A cube with another use stays, at two multiplications, and fusing needs one more for the square.
  return isFusible(node) && (node.op != Op::kCube || uses_[id] == 1) && !undoesAFactor(id);
}

// The factors of the product `id`, themselves fused.
std::array<NodeId, 2> Fuser::factorsOf(NodeId id) {
  const Node& node = dag_.node(id);
  const NodeId x = image_[node.operands[0]];
  if (node.op == Op::kSquare) return {x, x};
  if (node.op == Op::kCube) return {dag_.apply(Op::kSquare, {x}), x};
  return {x, image_[node.operands[1]]};
}

std::tuple<NodeId, NodeId, bool> Fuser::withoutSign(std::array<NodeId, 2> factors) const {
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    if (isOneOf(factors[i], {Op::kNeg})) return {dag_.node(factors[i]).operands[0], factors[1 - i], true};
  }
  return {factors[0], factors[1], false};
}

void fuseMultiplyAdd(WorkingDag& work, const PassContext& context) {
  Dag& dag = work.dag();
  Fuser fuser(dag, context.log);
  RootMembers of;
  work.begin();
  for (std::size_t i = 0; i < dag.roots().size(); ++i) {
    of.collect(dag, dag.roots().subspan(i, 1));
    dag.setRoot(i, work.keepTree(fuser.fuse(dag.roots()[i], of.members(), of.uses())));
  }
  work.commit();
}

}  // namespace srjit

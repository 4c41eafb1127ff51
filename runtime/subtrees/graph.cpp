#include "runtime/subtrees/graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "ir/mix.h"
#include "passes/working_dag.h"

namespace srjit {
namespace {

// The two halves of a key are hashes of their own, which begin with these.
constexpr std::uint64_t kHigh = 0x6a09e667f3bcc908, kLow = 0xbb67ae8584caa73b;  // fractions of square roots of 2 and 3

enum Kind : std::uint64_t { kLiteral = 1, kColumn = 2, kOperator = 3 };

SubtreeKey keyOf(Kind kind, std::uint64_t value) {
  return {combine(combine(kHigh, kind), value), combine(combine(kLow, kind), value)};
}

SubtreeKey keyOf(const Dag& dag, const Node& node, std::span<const SubtreeKey> keys) {
  switch (node.kind) {
    case Token::Kind::kConstant:
      return keyOf(kLiteral, std::bit_cast<std::uint64_t>(node.value));
    case Token::Kind::kVariable:
      return keyOf(kColumn, node.index);
    case Token::Kind::kParameter: {
      const ParameterSource& source = dag.parameters()[node.index];
      return source.isLiteral() ? keyOf(kLiteral, std::bit_cast<std::uint64_t>(source.literal)) : SubtreeKey{};
    }
    case Token::Kind::kOp:
      break;
  }
  SubtreeKey key = keyOf(kOperator, nameHashOf(node.op));
  for (const NodeId operand : node.inputs()) {
    if (keys[operand].isNone()) return {};
    key = {combine(key.high, keys[operand].high), combine(key.low, keys[operand].low)};
  }
  return key;
}

}  // namespace

GraphSubtrees::GraphSubtrees(const Dag& dag, const CodeWeights& weights, std::size_t roots_per_kernel)
    : dag_(dag),
      weights_(weights),
      roots_per_kernel_(roots_per_kernel),
      kernels_(dag.size()),
      read_(dag.size()),
      uses_(dag.useCounts()),
      seen_(dag.size()) {
  findKeys();
  count();
}

void GraphSubtrees::findKeys() {
  keys_.reserve(dag_.size());
  tokens_.reserve(dag_.size());
  tree_instructions_.reserve(dag_.size());
  for (const Node& node : dag_.nodes()) {
    keys_.push_back(keyOf(dag_, node, keys_));
    std::uint64_t tokens = 1;
    double instructions = node.kind == Token::Kind::kOp ? weights_[static_cast<std::size_t>(node.op)] : 0;
    for (const NodeId operand : node.inputs()) {
      tokens += tokens_[operand];
      instructions += tree_instructions_[operand];
    }
    tree_instructions_.push_back(instructions);
    tokens_.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(tokens, UINT32_MAX)));
  }
}

void GraphSubtrees::count() {
  std::ranges::fill(kernels_, 0);
  instructions_ = 0;
  const auto meet = [&](NodeId id) {
    if (seen_[id] == walk_ || dag_.node(id).kind != Token::Kind::kOp) return;
    seen_[id] = walk_;
    ++kernels_[id];
    if (!read_[id]) stack_.push_back(id);
  };
  const auto roots = dag_.roots();
  for (std::size_t first = 0; first < roots.size(); first += roots_per_kernel_) {
    ++walk_;
    for (const NodeId root : roots.subspan(first, std::min(roots_per_kernel_, roots.size() - first))) meet(root);
    while (!stack_.empty()) {
      const NodeId id = stack_.back();
      stack_.pop_back();
      instructions_ += weight(id);
      for (const NodeId operand : dag_.node(id).inputs()) meet(operand);
    }
  }
}

/// Instructions of `id` and of the operators that a walk from there reaches; it goes to an operand if `enters` is true.
template <class Enters>
double GraphSubtrees::sumFrom(NodeId id, const Enters& enters) {
  double instructions = 0;
  stack_.assign(1, id);
  while (!stack_.empty()) {
    const NodeId next = stack_.back();
    stack_.pop_back();
    instructions += weight(next);
    for (const NodeId operand : dag_.node(next).inputs()) {
      if (computes(operand) && enters(operand)) stack_.push_back(operand);
    }
  }
  return instructions;
}

double GraphSubtrees::ownInstructions(NodeId id) {
  if (roots_per_kernel_ == 1) return instructionsOf(id);
  // The operators whose last use is in this subtree.
  const double instructions = sumFrom(id, [&](NodeId operand) {
    touched_.push_back(operand);
    return --uses_[operand] == 0;
  });
  for (const NodeId node : touched_) ++uses_[node];
  touched_.clear();
  return instructions;
}

double GraphSubtrees::instructionsOf(NodeId id) {
  ++walk_;
  return sumFrom(id, [&](NodeId operand) { return std::exchange(seen_[operand], walk_) != walk_; });
}

Dag withColumns(Dag dag, std::span<const std::uint32_t> columns) {
  WorkingDag work(std::move(dag));
  const auto kept = [&](NodeId id) { return work.keep(id); };
  const std::vector<NodeId> before(work.order().begin(), work.order().end());
  // rebuild() gives the images of an operator's operands, but not the operator's node.
  std::vector<NodeId> image(work.dag().size());
  work.begin();
  for (const NodeId id : before) {
    const Node node = work.dag().node(id);
    if (columns[id] != kComputed) {
      image[id] = kept(work.dag().variable(columns[id]));
      continue;
    }
    if (node.kind != Token::Kind::kOp) {
      image[id] = kept(id);
      continue;
    }
    std::array<NodeId, kMaxArity> operands{};
    const auto arity = node.inputs().size();
    for (std::size_t k = 0; k < arity; ++k) operands[k] = image[node.operands[k]];
    image[id] = kept(work.dag().apply(node.op, std::span<const NodeId>(operands.data(), arity)));
  }
  for (std::size_t i = 0; i < work.dag().roots().size(); ++i) work.dag().setRoot(i, image[work.dag().roots()[i]]);
  work.commit();
  return work.result();
}

}  // namespace srjit

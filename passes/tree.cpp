#include "passes/tree.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ir/token_codes.h"
#include "passes/tree_reading.h"

namespace srjit {
namespace {

// The places of operators whose operands are in these places. An operand that is held while others are evaluated takes
// a register, but a leaf is read where it is used.
constexpr unsigned kOneRegister = TreeNode::kInNumber + 1;
unsigned placeOver(unsigned x) { return std::max(x, kOneRegister); }
unsigned placeOver(unsigned x, unsigned y) {
  const unsigned more = std::max(x, y), less = std::min(x, y);
  return std::max(placeOver(more), less + unsigned{less > TreeNode::kInNumber});
}
unsigned placeOver(unsigned x, unsigned y, unsigned z) {
  if (x > y) std::swap(x, y);
  if (y > z) std::swap(y, z);
  if (x > y) std::swap(x, y);
  return std::max(placeOver(y, z), x + (x > TreeNode::kInNumber ? 2U : 0U));
}

TreeNode operatorNode(Op op, const Operands& operands, int arity, unsigned place) {
  return {.operands = operands,
          .kind = Token::Kind::kOp,
          .op = op,
          .arity = static_cast<std::uint8_t>(arity),
          .place = static_cast<std::uint8_t>(place)};
}

}  // namespace

// In local memory: a compiler keeps in registers what no store can change.
struct TreeReader::Nodes {
  const std::int32_t* codes;
  TreeNode* nodes;
  double* values;
  std::uint32_t* begins;

  std::int32_t code(std::uint32_t i) const { return codes[i]; }
  std::uint32_t begin(std::uint32_t i) const { return begins[i]; }
  bool isConstant(std::uint32_t i) const { return nodes[i].kind == Token::Kind::kConstant; }
  bool isOperator(std::uint32_t i) const { return nodes[i].isOperator(); }
  Op op(std::uint32_t i) const { return nodes[i].op; }
  const Operands& operands(std::uint32_t i) const { return nodes[i].operands; }
  double value(std::uint32_t i) const { return values[i]; }
  double written(std::uint32_t i) const { return values[i]; }
  static std::array<std::uint32_t, 2> order(std::uint32_t first, std::uint32_t last) { return {first, last}; }

  void setBegin(std::uint32_t i, std::uint32_t begin) { begins[i] = begin; }
  void setConstant(std::uint32_t i, std::uint32_t, double value) {
    nodes[i] = {};
    values[i] = value;
  }
  void setOperator(std::uint32_t i, Op op, const Operands& operands, int arity) {
    const auto place = [&](std::size_t k) { return unsigned{nodes[operands[k]].place}; };
    const unsigned own = arity == 1   ? placeOver(place(0))
                         : arity == 2 ? placeOver(place(0), place(1))
                                      : placeOver(place(0), place(1), place(2));
    nodes[i] = operatorNode(op, operands, arity, own);
  }
  void setFused(std::uint32_t i, Op op, std::uint32_t product, std::uint32_t other) {
    const auto [a, b, none] = nodes[product].operands;
    setOperator(i, op, {a, b, other}, 3);
    setConstant(product, product, 0);
  }
};

Tree TreeReader::read(const ExpressionView& tokens) {
  const std::span<const std::int32_t> codes = tokens.codes();
  if (nodes_.size() < codes.size()) {
    nodes_.resize(codes.size());
    values_.resize(codes.size());
    begins_.resize(codes.size());
  }
  Nodes to{codes.data(), nodes_.data(), values_.data(), begins_.data()};
  TreeReading<Nodes> reading(to, precision_, fuses_);
  const double* constant = tokens.constants().data();
  const auto count = static_cast<std::uint32_t>(codes.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int32_t code = codes[i];
    if (code > 0) {
      reading.readOperator(i, kOpsByCode[static_cast<std::size_t>(code)]);
      continue;
    }
    to.begins[i] = i;
    if (code == kConstantCode) {
      to.setConstant(i, i, roundTo(precision_, *constant++));
    } else if (isParameterCode(code)) {
      to.nodes[i] = {.operands = {indexOfCode(code), 0, 0}, .kind = Token::Kind::kParameter};
    } else {
      to.nodes[i] = {
          .operands = {indexOfCode(code), 0, 0}, .kind = Token::Kind::kVariable, .place = TreeNode::kInColumn};
    }
  }
  return {std::span(nodes_).first(count), values_.data()};
}

NodeId addTree(const Tree& tree, std::uint32_t expression, Dag& dag, std::vector<NodeId>& places) {
  places.resize(std::max(places.size(), tree.nodes.size()));
  for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
    const TreeNode& node = tree.nodes[i];
    switch (node.kind) {
      case Token::Kind::kConstant:
        places[i] = dag.constant(tree.values[i]);
        break;
      case Token::Kind::kVariable:
        places[i] = dag.variable(node.index());
        break;
      case Token::Kind::kParameter:
        places[i] = dag.parameter(expression, node.index());
        break;
      case Token::Kind::kOp: {
        Operands operands{};
        for (std::size_t k = 0; k < node.arity; ++k) operands[k] = places[node.operands[k]];
        places[i] = dag.applyOrdered(node.op, operands);
        break;
      }
    }
  }
  return places[tree.root()];
}

}  // namespace srjit

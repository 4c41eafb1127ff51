#include "passes/tree.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "ir/ops.h"
#include "ir/token_codes.h"
#include "passes/fma.h"
#include "passes/rules/rewriter.h"

namespace srjit {
namespace {

bool isProduct(const TreeNode& node) { return node.isOperator() && node.op == Op::kMul; }

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
struct TreeReader::Arrays {
  TreeNode* nodes;
  double* values;
  std::uint32_t* begins;
};

Tree TreeReader::read(const ExpressionView& tokens) {
  codes_ = tokens.codes();
  if (nodes_.size() < codes_.size()) {
    nodes_.resize(codes_.size());
    values_.resize(codes_.size());
    begins_.resize(codes_.size());
  }
  const Arrays to{nodes_.data(), values_.data(), begins_.data()};
  const std::int32_t* const codes = codes_.data();
  const double* constant = tokens.constants().data();
  const auto count = static_cast<std::uint32_t>(codes_.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int32_t code = codes[i];
    if (code > 0) {
      readOperator(to, i, kOpsByCode[static_cast<std::size_t>(code)]);
      continue;
    }
    to.begins[i] = i;
    if (code == kConstantCode) {
      to.nodes[i] = {};
      to.values[i] = roundTo(precision_, *constant++);
    } else if (isParameterCode(code)) {
      to.nodes[i] = {.operands = {indexOfCode(code), 0, 0}, .kind = Token::Kind::kParameter};
    } else {
      to.nodes[i] = {
          .operands = {indexOfCode(code), 0, 0}, .kind = Token::Kind::kVariable, .place = TreeNode::kInColumn};
    }
  }
  return {std::span(nodes_).first(count), values_.data()};
}

// The last operand ends before the operator, and each operand before the next one begins.
[[gnu::always_inline]] inline void TreeReader::readOperator(const Arrays& to, std::uint32_t number, Op op) {
  const auto place = [&](std::uint32_t node) { return unsigned{to.nodes[node].place}; };
  const auto isConstant = [&](std::uint32_t node) { return to.nodes[node].kind == Token::Kind::kConstant; };
  const std::uint32_t last = number - 1;
  const int arity = arityOf(op);
  if (arity == 1) {
    to.begins[number] = to.begins[last];
    if (isConstant(last)) return compute(number, op, {last, 0, 0});
    to.nodes[number] = operatorNode(op, {last, 0, 0}, 1, placeOver(place(last)));
    return;
  }
  const std::uint32_t before = to.begins[last] - 1;
  if (arity == 2) {
    to.begins[number] = to.begins[before];
    if (isConstant(last) && isConstant(before)) return compute(number, op, {before, last, 0});
    if (isSum(op) && fuses_ && (isProduct(to.nodes[before]) || isProduct(to.nodes[last])) &&
        fuse(number, op, before, last)) {
      return;
    }
    to.nodes[number] = operatorNode(op, {before, last, 0}, 2, placeOver(place(before), place(last)));
    return;
  }
  const std::uint32_t first = to.begins[before] - 1;
  to.begins[number] = to.begins[first];
  if (isConstant(last) && isConstant(before) && isConstant(first)) return compute(number, op, {first, before, last});
  to.nodes[number] = operatorNode(op, {first, before, last}, 3, placeOver(place(first), place(before), place(last)));
}

// An operator over constants becomes their value.
void TreeReader::compute(std::uint32_t number, Op op, const Operands& operands) {
  std::array<double, kMaxArity> values{};
  const auto arity = static_cast<std::size_t>(arityOf(op));
  for (std::size_t k = 0; k < arity; ++k) values[k] = values_[operands[k]];
  const double value = valueOf(op, std::span(values).first(arity), precision_);
  nodes_[number] = {};
  values_[number] = std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

// One of x and y is a product. It stays as a leaf that no node reads.
bool TreeReader::fuse(std::uint32_t number, Op op, std::uint32_t x, std::uint32_t y) {
  const bool is_first = isProduct(nodes_[x]), is_second = isProduct(nodes_[y]);
  if (is_first ? areSameProduct(x, y) : areSameProduct(y, x)) return false;
  const bool takes_first = is_first && !undoesAFactor(x);
  if (!takes_first && (!is_second || undoesAFactor(y))) return false;
  const std::uint32_t product = takes_first ? x : y, other = takes_first ? y : x;
  const auto [a, b, none] = nodes_[product].operands;
  const Op fused = op == Op::kAdd ? Op::kFma : takes_first ? Op::kFms : Op::kFnma;
  nodes_[number] =
      operatorNode(fused, {a, b, other}, 3, placeOver(nodes_[a].place, nodes_[b].place, nodes_[other].place));
  nodes_[product] = {};
  values_[product] = 0;
  return true;
}

bool TreeReader::undoesAFactor(std::uint32_t product) const {
  const auto [a, b, none] = nodes_[product].operands;
  return isOneOver(a, b) || isOneOver(b, a);
}

bool TreeReader::isOneOver(std::uint32_t node, std::uint32_t divisor) const {
  if (!nodes_[node].isOperator()) return false;
  const auto [x, y, none] = nodes_[node].operands;
  return (isReciprocal(nodes_[node].op) && areSame(x, divisor)) || (isQuotient(nodes_[node].op) && areSame(y, divisor));
}

bool TreeReader::areSameProduct(std::uint32_t product, std::uint32_t other) const {
  const auto [a, b, none] = nodes_[product].operands;
  const auto [x, y, no_third] = nodes_[other].operands;
  if (nodes_[other].isOperator() && nodes_[other].op == Op::kSquare) return areSame(a, x) && areSame(b, x);
  if (!isProduct(nodes_[other])) return false;
  return (areSame(a, x) && areSame(b, y)) || (areSame(a, y) && areSame(b, x));
}

// Constants by their values, also those that were computed; others by their tokens.
bool TreeReader::areSame(std::uint32_t a, std::uint32_t b) const {
  const auto isConstant = [&](std::uint32_t node) { return nodes_[node].kind == Token::Kind::kConstant; };
  const auto bitsOf = [&](std::uint32_t node) { return std::bit_cast<std::uint64_t>(values_[node]); };
  if (isConstant(a) && isConstant(b)) return bitsOf(a) == bitsOf(b);
  const std::uint32_t count = a - begins_[a];
  if (b - begins_[b] != count) return false;
  for (std::uint32_t i = 0; i <= count; ++i) {
    if (codes_[a - i] != codes_[b - i]) return false;
    if (codes_[a - i] == kConstantCode && bitsOf(a - i) != bitsOf(b - i)) return false;
  }
  return true;
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

// How an operator of a tree is read (passes/tree.h), for any memory of nodes: arrays on the host, and what a lane of a
// GPU has.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "ir/numeric.h"
#include "ir/op.h"
#include "ir/ops.h"
#include "passes/dag.h"
#include "passes/fma.h"
#include "passes/value_of.h"

namespace srjit {

/// `Nodes` has, by the number of a token: code(), begin() (the first token of its subtree), isConstant(), isOperator();
/// of operators op() and operands(); of constants value(), and written(), of those that are tokens; of the first and
/// the last of two or three operands order(), in the operator's order. setBegin(), then setConstant() or setOperator()
/// write a node; setFused() writes a multiply-add of the factors of a product, which no node reads then.
template <class Nodes>
class TreeReading {
 public:
  TreeReading(Nodes& nodes, Precision precision, bool fuses) : nodes_(nodes), precision_(precision), fuses_(fuses) {}

  /// Token `number`, whose operands were read: the last one ends before it, and each before the next one begins.
  [[gnu::always_inline]] void readOperator(std::uint32_t number, Op op) {
    const std::uint32_t last = number - 1;
    const int arity = arityOf(op);
    if (arity == 1) {
      nodes_.setBegin(number, nodes_.begin(last));
      if (nodes_.isConstant(last)) return compute(number, op, {last, 0, 0});
      return nodes_.setOperator(number, op, {last, 0, 0}, 1);
    }
    const std::uint32_t before = nodes_.begin(last) - 1;
    if (arity == 2) {
      nodes_.setBegin(number, nodes_.begin(before));
      const auto [x, y] = nodes_.order(before, last);
      if (nodes_.isConstant(x) && nodes_.isConstant(y)) return compute(number, op, {x, y, 0});
      if (isSum(op) && fuses_ && (isProduct(x) || isProduct(y)) && fuse(number, op, x, y)) return;
      return nodes_.setOperator(number, op, {x, y, 0}, 2);
    }
    const std::uint32_t first = nodes_.begin(before) - 1;
    nodes_.setBegin(number, nodes_.begin(first));
    const auto [x, z] = nodes_.order(first, last);
    if (nodes_.isConstant(x) && nodes_.isConstant(before) && nodes_.isConstant(z)) {
      return compute(number, op, {x, before, z});
    }
    nodes_.setOperator(number, op, {x, before, z}, 3);
  }

 private:
  // An operator over constants becomes their value.
  [[gnu::always_inline]] void compute(std::uint32_t number, Op op, const Operands& operands) {
    std::array<double, kMaxArity> values{};
    const auto arity = static_cast<std::size_t>(arityOf(op));
    for (std::size_t k = 0; k < arity; ++k) values[k] = nodes_.value(operands[k]);
    const double value = valueOf(op, std::span(values).first(arity), precision_);
    nodes_.setConstant(number, operands[0], std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value);
  }

  // One of x and y is a product. It stays as a leaf that no node reads.
  [[gnu::always_inline]] bool fuse(std::uint32_t number, Op op, std::uint32_t x, std::uint32_t y) {
    const bool is_first = isProduct(x), is_second = isProduct(y);
    if (is_first ? areSameProduct(x, y) : areSameProduct(y, x)) return false;
    const bool takes_first = is_first && !undoesAFactor(x);
    if (!takes_first && (!is_second || undoesAFactor(y))) return false;
    nodes_.setFused(number,
                    op == Op::kAdd ? Op::kFma
                    : takes_first  ? Op::kFms
                                   : Op::kFnma,
                    takes_first ? x : y, takes_first ? y : x);
    return true;
  }

  bool isProduct(std::uint32_t node) const { return nodes_.isOperator(node) && nodes_.op(node) == Op::kMul; }

  [[gnu::always_inline]] bool undoesAFactor(std::uint32_t product) const {
    const auto [a, b, none] = nodes_.operands(product);
    return isOneOver(a, b) || isOneOver(b, a);
  }

  [[gnu::always_inline]] bool isOneOver(std::uint32_t node, std::uint32_t divisor) const {
    if (!nodes_.isOperator(node)) return false;
    const Op op = nodes_.op(node);
    if (!isReciprocal(op) && !isQuotient(op)) return false;
    const auto [x, y, none] = nodes_.operands(node);
    return areSame(isReciprocal(op) ? x : y, divisor);
  }

  [[gnu::always_inline]] bool areSameProduct(std::uint32_t product, std::uint32_t other) const {
    if (!nodes_.isOperator(other)) return false;
    const auto [a, b, none] = nodes_.operands(product);
    if (nodes_.op(other) == Op::kSquare) {
      const std::uint32_t x = nodes_.operands(other)[0];
      return areSame(a, x) && areSame(b, x);
    }
    if (!isProduct(other)) return false;
    const auto [x, y, no_third] = nodes_.operands(other);
    return (areSame(a, x) && areSame(b, y)) || (areSame(a, y) && areSame(b, x));
  }

  // Constants by their values, also those that were computed; others by their tokens.
  [[gnu::always_inline]] bool areSame(std::uint32_t a, std::uint32_t b) const {
    const auto bitsOf = [&](std::uint32_t node) { return std::bit_cast<std::uint64_t>(nodes_.value(node)); };
    if (nodes_.isConstant(a) && nodes_.isConstant(b)) return bitsOf(a) == bitsOf(b);
    const std::uint32_t count = a - nodes_.begin(a);
    if (b - nodes_.begin(b) != count) return false;
    for (std::uint32_t i = 0; i <= count; ++i) {
      if (nodes_.code(a - i) != nodes_.code(b - i)) return false;
      if (nodes_.code(a - i) == kConstantCode && writtenBits(a - i) != writtenBits(b - i)) return false;
    }
    return true;
  }

  std::uint64_t writtenBits(std::uint32_t node) const { return std::bit_cast<std::uint64_t>(nodes_.written(node)); }

  Nodes& nodes_;
  Precision precision_;
  bool fuses_;
};

}  // namespace srjit

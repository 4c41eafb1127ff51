// The nodes of an expression that lanes encode, in the shared memory of their group.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compiler/interpreter/lanes/arguments.h"
#include "ir/numbers/rounding.h"
#include "ir/ops.h"
#include "ir/token_codes.h"
#include "passes/dag.h"

namespace srjit {

/// An expression in shared memory, by the number of a token. Of a prefix expression tokens are numbered from the last
/// one on, so that operands come before their operator there, too, but the first one comes last.
class TreeNodes {
 public:
  /// Of treeWords().
  TreeNodes(const TreeArguments& arguments, std::uint32_t* words)
      : arguments_(arguments), nodes_(words), sizes_(words + arguments.most_tokens) {}

  void take(std::uint64_t begin, std::uint32_t tokens, std::uint32_t first_number) {
    begin_ = begin;
    tokens_ = tokens;
    first_number_ = first_number;
    is_prefix_ = arguments_.notation == Notation::kPrefix;
  }
  std::uint32_t tokens() const { return tokens_; }
  std::uint32_t root() const { return tokens_ - 1; }

  // Of a node, one word: the first token of the subtree; an operator, or the place of a number among those of the
  // expression; the place of the value, or the operands of an operator that is not read; what the node is; its slot.
  // Of an operator another word: the tokens of its subtree's program without operands in slots; then its place in the
  // program.
  enum : std::uint32_t {
    kSubjectShift = 8,
    kPlaceShift = 16,
    kPlaceMask = 0xf,
    kConstant = 1U << 20,
    kOperator = 1U << 21,
    kFused = 1U << 22,        ///< of the factors of a product, which is the operand that ends before it,
    kFusedBefore = 1U << 23,  ///< or the other one
    kInSlot = 1U << 24,
    kUnread = 1U << 25,
    kSlotShift = 26,
    kByte = 0xff,
    // Places: where the tokens end, the height of the stack before, and whether they are to be written.
    kHeightShift = 16,
    kEndMask = 0xffff,
    kPlaced = 1U << 31,
  };
  static_assert(kMostDeviceTokens <= kByte + 1 && kMostOps <= kByte + 1 && kLaneSlots <= 1U << (32 - kSlotShift) &&
                roomForPrograms(kMostDeviceTokens, 1) <= kEndMask);

  std::int32_t code(std::uint32_t i) const { return arguments_.codes[positionOf(i)]; }
  std::uint32_t begin(std::uint32_t i) const { return nodes_[i] & kByte; }
  bool isConstant(std::uint32_t i) const { return (nodes_[i] & kConstant) != 0; }
  bool isOperator(std::uint32_t i) const { return (nodes_[i] & kOperator) != 0; }
  bool isInSlot(std::uint32_t i) const { return (nodes_[i] & kInSlot) != 0; }
  bool isRead(std::uint32_t i) const { return (nodes_[i] & kUnread) == 0; }
  Op op(std::uint32_t i) const { return static_cast<Op>(subject(i)); }
  OperandPlace place(std::uint32_t i) const { return static_cast<OperandPlace>(nodes_[i] >> kPlaceShift & kPlaceMask); }
  /// Before its place is set.
  std::uint32_t size(std::uint32_t i) const { return sizes_[i]; }

  Operands operands(std::uint32_t i) const {
    const std::uint32_t last = i - 1;
    if ((nodes_[i] & (kFused | kFusedBefore)) != 0) {
      const std::uint32_t before = begin(last) - 1;
      const bool is_last = (nodes_[i] & kFused) != 0;
      const auto [a, b, none] = operands(is_last ? last : before, 2);
      return {a, b, is_last ? before : last};
    }
    return operands(i, arityOf(op(i)));
  }

  double value(std::uint32_t i) const {
    const std::uint64_t number = std::uint64_t{first_number_} + subject(i);
    return arguments_.precision == Precision::kF32 ? double{reinterpret_cast<const float*>(arguments_.numbers)[number]}
                                                   : reinterpret_cast<const double*>(arguments_.numbers)[number];
  }
  double written(std::uint32_t i) const {
    const std::uint64_t position = positionOf(i);
    return roundTo(arguments_.precision, arguments_.values_type == Precision::kF32
                                             ? double{reinterpret_cast<const float*>(arguments_.values)[position]}
                                             : reinterpret_cast<const double*>(arguments_.values)[position]);
  }
  std::array<std::uint32_t, 2> order(std::uint32_t first, std::uint32_t last) const {
    return is_prefix_ ? std::array{last, first} : std::array{first, last};
  }

  // While the expression is read:

  /// Writes a token before its operands are known.
  void setToken(std::uint32_t i) {
    const std::int32_t code = this->code(i);
    nodes_[i] = i;
    if (code > 0) {
      const Op op = kOpsByCode[static_cast<std::size_t>(code)];
      nodes_[i] = kUnread | static_cast<std::uint32_t>(op) << kSubjectShift |
                  static_cast<std::uint32_t>(arityOf(op)) << kPlaceShift;
    } else if (code == kConstantCode || isParameterCode(code)) {
      putNumber(i, i, written(i), code == kConstantCode ? std::uint32_t{kConstant} : 0U);
    }
  }
  /// Whether the operands of an operator that is not read were read. Each ends before the next one begins.
  bool canRead(std::uint32_t i) const {
    std::uint32_t operand = i - 1;
    for (std::uint32_t more = nodes_[i] >> kPlaceShift & kPlaceMask; isRead(operand); operand = begin(operand) - 1) {
      if (--more == 0) return true;
    }
    return false;
  }
  void setBegin(std::uint32_t i, std::uint32_t begin) { nodes_[i] = begin; }
  void setConstant(std::uint32_t i, std::uint32_t from, double value) { putNumber(i, subject(from), value, kConstant); }
  void setOperator(std::uint32_t i, Op op, const Operands& operands, int arity) {
    const HandlerNumbers& table = arguments_.handlers;
    const OperandPlan* plan = &planOf(op, operands);
    while (plan->need > table.depth) {
      moveToSlot(op, operands, arity);
      plan = &planOf(op, operands);
    }
    std::uint32_t size = plan->tokens;
    for (unsigned k = 0; k < plan->stack_count; ++k) {
      const std::uint32_t operand = operands[plan->stack[k]];
      if (isOnStack(place(operand))) size += sizes_[operand];  // others are among the operator's tokens
    }
    sizes_[i] = size;
    nodes_[i] = begin(i) | static_cast<std::uint32_t>(op) << kSubjectShift |
                std::uint32_t{onStack(plan->need)} << kPlaceShift | kOperator;
  }
  void setFused(std::uint32_t i, Op op, std::uint32_t product, std::uint32_t other) {
    const Operands factors = operands(product);
    nodes_[product] &= ~kOperator;  // it is not written
    setOperator(i, op, {factors[0], factors[1], other}, 3);
    nodes_[i] |= product == i - 1 ? kFused : kFusedBefore;
  }

  // While the program is written:

  void setSlot(std::uint32_t i, std::uint32_t slot) { nodes_[i] |= slot << kSlotShift; }
  void setPlace(std::uint32_t i, std::uint32_t end, std::uint32_t height) {
    sizes_[i] = kPlaced | height << kHeightShift | end;
  }
  bool isPlaced(std::uint32_t i) const { return (sizes_[i] & kPlaced) != 0; }
  std::uint32_t end(std::uint32_t i) const { return sizes_[i] & kEndMask; }
  std::uint32_t height(std::uint32_t i) const { return (sizes_[i] & ~kPlaced) >> kHeightShift; }
  void noteOperator(Op) {}
  std::uint32_t parameterOf(std::uint32_t i) const { return first_number_ + subject(i); }
  std::uint32_t slotColumn(std::uint32_t i) const { return arguments_.columns + (nodes_[i] >> kSlotShift); }
  std::uint32_t columnOf(std::uint32_t i) const { return isInSlot(i) ? slotColumn(i) : indexOfCode(code(i)); }

 private:
  std::uint64_t positionOf(std::uint32_t i) const { return begin_ + (is_prefix_ ? tokens_ - 1 - i : i); }
  std::uint32_t subject(std::uint32_t i) const { return nodes_[i] >> kSubjectShift & kByte; }

  Operands operands(std::uint32_t i, int arity) const {
    const std::uint32_t last = i - 1;
    if (arity == 1) return {last, 0, 0};
    const std::uint32_t before = begin(last) - 1;
    if (arity == 2) {
      const auto [x, y] = order(before, last);
      return {x, y, 0};
    }
    const auto [x, z] = order(begin(before) - 1, last);
    return {x, before, z};
  }

  const OperandPlan& planOf(Op op, const Operands& of) const {
    return arguments_.handlers.planOf(op, place(of[0]), place(of[1]), place(of[2]));
  }

  void putNumber(std::uint32_t i, std::uint32_t number, double value, std::uint32_t flag) {
    const std::uint64_t to = std::uint64_t{first_number_} + number;
    if (arguments_.precision == Precision::kF32) {
      reinterpret_cast<float*>(arguments_.numbers)[to] = static_cast<float>(value);
    } else {
      reinterpret_cast<double*>(arguments_.numbers)[to] = value;
    }
    nodes_[i] = begin(i) | number << kSubjectShift | std::uint32_t{kInParameter} << kPlaceShift | flag;
  }

  // The longest operand without which there are registers enough; if there is none, the longest that needs most.
  void moveToSlot(Op op, const Operands& operands, int arity) {
    std::uint32_t most = 0, most_tokens = 0;
    unsigned most_need = 0;
    for (int k = 0; k < arity; ++k) {
      const std::uint32_t operand = operands[static_cast<std::size_t>(k)], word = nodes_[operand];
      if (!isOnStack(place(operand))) continue;
      nodes_[operand] = word & ~(kPlaceMask << kPlaceShift);
      const bool is_enough = planOf(op, operands).need <= arguments_.handlers.depth;
      nodes_[operand] = word;
      const unsigned need = is_enough ? kPlaceMask + 1U : needOf(place(operand));
      const std::uint32_t tokens = operand - begin(operand) + 1;
      if (need < most_need || (need == most_need && tokens <= most_tokens)) continue;
      most = operand;
      most_tokens = tokens;
      most_need = need;
    }
    nodes_[most] = (nodes_[most] & ~(kPlaceMask << kPlaceShift)) | std::uint32_t{kInColumn} << kPlaceShift | kInSlot;
  }

  const TreeArguments& arguments_;
  std::uint32_t *nodes_, *sizes_;
  std::uint64_t begin_ = 0;
  std::uint32_t tokens_ = 0, first_number_ = 0;
  bool is_prefix_ = false;
};

}  // namespace srjit

// How the program of a tree is written (compiler/interpreter/tree_encoder.h), for any memory of nodes: arrays on the
// host, and what a lane of a GPU has.
#pragma once

#include <algorithm>
#include <cstdint>

#include "compiler/interpreter/encoder.h"
#include "ir/op.h"

namespace srjit {

/// `Nodes` has, by number: isOperator(), place(); of operators op() and operands(); columnOf() and parameterOf(), the
/// numbers of leaves in tokens, and of slots, which are asked once for each use. noteOperator() is told of each
/// operator. For write(), pending(k) is the k-th of depth + kMaxArity values.
template <class Nodes>
class TreeWriting {
 public:
  using Kind = Handler::Kind;

  /// Tokens end before `end`.
  TreeWriting(const HandlerNumbers& table, Nodes& nodes, DeviceToken* end) : table_(table), nodes_(nodes), next_(end) {}

  /// The first token.
  DeviceToken* first() const noexcept { return next_; }
  void put(DeviceToken token) { *--next_ = token; }
  /// Leaves room for tokens that another one writes.
  void skip(std::uint32_t tokens) { next_ -= tokens; }

  /// Writes what computes the subtree onto an empty stack, from its root down: each operator before its operands,
  /// since tokens are written from the last one on. False, with some tokens, if an operator or a register is missing.
  /// Not recursive.
  bool write(std::uint32_t root) {
    std::uint32_t number = root, height = 0, waiting = 0;
    for (;;) {
      unsigned computed = 0;  // operands that are still to be
      if (!nodes_.isOperator(number)) {
        push(number, height);
      } else {
        const Operands operands = nodes_.operands(number);
        const OperandPlan* const plan = putOperator(number, operands, height);
        if (plan == nullptr) return false;
        computed = plan->stack_count;
        // The last one's tokens come last, so they are written first.
        for (unsigned k = 0; k + 1 < computed; ++k) {
          nodes_.pending(waiting++) = pendingAt(operands[plan->stack[k]], height + k);
        }
        if (computed > 0) {
          number = operands[plan->stack[computed - 1]];
          height += computed - 1;
        }
      }
      if (computed > 0) continue;
      if (waiting == 0) return true;
      const PendingValue pending = nodes_.pending(--waiting);
      number = static_cast<std::uint32_t>(pending);
      height = static_cast<std::uint32_t>(pending >> 32);
    }
  }

  /// Writes the tokens of one operator onto a stack of this height. Its operands that are computed come before them, in
  /// the order of the plan, each a register higher than the one before. Null if an operator or a register is missing.
  [[gnu::always_inline]] const OperandPlan* putOperator(std::uint32_t number, const Operands& operands,
                                                        std::uint32_t height) {
    const Op op = nodes_.op(number);
    const auto place = [&](std::size_t k) { return nodes_.place(operands[k]); };
    const HandlerNumbers::OpFacts& facts = table_.facts(op);
    if (nodes_.place(number) > onStack(table_.depth) || !facts.has) return nullptr;
    const OperandPlan& plan = table_.planOf(facts, place(0), place(1), place(2));
    if (height + std::max<unsigned>(plan.stack_count, 1U) > table_.depth) return nullptr;
    nodes_.noteOperator(op);
    facts.is_long ? applyLong(op, operands, plan, height) : applyShort(facts, operands, plan, height);
    return &plan;
  }

  void push(std::uint32_t leaf, std::uint32_t height) {
    put(nodes_.place(leaf) == kInColumn ? DeviceToken::of(table_.find(Kind::kPushColumn, height), nodes_.columnOf(leaf))
                                        : DeviceToken::of(table_.find(Kind::kPushParameter, height), 0,
                                                          nodes_.parameterOf(leaf), DeviceToken::kParameter));
  }

 private:
  void applyShort(const HandlerNumbers::OpFacts& facts, const Operands& operands, const OperandPlan& plan,
                  std::uint32_t height) {
    std::uint32_t column = 0, argument = 0, kind = DeviceToken::kNumber;
    if (plan.column != OperandPlan::kNone) column = nodes_.columnOf(operands[plan.column]);
    if (plan.argument_place == kInParameter) {
      argument = nodes_.parameterOf(operands[plan.argument]);
      kind = DeviceToken::kParameter;
    } else if (plan.argument_place == kInColumn) {
      argument = nodes_.columnOf(operands[plan.argument]);
      kind = DeviceToken::kColumn;
    }
    put(DeviceToken::of(table_.applyOf(facts, plan.operand_form, height + plan.stack_count), column, argument, kind));
  }

  // Operands on the stack become arguments before the others, so their tokens are written after those.
  void applyLong(Op op, const Operands& operands, const OperandPlan& plan, std::uint32_t height) {
    put(DeviceToken::of(table_.find(Kind::kPushResult, height)));
    put(DeviceToken::of(table_.findBody(op)));
    for (unsigned k = static_cast<unsigned>(arityOf(op)); k-- > 0;) {
      const OperandPlace place = nodes_.place(operands[k]);
      if (place == kInColumn) {
        put(DeviceToken::of(table_.find(Kind::kArgumentColumn, 0, k), nodes_.columnOf(operands[k])));
      } else if (place == kInParameter) {
        put(DeviceToken::of(table_.find(Kind::kArgumentParameter, 0, k), 0, nodes_.parameterOf(operands[k]),
                            DeviceToken::kParameter));
      }
    }
    for (unsigned k = 0; k < plan.stack_count; ++k) {
      put(DeviceToken::of(table_.find(Kind::kArgumentStack, height + k + 1, plan.stack[k])));
    }
  }

  const HandlerNumbers table_;
  Nodes& nodes_;
  DeviceToken* next_;
};

}  // namespace srjit

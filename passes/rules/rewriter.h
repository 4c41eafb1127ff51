// The engine of simplify.def: makes operators in normal form. Rules are applied where a node is made, as by the FOLD
// engine of LuaJIT (M. Pall, lj_opt_fold.c), so that a term is rewritten while its tokens are read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/numeric.h"
#include "passes/dag.h"
#include "passes/rules/simplify.h"

namespace srjit {

class RuleIndex;

/// Adds nodes in normal form to one graph. Not thread-safe; the graph must outlive it.
class Rewriter {
 public:
  /// Rules up to `rule_class`. For kExact in fast f32, rules over operators that are approximate there are not applied,
  /// and such operators are not computed, since IEEE 754 does not fix their bits.
  Rewriter(Dag& dag, RuleClass rule_class, Math math);

  /// The normal form of `op`, of this arity, over operands in normal form: no rule matches it. An operator over
  /// constants is computed. A term that a rule matches is not added to the graph, but terms within its replacement may
  /// be left as dead nodes. Not recursive.
  template <int kArity>
  NodeId build(Op op, const Operands& operands) {
    const NodeId id = settle<kArity>(op, operands);
    return id != kRewriting ? id : finishRewrites();
  }
  NodeId build(Op op, const Operands& operands) {
    const NodeId id = settle(op, arityOf(op), operands);
    return id != kRewriting ? id : finishRewrites();
  }

  /// Whether build() made a sum or difference of a product, which may be dead by now, since the last clear().
  bool hasSumsOfProducts() const noexcept { return has_sums_of_products_; }
  void clear() noexcept { has_sums_of_products_ = false; }

 private:
  static constexpr NodeId kRewriting = ~NodeId{0};

  /// A rewrite that has begun. A replacement is a postfix expression whose operators may themselves be rewritten.
  struct Rewrite {
    std::span<const Token> replacement;
    std::size_t next;  ///< token of the replacement
    std::array<NodeId, kRuleWildcards> wildcards;
    std::array<NodeId, kRuleLiterals> literals;
  };

  /// The normal form of a term, or kRewriting if a rule matches it: then its rewrite has begun.
  template <int kArity>
  NodeId settle(Op op, Operands operands);
  NodeId settle(Op op, int arity, const Operands& operands);
  NodeId finishRewrites();
  /// Begins the rewrite by the first rule that matches, of bit sets by the order of operands; false if none does.
  bool startRule(Op op, std::uint64_t as_given, std::uint64_t swapped, const Operands& operands);

  Dag& dag_;
  const RuleIndex& rules_;
  std::array<bool, kMostOps> folds_{};  ///< operators that are computed over constants
  bool has_sums_of_products_ = false;
  std::vector<NodeId> values_;     ///< the operand stack of the rewrites
  std::vector<Rewrite> rewrites_;  ///< the rewrites that have begun: a stack, since one may begin another
};

}  // namespace srjit

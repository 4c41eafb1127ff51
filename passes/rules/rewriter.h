// The engine of simplify.def: makes operators in normal form. Rules are applied where a node is made, as by the FOLD
// engine of LuaJIT (M. Pall, lj_opt_fold.c), so that a term is rewritten while its tokens are read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/numeric.h"
#include "passes/dag.h"
#include "passes/rules/tables.h"
#include "passes/value_of.h"

namespace srjit {

class RewriteLog;

/// Adds nodes in normal form to one graph. Not thread-safe; the graph must outlive it.
class Rewriter {
 public:
  /// Applies the rules of `mode` and of stricter modes. Rules that fire are added to `log`, if that is given.
  Rewriter(Dag& dag, Math mode, RewriteLog* log = nullptr);
  /// The same without a log, of the rules of rulesFor().
  Rewriter(Dag& dag, const RuleTables& rules);
  ~Rewriter();

  /// The normal form of `op` over operands in normal form: no rule matches it. An operator over constants is computed.
  /// A term that a rule matches is not added to the graph, but terms within its replacement may be left as dead nodes.
  /// Not recursive.
  NodeId build(Op op, const Operands& operands) {
    const auto [a, b, c] = operands;
    const NodeId id = settle(op, arityOf(op), a, b, c);
    return id != kRewriting ? id : finishRewrites();
  }
  /// The same of an operator of this arity, without a branch on it; operands past it are 0.
  template <int kArity>
  NodeId build(Op op, NodeId a, NodeId b = 0, NodeId c = 0) {
    const NodeId id = settle<kArity>(op, a, b, c);
    return id != kRewriting ? id : finishRewrites();
  }

  /// Whether build() made a sum or difference of a product, which may be dead by now, since the last clear().
  bool hasSumsOfProducts() const noexcept { return sums_of_products_ != 0; }
  void clear() noexcept { sums_of_products_ = 0; }

 private:
  static constexpr NodeId kRewriting = ~NodeId{0}, kNone = kRewriting - 1;

  struct Rewrite;

  /// The normal form of a term, or kRewriting if a rule matches it: then its rewrite has begun.
  template <int kArity>
  NodeId settle(Op op, NodeId a, NodeId b, NodeId c);
  NodeId settle(Op op, int arity, NodeId a, NodeId b, NodeId c);
  NodeId fold(Op op, const Operands& operands, int arity);
  NodeId takeStep(const RewriteStep& step, Rewrite& rewrite);
  NodeId finishRewrites();
  /// Of the first rule that matches, of a bit set: what the term becomes, or kRewriting if its rewrite has begun. kNone
  /// if no rule matches.
  NodeId applyRule(Op op, std::uint64_t candidates, NodeId a, NodeId b, NodeId c);
  // Add to the log, which must be given (tables.cpp).
  void reportFold(Op op, const Operands& operands, NodeId value) const;
  void reportRule(std::size_t number, Op op, const Operands& operands) const;
  void reportEnd(NodeId result) const;

  Dag& dag_;
  const RuleTables& rules_;
  Math mode_ = Math::kFast;        ///< only of reports
  RewriteLog* log_ = nullptr;      ///< null: none
  unsigned sums_of_products_ = 0;  ///< not 0 if any exist
  std::vector<Rewrite> rewrites_;  ///< the rewrites that have begun: a stack, since one may begin another
};

}  // namespace srjit

// The standard pipeline in one walk over tokens. Engines prepare populations with it. Rules are applied where a node
// is made (passes/rules/rewriter.h), so the graph of the expression as it was given never exists. The result is the
// same as that of Pipeline::standard(): the same nodes, in the same order.
//
//   walk tokens     Rewriter::build   algebra, constants, common subexpressions
//   one sweep back  uses              of the nodes that the root needs
//   one sweep on    Fuser             multiply-adds, in precise and fast
//   one walk        Scheduler         the order of evaluation
//
// Of a tree (passes/tree.h), which is as it was written, it only shares equal subterms and finds the order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/numeric.h"
#include "ir/population.h"
#include "passes/dag.h"
#include "passes/fma.h"
#include "passes/members.h"
#include "passes/rules/rewriter.h"
#include "passes/rules/tables.h"
#include "passes/tree.h"

namespace srjit {

/// Optimizes one expression after another in the same memory. Linear in the tokens, not recursive. Not thread-safe.
class ExpressionOptimizer {
 public:
  ExpressionOptimizer(Precision precision, Math math)
      : math_(math), dag_(precision), rewriter_(dag_, rulesFor(ruleModeOf(math, precision))), fuser_(dag_) {}
  ExpressionOptimizer(const ExpressionOptimizer&) = delete;
  ExpressionOptimizer& operator=(const ExpressionOptimizer&) = delete;

  /// Optimizes expression number `expression` of a batch, a valid postfix program.
  void run(const ExpressionView& tokens, std::uint32_t expression);
  /// Shares the equal subterms of its tree, and orders them.
  void run(const Tree& tree, std::uint32_t expression);
  /// The same, of tokens or of a tree, of roots that are made of the expression: `addRoots(dag, f)` adds nodes and
  /// roots to the graph, in which f is the expression's node. No rule is applied to these nodes.
  template <class Source, class AddRoots>
  void run(const Source& source, std::uint32_t expression, const AddRoots& addRoots) {
    const NodeId f = optimize(source, expression);
    addRoots(dag_, f);
    sweep_.run(dag_, dag_.roots());
    order();
  }

  /// The result of run(). Valid until the next run.
  ExpressionGraph graph() const noexcept { return {dag_, dag_.roots(), members_, sweep_.uses()}; }

 private:
  NodeId optimize(const ExpressionView& tokens, std::uint32_t expression);
  NodeId optimize(const Tree& tree, std::uint32_t expression);
  NodeId readTokens(const ExpressionView& tokens, std::uint32_t expression);
  NodeId variable(std::uint32_t column);
  void order();

  Math math_;
  Dag dag_;
  Rewriter rewriter_;
  Fuser fuser_;
  MemberSweep sweep_;
  Scheduler scheduler_;
  std::vector<NodeId> stack_;        ///< of the tokens' walk
  std::vector<NodeId> places_;       ///< by node of a tree: where it is in the graph
  std::vector<NodeId> variables_;    ///< by column: its node, if that is still the column's
  std::span<const NodeId> members_;  ///< those of graph(): the sweep's, or the scheduler's
};

}  // namespace srjit

// Makes the roots of a derivation.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/numeric.h"
#include "passes/dag.h"
#include "passes/expression_graph.h"
#include "passes/fma.h"
#include "passes/gradient/derivation.h"
#include "passes/gradient/differentiate.h"
#include "passes/gradient/graph_domain.h"
#include "passes/member_sweep.h"
#include "passes/root_members.h"
#include "passes/rules/rewriter.h"
#include "passes/schedule.h"

namespace srjit {

/// Adds the roots of `derivation`, of Quantity::kLoss, to the graph in which `f` is the expression's node.
void addLossRoots(Dag& dag, NodeId f, const Derivation& derivation);

/// Adds the roots of an expression of `parameters` parameters whose variables the data lack: NaN. Evaluations give a
/// failure instead.
void addRootsWithoutData(Dag& dag, const Derivation& derivation, std::size_t parameters);

/// Derives one expression after another, in the same memory. The result depends only on the expression. Not
/// thread-safe.
class Deriver {
 public:
  Deriver(Precision precision, Math math);
  Deriver(const Deriver&) = delete;
  Deriver& operator=(const Deriver&) = delete;

  /// Makes the roots of an expression. `f` is its graph, of one root, in another Dag; it has `parameters` parameters
  /// and uses only variables before derivation.columns. Its own nodes stay as they are, so f keeps its bits;
  /// derivatives get the rules of the math mode, and are fused; those that need it get a test whether they are finite;
  /// what sums add is as Quantity has it, without rules. Linear in the nodes of each root together, not recursive.
  void run(const ExpressionGraph& f, const Derivation& derivation, std::size_t parameters);
  /// The result of run().
  ExpressionGraph graph();

  /// Adds the result of run() to `to`, another graph, for the expression that node `root` of `from` computes.
  void derive(const Dag& from, NodeId root, const Derivation& derivation, std::size_t parameters, Dag& to);
  /// The same of f and its derivatives by parameters: 1 + parameters roots.
  void differentiate(const Dag& from, NodeId root, std::size_t parameters, Dag& to);

 private:
  ExpressionGraph graphOf(const Dag& from, NodeId root);
  void read(const ExpressionGraph& f);
  void addDerivatives(const Derivation& derivation, std::size_t parameters);
  /// Fuses multiply-adds in derivatives, of nodes from `first` on.
  void fuseDerivatives(NodeId first);
  void addStepTerms(const Derivation& derivation);
  void addTangent(const Derivation& derivation);
  void addGradientTerms(const Derivation& derivation);
  /// Those of f times `scale`.
  std::vector<graph::Value> derivatives(double scale) const;
  void appendRoots(Dag& to);

  Math math_;
  Dag dag_;  ///< of one expression
  Rewriter rewriter_;
  graph::NodeMaker with_rules_, as_written_;
  Fuser fuser_;
  Differentiator differentiator_;
  Scheduler scheduler_;
  RootMembers members_;
  MemberSweep sweep_;
  std::vector<NodeId> roots_;   ///< f and its derivatives, then those of the quantity
  std::vector<NodeId> places_;  ///< where a node is in another graph
};

}  // namespace srjit

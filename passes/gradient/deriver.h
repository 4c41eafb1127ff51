// Makes the roots of a derivation.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ir/numeric.h"
#include "ir/population.h"
#include "passes/dag.h"
#include "passes/expression_optimizer.h"
#include "passes/fma.h"
#include "passes/gradient/derivation.h"
#include "passes/gradient/differentiate.h"
#include "passes/members.h"
#include "passes/rules/rewriter.h"
#include "passes/tree.h"

namespace srjit {

/// Derives one expression after another, in the same memory. The result depends only on the expression: its own nodes
/// stay as they are, so f keeps its bits; derivatives get the rules of the math mode, and are fused, in a graph of its
/// own nodes, since that must not depend on operators that the passes before left behind; those that need it get a test
/// whether they are finite; what sums add is as Quantity has it, without rules. Linear in the nodes of each root
/// together, not recursive. Not thread-safe.
class Deriver {
 public:
  Deriver(Precision precision, Math math);
  Deriver(const Deriver&) = delete;
  Deriver& operator=(const Deriver&) = delete;

  /// The roots of expression number `expression` of a batch, after the standard passes, or as it is written
  /// (passes/tree.h) if not `simplify`: its value, or with a derivation derivation->roots() roots. These are NaN if it
  /// has more variables than derivation->columns: evaluations give a failure instead.
  ExpressionGraph run(const ExpressionView& tokens, std::uint32_t expression,
                      const std::optional<Derivation>& derivation, bool simplify = true);

  /// What run() reads expressions as they are written with.
  TreeReader& reader() noexcept { return reader_; }

  /// Adds the roots of `derivation` to `to`, another graph, for the expression that node `root` of `from` computes. It
  /// has `parameters` parameters and uses only variables before derivation.columns.
  void derive(const Dag& from, NodeId root, const Derivation& derivation, std::size_t parameters, Dag& to);
  /// The same of f and its derivatives by parameters: 1 + parameters roots.
  void differentiate(const Dag& from, NodeId root, std::size_t parameters, Dag& to);

 private:
  template <class Source>
  ExpressionGraph runOf(const Source& source, std::uint32_t expression, const std::optional<Derivation>& derivation,
                        const ExpressionView& tokens);
  /// Put the expression into an empty graph, in the order of evaluation or of the tree, and its node into roots_.
  void readExpression(const ExpressionView& tokens, std::uint32_t expression);
  void readExpression(const Tree& tree, std::uint32_t expression);
  void read(const ExpressionGraph& f);
  /// Makes the roots of what was read.
  void addRoots(const Derivation& derivation, std::size_t parameters);
  ExpressionGraph graphOf(const Dag& from, NodeId root);
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
  TreeReader reader_;
  ExpressionOptimizer optimizer_;
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

/// The graph of a batch as Pipeline::standard() leaves it, or with a derivation that of the derived roots of each
/// expression, in order. Not thread-safe.
class BatchOptimizer {
 public:
  BatchOptimizer(Precision precision, Math math, std::optional<Derivation> derivation = {}, bool simplify = true);

  /// Adds the next expression, after the standard passes, or as it is written.
  void add(const ExpressionView& tokens);
  /// The same, with a derivation, of an expression that other passes made root number `root` of a graph.
  void add(const Dag& from, std::size_t root, const ExpressionView& tokens);
  /// The graph of all expressions since the last call.
  Dag take();

 private:
  std::optional<Derivation> derivation_;
  bool simplify_;
  Deriver deriver_;
  Dag merged_;
  std::uint32_t expressions_ = 0;
  Scheduler scheduler_;
  std::vector<NodeId> places_;
};

}  // namespace srjit

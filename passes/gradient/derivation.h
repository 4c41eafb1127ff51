// What is computed of an expression instead of its value: derivatives, and sums over rows of which a loss, its gradient
// or normal equations consist. All of these are roots of the expression's graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/losses.h"
#include "ir/numeric.h"
#include "passes/dag.h"
#include "passes/derivatives.h"
#include "passes/fma.h"
#include "passes/gradient/differentiate.h"
#include "passes/gradient/graph_domain.h"
#include "passes/root_members.h"
#include "passes/rules/rewriter.h"
#include "passes/schedule.h"

namespace srjit {

/// The roots of an expression f with target y, weight w and derivatives f_i, i < count.
enum class Quantity : std::uint8_t {
  kJacobian,         ///< f_0, f_1, ...
  kGradient,         ///< terms w l(f, y) and (w l') f_i, where l is the term of a loss and l' its derivative by f
  kNormalEquations,  ///< terms w (r r), (w r) f_i, and (w f_i) f_j for i <= j, by i, then j, where r = y - f
};

/// What is derived of every expression of a program. The target is read as variable `columns`, weights as the one after
/// it.
struct Derivation {
  Quantity quantity = Quantity::kJacobian;
  DerivativesBy by = DerivativesBy::kParameters;
  std::uint32_t columns = 0;  ///< variables of the data
  /// For sums:
  LossTerm term{};        ///< kGradient
  bool weighted = false;  ///< w is 1 otherwise
  /// Terms are 0 in rows where f or an f_i is not finite. A root follows that is 1 in the other rows, and with weights
  /// another that is w there.
  bool skips_invalid = false;

  /// The number of derivatives of an expression of so many parameters, and of its roots.
  std::size_t derivatives(std::size_t parameters) const noexcept {
    return by == DerivativesBy::kVariables ? columns : parameters;
  }
  std::size_t roots(std::size_t parameters) const noexcept;
  /// One more than the largest variable that roots read besides those of expressions.
  std::uint32_t variables() const noexcept {
    return quantity == Quantity::kJacobian ? 0 : columns + 1 + (weighted ? 1U : 0U);
  }

  friend bool operator==(const Derivation&, const Derivation&) = default;
};

/// Derives one expression after another, in the same memory. What it gives depends on the expression alone. Not
/// thread-safe.
class Deriver {
 public:
  Deriver(Precision precision, Math math);
  Deriver(const Deriver&) = delete;
  Deriver& operator=(const Deriver&) = delete;

  /// Adds the roots of an expression to `to`, another graph. The expression is what node `root` of `from` computes, and
  /// has so many parameters; it uses variables before derivation.columns alone. Its own nodes stay as they are, so f
  /// keeps its bits; derivatives get the rules of the math mode, and are fused; what sums add is as Quantity has it,
  /// without rules. Linear in the nodes and roots, not recursive.
  void derive(const Dag& from, NodeId root, const Derivation& derivation, std::size_t parameters, Dag& to);
  /// The same of f and its derivatives alone: 1 + derivation.derivatives() roots.
  void differentiate(const Dag& from, NodeId root, const Derivation& derivation, std::size_t parameters, Dag& to);

 private:
  void read(const Dag& from, NodeId root);
  void addDerivatives(const Derivation& derivation, std::size_t parameters);
  graph::Value slopeOf(LossTerm term, const graph::Value& target);
  void addTerms(const Derivation& derivation);
  void appendRoots(Dag& to);

  Math math_;
  Dag dag_;  ///< of one expression
  Rewriter rewriter_;
  graph::NodeMaker with_rules_, as_written_;
  Fuser fuser_;
  Differentiator differentiator_;
  Scheduler scheduler_;
  RootMembers members_;
  std::vector<NodeId> roots_;   ///< f and its derivatives, then those of the quantity
  std::vector<NodeId> places_;  ///< where a node is in another graph
};

}  // namespace srjit

#include "passes/gradient/deriver.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "ir/losses.h"
#include "ir/numbers/postfix.h"
#include "passes/pass.h"
#include "passes/working_dag.h"

namespace srjit {
namespace {

// Of a usual expression, with its derivatives and sums.
constexpr std::size_t kNodesPerNode = 4;

// A second derivative as large as this is that of a kink or of a pole. Its products with derivatives are finite in f32.
constexpr double kMostCurvature = 1e18;

/// The operands of the terms: the prediction, the target, and the weight, 1 without weights. Not in scaled units.
struct LossRow {
  graph::Value f, y, w;
};

/// `value` times a power of two; without a node for 1.
graph::Value inUnits(const graph::Value& value, double scale) {
  return scale == 1 ? value : value * graph::Value(scale);
}

/// The terms of a loss, and their derivatives by the prediction, as nodes of an expression's graph: as they are
/// written, since rules could make a term in which f does not occur. Borrows all. Not thread-safe.
class LossGraph {
 public:
  LossGraph(const DerivedLoss& loss, const LossRow& row, const graph::NodeMaker& maker);

  /// loss.terms() of them.
  std::span<const graph::Value> terms() const noexcept { return terms_; }
  /// The derivative of a term by the prediction in its units (predictionScale()), finite where the term is, unless it
  /// overflows. 0 if f is a constant, which may be a number that the loss has elsewhere, too: nothing that f is derived
  /// by has an effect.
  graph::Value slopeOf(const graph::Value& term, Differentiator& differentiator, RootMembers& members) const;
  /// What fits take for the second derivative of the only term by f, whose first is `slope`, in the same units: not
  /// negative. If the table of losses has none, the larger of the second derivative and |slope| / |f - y|, which is
  /// that of a parabola with its minimum at y (iteratively reweighted least squares: P. W. Holland, R. E. Welsch, Comm.
  /// Statist. A6(9), 1977), as far as these exist. Where that is 0, a step would have no bound, and a row that only has
  /// a slope would not count: there it is |slope| / |f - y|, too. Any curvature above 0 gives a direction in which the
  /// loss falls (J. Nocedal, S. J. Wright, "Numerical Optimization", 2nd ed., 2006, 3.4), and this gives a step as long
  /// as f - y.
  graph::Value curvature(const graph::Value& slope, Differentiator& differentiator, RootMembers& members) const;
  /// The target less its centre.
  graph::Value centredTarget() const { return row_.y - graph::Value(loss_.constants.target_centre); }
  /// The factor of the prediction in the terms.
  double predictionScale() const noexcept { return loss_.isScaled() ? 1 : loss_.constants.scale; }

 private:
  graph::Value customTerm() const;

  const DerivedLoss& loss_;
  LossRow row_;  ///< in scaled units, but for w
  const graph::NodeMaker& maker_;
  std::vector<graph::Value> terms_;
  std::optional<graph::Value> reweighting_;  ///< of the table
};

LossGraph::LossGraph(const DerivedLoss& loss, const LossRow& row, const graph::NodeMaker& maker)
    : loss_(loss), row_(row), maker_(maker) {
  terms_.reserve(loss.terms());
  row_.f = inUnits(row_.f, predictionScale());
  row_.y = inUnits(row_.y, loss.constants.scale);
  if (loss.custom) {
    terms_.push_back(customTerm());
    return;
  }
  if (loss.isScaled()) {
    eachLossTerm(loss.term, row_.f, centredTarget(), [&](const graph::Value& term) { terms_.push_back(term); });
    return;
  }
  const RowTerm<graph::Value> made = rowTerm(loss.term, row_.f, row_.y, loss.constants);
  terms_.push_back(made.value);
  reweighting_ = made.reweighting;
}

// With 0 f added, it is not finite where f is not.
graph::Value LossGraph::customTerm() const {
  const auto leaf = [&](const Token& token) {
    if (token.kind == Token::Kind::kConstant) return maker_.constant(token.value);
    return (token.index == 0 ? row_.f : token.index == 1 ? row_.y : row_.w).in(maker_);
  };
  const auto apply = [&](Op op, std::span<const NodeId> of) {
    Operands operands{};
    std::ranges::copy(of, operands.begin());
    return maker_.apply(op, operands);
  };
  const NodeId term = foldPostfix<NodeId>(loss_.custom->tokens(), leaf, apply);
  return {maker_.apply(Op::kFma, {row_.f.in(maker_), maker_.constant(0), term}), maker_};
}

graph::Value LossGraph::slopeOf(const graph::Value& term, Differentiator& differentiator, RootMembers& members) const {
  const NodeId root = term.in(maker_), f = row_.f.in(maker_);
  if (maker_.dag().node(f).kind == Token::Kind::kConstant) return {maker_.constant(0), maker_};
  members.collect(maker_.dag(), {&root, 1});
  std::array<NodeId, 1> slope{};
  differentiator.run(
      root, members.members(), maker_, [&](NodeId id) { return id == f ? 0U : Differentiator::kNotWanted; }, slope);
  return {slope[0], maker_};
}

graph::Value LossGraph::curvature(const graph::Value& slope, Differentiator& differentiator,
                                  RootMembers& members) const {
  // That of a parabola, above 0 in every row. A comparison has a node among its operands.
  if (reweighting_ && reweighting_->isLiteral()) return *reweighting_;
  const graph::Value difference = row_.f - row_.y;
  const graph::Value parabola = abs(slope) / maximum(abs(difference), loss_.constants.least_difference);
  const auto own = [&] {
    if (reweighting_) return *reweighting_;
    const graph::Value second = slopeOf(slope, differentiator, members);
    // Comparisons with NaN are false.
    return maximum(select(lt(0.0, slope * difference), parabola, 0.0),
                   select(lt(abs(second), kMostCurvature), maximum(second, 0.0), 0.0));
  };
  const graph::Value curvature = own();
  return select(lt(0.0, curvature), curvature, parabola);
}

// Derivatives by parameters are often 1.
bool isOne(const graph::Value& value) {
  if (value.isLiteral()) return value.literal() == 1;
  const Node& node = value.maker()->dag().node(value.in(*value.maker()));
  return node.kind == Token::Kind::kConstant && node.value == 1;
}

graph::Value product(const graph::Value& x, const graph::Value& y) { return isOne(x) ? y : isOne(y) ? x : x * y; }

/// The terms of sums, with their weights, in rows that count: those where f, and the term of a loss that has a domain,
/// are finite.
class SumTerms {
 public:
  SumTerms(const Derivation& derivation, const graph::NodeMaker& maker, const graph::Value& f, const graph::Value& term)
      : maker_(maker) {
    if (derivation.weighted) {
      const graph::Value weight(maker.dag().variable(derivation.columns + 1), maker);
      weight_ = inUnits(weight, derivation.loss.constants.weight_scale);
    }
    if (!derivation.skips_invalid) return;
    valid_ = graph::isFinite(derivation.loss.hasDomain() ? maximum(abs(f), abs(term)) : f);
  }

  graph::Value weighted(const graph::Value& value) const { return weight_ ? product(*weight_, value) : value; }
  void add(const graph::Value& term) { addNode(term.in(maker_)); }
  /// The products of x and each of `others`.
  void addProducts(const graph::Value& x, std::span<const graph::Value> others) {
    const NodeId by = x.in(maker_);
    const bool is_one = isOne(x);
    for (const graph::Value& other : others) {
      const NodeId node = other.in(maker_);
      addNode(is_one ? node : isOne(other) ? by : maker_.apply(Op::kMul, {by, node, 0}));
    }
  }
  std::vector<NodeId> finish() && {
    if (valid_) {
      roots_.push_back(valid_->rows.positive);
      if (weight_) add(*weight_);
    }
    return std::move(roots_);
  }

 private:
  void addNode(NodeId term) {
    roots_.push_back(valid_ ? graph::choose(valid_->rows, term, maker_.constant(0), maker_) : term);
  }

  const graph::NodeMaker& maker_;
  std::optional<graph::Value> weight_;
  std::optional<graph::Mask> valid_;
  std::vector<NodeId> roots_;
};

/// The nodes that the terms of a loss read.
LossRow rowOf(NodeId f, const Derivation& derivation, const graph::NodeMaker& maker) {
  const auto variable = [&](std::uint32_t number) { return graph::Value(maker.dag().variable(number), maker); };
  return {.f = {f, maker},
          .y = variable(derivation.columns),
          .w = derivation.weighted ? variable(derivation.columns + 1) : graph::Value(1.0)};
}

graph::Value residualOf(const LossRow& row, const LossConstants& constants) {
  return inUnits(row.y, constants.scale) - inUnits(row.f, constants.scale);
}

/// Those that depend only on the target.
void addTargetTerms(const Derivation& derivation, const LossGraph& loss, SumTerms& terms) {
  if (derivation.targetTerms() == 0) return;
  eachTargetTerm(loss.centredTarget(), [&](const graph::Value& term) { terms.add(terms.weighted(term)); });
}

/// The roots of a system of equations for the next step, with the derivatives of f.
std::vector<NodeId> stepRoots(SumTerms terms, std::span<const graph::Value> derivatives, const graph::Value& loss,
                              const graph::Value& descent, const graph::Value& curvature) {
  terms.add(terms.weighted(loss));
  const graph::Value weighted_descent = terms.weighted(descent);
  for (const graph::Value& derivative : derivatives) terms.add(product(weighted_descent, derivative));
  const graph::Value weighted_curvature = terms.weighted(curvature);
  for (std::size_t i = 0; i < derivatives.size(); ++i) {
    terms.addProducts(product(weighted_curvature, derivatives[i]), derivatives.subspan(i));
  }
  return std::move(terms).finish();
}

/// Adds the roots of `derivation`, of Quantity::kLoss, to the graph in which `f` is the expression's node.
void addLossRoots(Dag& dag, NodeId f, const Derivation& derivation) {
  const graph::NodeMaker maker(dag, nullptr);
  const LossRow row = rowOf(f, derivation, maker);
  const LossGraph loss(derivation.loss, row, maker);
  SumTerms terms(derivation, maker, row.f, loss.terms()[0]);
  for (const graph::Value& term : loss.terms()) terms.add(terms.weighted(term));
  addTargetTerms(derivation, loss, terms);
  for (const NodeId root : std::move(terms).finish()) dag.addRoot(root);
}

/// Adds the roots of an expression of `parameters` parameters whose variables the data lack.
void addRootsWithoutData(Dag& dag, const Derivation& derivation, std::size_t parameters) {
  const NodeId nothing = dag.constant(std::numeric_limits<double>::quiet_NaN());
  for (std::size_t i = 0; i < derivation.roots(parameters); ++i) dag.addRoot(nothing);
}

}  // namespace

std::size_t Derivation::roots(std::size_t parameters) const noexcept {
  const std::size_t count = derivatives(parameters);
  switch (quantity) {
    case Quantity::kJacobian:
      return count;
    case Quantity::kLoss:
      return loss.terms() + targetTerms() + counts();
    case Quantity::kGradient:
      return loss.terms() * (1 + count) + targetTerms() + counts();
    case Quantity::kNormalEquations:
    case Quantity::kReweighted:
      return 1 + count + count * (count + 1) / 2 + counts();
    case Quantity::kTangent:
      return 1 + count + (weighted ? 1 : 0);
  }
  __builtin_unreachable();
}

Deriver::Deriver(Precision precision, Math math)
    : math_(math),
      reader_(precision, math),
      optimizer_(precision, math),
      dag_(precision),
      rewriter_(dag_, ruleModeOf(math, precision)),
      with_rules_(dag_, &rewriter_),
      as_written_(dag_, nullptr),
      fuser_(dag_) {}

ExpressionGraph Deriver::run(const ExpressionView& tokens, std::uint32_t expression,
                             const std::optional<Derivation>& derivation, bool simplify) {
  return simplify ? runOf(tokens, expression, derivation, tokens)
                  : runOf(reader_.read(tokens), expression, derivation, tokens);
}

template <class Source>
ExpressionGraph Deriver::runOf(const Source& source, std::uint32_t expression,
                               const std::optional<Derivation>& derivation, const ExpressionView& tokens) {
  const std::size_t parameters = tokens.parameterCount();
  if (!derivation) {
    optimizer_.run(source, expression);
  } else if (tokens.variableCount() > derivation->columns) {
    optimizer_.run(source, expression, [&](Dag& dag, NodeId) { addRootsWithoutData(dag, *derivation, parameters); });
  } else if (derivation->quantity == Quantity::kLoss) {
    optimizer_.run(source, expression, [&](Dag& dag, NodeId f) { addLossRoots(dag, f, *derivation); });
  } else {
    readExpression(source, expression);
    addRoots(*derivation, parameters);
    sweep_.run(dag_, roots_);
    return {dag_, roots_, scheduler_.run(dag_, roots_, sweep_.members().size()), sweep_.uses()};
  }
  return optimizer_.graph();
}

void Deriver::readExpression(const ExpressionView& tokens, std::uint32_t expression) {
  optimizer_.run(tokens, expression);
  read(optimizer_.graph());
}

// A tree leaves only constants behind, which have no effect here, so nothing is copied.
void Deriver::readExpression(const Tree& tree, std::uint32_t expression) {
  dag_.clear(kNodesPerNode * tree.nodes.size());
  roots_.assign(1, addTree(tree, expression, dag_, places_));
}

void Deriver::addRoots(const Derivation& derivation, std::size_t parameters) {
  if (derivation.quantity != Quantity::kLoss) addDerivatives(derivation, parameters);
  switch (derivation.quantity) {
    case Quantity::kJacobian:
      roots_.erase(roots_.begin());
      break;
    case Quantity::kLoss:
    case Quantity::kGradient:
      addGradientTerms(derivation);
      break;
    case Quantity::kNormalEquations:
    case Quantity::kReweighted:
      addStepTerms(derivation);
      break;
    case Quantity::kTangent:
      addTangent(derivation);
      break;
  }
}

void Deriver::derive(const Dag& from, NodeId root, const Derivation& derivation, std::size_t parameters, Dag& to) {
  read(graphOf(from, root));
  addRoots(derivation, parameters);
  appendRoots(to);
}

void Deriver::differentiate(const Dag& from, NodeId root, std::size_t parameters, Dag& to) {
  read(graphOf(from, root));
  addDerivatives({}, parameters);
  appendRoots(to);
}

// Valid until roots_ or members_ change.
ExpressionGraph Deriver::graphOf(const Dag& from, NodeId root) {
  members_.collect(from, {&root, 1});
  roots_.assign(1, root);
  return {from, roots_, members_.members(), members_.uses()};
}

// In the order of evaluation, which depends only on the expression: derivatives are added in the order of nodes.
void Deriver::read(const ExpressionGraph& f) {
  dag_.clear(kNodesPerNode * f.members.size());
  const NodeId root = f.root();
  dag_.copyNodes(f.dag, scheduler_.run(f.dag, {&root, 1}, f.members.size()), places_);
  roots_.assign(1, places_[root]);
}

void Deriver::addDerivatives(const Derivation& derivation, std::size_t parameters) {
  const auto wanted = [&](NodeId id) {
    const Node& node = dag_.node(id);
    if (derivation.by == DerivativesBy::kVariables) {
      return node.kind == Token::Kind::kVariable ? node.index : Differentiator::kNotWanted;
    }
    if (node.kind != Token::Kind::kParameter) return Differentiator::kNotWanted;
    const ParameterSource& parameter = dag_.parameters()[node.index];
    const bool is_own = !parameter.isLiteral() && parameter.index < parameters;
    return is_own ? parameter.index : Differentiator::kNotWanted;
  };
  const auto first = static_cast<NodeId>(dag_.size());
  std::vector<NodeId> all(first);
  std::iota(all.begin(), all.end(), NodeId{0});
  const NodeId f = roots_[0];
  roots_.resize(1 + derivation.derivatives(parameters));
  differentiator_.run(f, all, with_rules_, wanted, std::span(roots_).subspan(1));
  if (math_ != Math::kStrict) fuseDerivatives(first);
  if (!derivation.skips_invalid) return;
  // Those that overflow, too.
  for (std::size_t i = 1; i < roots_.size(); ++i) {
    if (dag_.node(roots_[i]).kind == Token::Kind::kConstant) continue;
    roots_[i] = graph::finiteWith({roots_[i], as_written_}, {f, as_written_}).in(as_written_);
  }
}

void Deriver::fuseDerivatives(NodeId first) {
  fuser_.findSumsFrom(first);
  for (NodeId& derivative : std::span(roots_).subspan(1)) {
    if (derivative < first || !fuser_.hasSums(derivative)) continue;
    members_.collect(dag_, {&derivative, 1}, first);
    derivative = fuser_.fuse(derivative, members_.members(), members_.uses(), first);
  }
}

std::vector<graph::Value> Deriver::derivatives(double scale) const {
  std::vector<graph::Value> derivatives;
  for (const NodeId root : std::span(roots_).subspan(1)) {
    derivatives.push_back(inUnits(graph::Value(root, as_written_), scale));
  }
  return derivatives;
}

void Deriver::addStepTerms(const Derivation& derivation) {
  const LossRow row = rowOf(roots_[0], derivation, as_written_);
  if (derivation.quantity == Quantity::kNormalEquations) {
    const graph::Value residual = residualOf(row, derivation.loss.constants);
    const graph::Value square = residual * residual;
    const std::vector<graph::Value> by = derivatives(derivation.loss.constants.scale);
    roots_ = stepRoots({derivation, as_written_, row.f, square}, by, square, residual, 1.0);
    return;
  }
  const LossGraph loss(derivation.loss, row, as_written_);
  const std::vector<graph::Value> by = derivatives(loss.predictionScale());
  SumTerms terms(derivation, as_written_, row.f, loss.terms()[0]);
  const graph::Value slope = loss.slopeOf(loss.terms()[0], differentiator_, members_);
  const graph::Value curvature = loss.curvature(slope, differentiator_, members_);
  roots_ = stepRoots(std::move(terms), by, loss.terms()[0], slope * -0.5, curvature * 0.5);
}

void Deriver::addTangent(const Derivation& derivation) {
  const LossConstants& constants = derivation.loss.constants;
  const LossRow row = rowOf(roots_[0], derivation, as_written_);
  const std::vector<graph::Value> by = derivatives(constants.scale);
  roots_.assign(1, residualOf(row, constants).in(as_written_));
  for (const graph::Value& derivative : by) roots_.push_back(derivative.in(as_written_));
  if (derivation.weighted) roots_.push_back(inUnits(row.w, constants.weight_scale).in(as_written_));
}

void Deriver::addGradientTerms(const Derivation& derivation) {
  const LossRow row = rowOf(roots_[0], derivation, as_written_);
  const LossGraph loss(derivation.loss, row, as_written_);
  const std::vector<graph::Value> by = derivatives(loss.predictionScale());
  SumTerms terms(derivation, as_written_, row.f, loss.terms()[0]);
  for (const graph::Value& term : loss.terms()) terms.add(terms.weighted(term));
  std::vector<graph::Value> slopes;
  if (!by.empty()) {
    for (const graph::Value& term : loss.terms()) {
      slopes.push_back(terms.weighted(loss.slopeOf(term, differentiator_, members_)));
    }
  }
  for (const graph::Value& derivative : by) {
    for (const graph::Value& slope : slopes) terms.add(product(slope, derivative));
  }
  addTargetTerms(derivation, loss, terms);
  roots_ = std::move(terms).finish();
}

void Deriver::appendRoots(Dag& to) {
  sweep_.run(dag_, roots_);
  ExpressionGraph{dag_, roots_, sweep_.members(), sweep_.uses()}.appendTo(to, places_);
}

BatchOptimizer::BatchOptimizer(Precision precision, Math math, std::optional<Derivation> derivation, bool simplify)
    : derivation_(std::move(derivation)), simplify_(simplify), deriver_(precision, math), merged_(precision) {}

void BatchOptimizer::add(const ExpressionView& tokens) {
  deriver_.run(tokens, expressions_++, derivation_, simplify_).appendTo(merged_, places_);
}

void BatchOptimizer::add(const Dag& from, std::size_t root, const ExpressionView& tokens) {
  ++expressions_;
  if (tokens.variableCount() > derivation_->columns) {
    return addRootsWithoutData(merged_, *derivation_, tokens.parameterCount());
  }
  deriver_.derive(from, from.roots()[root], *derivation_, tokens.parameterCount(), merged_);
}

Dag BatchOptimizer::take() {
  expressions_ = 0;
  // In the order of evaluation, with constants as parameters; all nodes are live.
  Dag scheduled(merged_.precision());
  const std::span<const NodeId> order = scheduler_.run(merged_, merged_.roots(), merged_.size());
  merged_.renumber(order, Dag::Literals::kParameters, scheduled, places_);
  merged_.clear(0);
  return scheduled;
}

// The parameters of an expression are those that the table still has; some may have no effect by now.
void differentiate(WorkingDag& work, const PassContext& context) {
  const Dag from = work.result();
  std::vector<std::uint32_t> parameters(from.roots().size());
  for (const ParameterSource& parameter : work.dag().parameters()) {
    if (parameter.isLiteral()) continue;
    std::uint32_t& count = parameters[parameter.expression];
    count = std::max(count, parameter.index + 1);
  }
  Deriver deriver(from.precision(), context.math);
  Dag derived(from.precision());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    deriver.differentiate(from, from.roots()[i], parameters[i], derived);
  }
  work = WorkingDag(std::move(derived));
}

}  // namespace srjit

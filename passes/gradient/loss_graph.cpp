#include "passes/gradient/loss_graph.h"

#include <algorithm>
#include <array>

#include "ir/losses.h"
#include "ir/numbers/postfix.h"

namespace srjit {
namespace {

// A second derivative as large as this is that of a kink or of a pole. Its products with derivatives are finite in f32.
constexpr double kMostCurvature = 1e18;

}  // namespace

graph::Value inUnits(const graph::Value& value, double scale) {
  return scale == 1 ? value : value * graph::Value(scale);
}

LossGraph::LossGraph(const DerivedLoss& loss, const LossRow& row, const graph::NodeMaker& maker)
    : loss_(loss), row_(row), maker_(maker) {
  terms_.reserve(loss.terms());
  row_.f = inUnits(row_.f, predictionScale());
  row_.y = inUnits(row_.y, loss.constants.scale);
  if (loss.custom) {
    terms_.push_back(customTerm());
    return;
  }
  const auto add = [&](LossTerm term) {
    RowTerm<graph::Value> made = rowTerm(term, row_.f, row_.y, loss.constants);
    terms_.push_back(made.value);
    reweighting_ = made.reweighting;
  };
  if (loss.is_scaled) {
    for (const LossTerm term : kScaledTerms) add(term);
  } else {
    add(loss.term);
  }
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

}  // namespace srjit

#include "passes/gradient/linear_parameters.h"

#include <algorithm>
#include <optional>
#include <ranges>

#include "ir/op.h"
#include "passes/operator_facts.h"

namespace srjit {
namespace {

constexpr std::uint32_t kWordBits = 64;
constexpr std::uint32_t kNoMember = ~0U;

void include(std::span<std::uint64_t> set, std::span<const std::uint64_t> other) {
  for (std::size_t k = 0; k < set.size(); ++k) set[k] |= other[k];
}

bool intersect(std::span<const std::uint64_t> x, std::span<const std::uint64_t> y) {
  for (std::size_t k = 0; k < x.size(); ++k) {
    if ((x[k] & y[k]) != 0) return true;
  }
  return false;
}

}  // namespace

std::span<const std::uint32_t> LinearParameters::find(const ExpressionGraph& graph, std::uint32_t parameters) {
  collectParameters(graph, parameters);
  sweep(graph);
  choose(parameters);
  return found_;
}

std::span<LinearParameters::Word> LinearParameters::setIn(std::vector<Word>& sets, NodeId id) const {
  return std::span(sets).subspan(places_[id] * words_, words_);
}

void LinearParameters::collectParameters(const ExpressionGraph& graph, std::uint32_t parameters) {
  words_ = (std::size_t{parameters} + kWordBits - 1) / kWordBits;
  places_.resize(std::max(places_.size(), graph.dag.size()));
  below_.assign(graph.members.size() * words_, 0);
  own_.assign(parameters, kNoMember);
  for (std::uint32_t place = 0; place < graph.members.size(); ++place) {
    const NodeId id = graph.members[place];
    const Node& node = graph.dag.node(id);
    places_[id] = place;
    if (node.kind == Token::Kind::kParameter) {
      const ParameterSource& parameter = graph.dag.parameters()[node.index];
      if (parameter.isLiteral() || parameter.index >= parameters) continue;
      setIn(below_, id)[parameter.index / kWordBits] = Word{1} << (parameter.index % kWordBits);
      own_[parameter.index] = place;
    }
    for (const NodeId operand : node.inputs()) include(setIn(below_, id), setIn(below_, operand));
  }
}

// The chain rule: the derivative by an operand contains that by the node, and the node's by the operand.
void LinearParameters::sweep(const ExpressionGraph& graph) {
  above_.assign(below_.size(), 0);
  reached_.assign(graph.members.size(), 0);
  reached_[places_[graph.root()]] = 1;
  for (const NodeId id : graph.members | std::views::reverse) {
    const Node& node = graph.dag.node(id);
    if (!node.isOperator() || reached_[places_[id]] == 0) continue;
    for (int k = 0; k < node.arity(); ++k) {
      const std::optional<std::uint8_t> partial = operandsOfPartial(node.op, k);
      if (!partial) continue;
      const NodeId operand = node.operands[static_cast<std::size_t>(k)];
      reached_[places_[operand]] = 1;
      include(setIn(above_, operand), setIn(above_, id));
      for (int other = 0; other < node.arity(); ++other) {
        if ((*partial >> other & 1U) == 0) continue;
        include(setIn(above_, operand), setIn(below_, node.operands[static_cast<std::size_t>(other)]));
      }
    }
  }
}

void LinearParameters::choose(std::uint32_t parameters) {
  excluded_.assign(words_, 0);
  found_set_.assign(words_, 0);
  found_.clear();
  for (std::uint32_t i = 0; i < parameters; ++i) {
    if (own_[i] == kNoMember || reached_[own_[i]] == 0) continue;
    const std::span<const Word> contained = std::span(above_).subspan(own_[i] * words_, words_);
    const std::size_t word = i / kWordBits;
    const Word bit = Word{1} << (i % kWordBits);
    if (((excluded_[word] | contained[word]) & bit) != 0 || intersect(contained, found_set_)) continue;
    found_.push_back(i);
    found_set_[word] |= bit;
    include(excluded_, contained);
  }
}

}  // namespace srjit

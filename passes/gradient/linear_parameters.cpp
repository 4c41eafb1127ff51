#include "passes/gradient/linear_parameters.h"

#include <algorithm>
#include <cstddef>

namespace srjit {
namespace {

constexpr std::uint32_t kWordBits = 64;

bool isZero(const Node& node) { return node.kind == Token::Kind::kConstant && node.value == 0; }

}  // namespace

std::span<const std::uint32_t> LinearParameters::find(const Dag& dag, std::span<const NodeId> derivatives) {
  findContained(dag, derivatives);
  excluded_.assign(words_, 0);
  found_set_.assign(words_, 0);
  found_.clear();
  for (std::uint32_t i = 0; i < derivatives.size(); ++i) {
    if (isZero(dag.node(derivatives[i]))) continue;
    const std::span<const Word> contained = containedIn(derivatives[i]);
    const std::size_t word = i / kWordBits;
    const Word bit = Word{1} << (i % kWordBits);
    bool joins = ((excluded_[word] | contained[word]) & bit) == 0;
    for (std::size_t k = 0; k < words_; ++k) joins = joins && (contained[k] & found_set_[k]) == 0;
    if (!joins) continue;
    found_.push_back(i);
    found_set_[word] |= bit;
    for (std::size_t k = 0; k < words_; ++k) excluded_[k] |= contained[k];
  }
  return found_;
}

void LinearParameters::findContained(const Dag& dag, std::span<const NodeId> derivatives) {
  members_.collect(dag, derivatives);
  const std::span<const NodeId> members = members_.members();
  words_ = (derivatives.size() + kWordBits - 1) / kWordBits;
  places_.resize(std::max(places_.size(), dag.size()));
  contained_.assign(members.size() * words_, 0);
  for (std::uint32_t place = 0; place < members.size(); ++place) {
    const Node& node = dag.node(members[place]);
    places_[members[place]] = place;
    Word* const set = contained_.data() + place * words_;
    if (node.kind == Token::Kind::kParameter) {
      const ParameterSource& parameter = dag.parameters()[node.index];
      const bool is_own = !parameter.isLiteral() && parameter.index < derivatives.size();
      if (is_own) set[parameter.index / kWordBits] = Word{1} << (parameter.index % kWordBits);
    }
    for (const NodeId operand : node.inputs()) {
      const std::span<const Word> other = containedIn(operand);
      for (std::size_t k = 0; k < words_; ++k) set[k] |= other[k];
    }
  }
}

std::span<const LinearParameters::Word> LinearParameters::containedIn(NodeId id) const {
  return std::span(contained_).subspan(places_[id] * words_, words_);
}

}  // namespace srjit

#include "compiler/kernels/sharing_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include <tbb/parallel_for.h>
#include <tbb/parallel_sort.h>

#include "compiler/lowering/code_weights.h"
#include "ir/mix.h"
#include "ir/ops.h"

namespace srjit {
namespace {

// Measured on populations of a search, of random trees and of enumerated ones: more subtrees change the order little.
constexpr std::size_t kSubtrees = 8;

struct Subtree {
  std::uint64_t hash;  ///< 0 of one with parameters, while an expression is walked
  std::uint32_t weight;
};
using Signature = std::array<std::uint64_t, kSubtrees>;

Subtree leaf(const Token& token) {
  const auto kind = static_cast<std::uint64_t>(token.kind) + 1;
  switch (token.kind) {
    case Token::Kind::kParameter:
      return {0, 0};
    case Token::Kind::kVariable:
      return {combine(kind, token.index), 0};
    default:
      return {combine(kind, std::bit_cast<std::uint64_t>(token.value)), 0};
  }
}

Subtree operation(const Token& token, std::span<Subtree> operands, const CodeWeights& weights) {
  Subtree result{combine(0, nameHashOf(token.op)), weights[static_cast<std::size_t>(token.op)]};
  if (infoOf(token.op).has(OpProps::kCommutative) && operands[0].hash > operands[1].hash) {
    std::swap(operands[0], operands[1]);
  }
  bool has_parameters = false;
  for (const Subtree& operand : operands) {
    has_parameters = has_parameters || operand.hash == 0;
    result.hash = combine(result.hash, operand.hash);
    result.weight += operand.weight;
  }
  if (has_parameters) result.hash = 0;
  return result;
}

/// The different subtrees that are operations without parameters, most costly first.
std::vector<Subtree> subtreesOf(const ExpressionView& expression, const CodeWeights& weights) {
  std::vector<Subtree> stack;
  std::vector<Subtree> found;
  for (const Token token : expression) {
    if (token.kind != Token::Kind::kOp) {
      stack.push_back(leaf(token));
      continue;
    }
    const std::size_t below = stack.size() - static_cast<std::size_t>(token.arity());
    const Subtree result = operation(token, std::span(stack).subspan(below), weights);
    stack.resize(below);
    stack.push_back(result);
    if (result.hash != 0) found.push_back(result);
  }
  std::sort(found.begin(), found.end(), [](const Subtree& a, const Subtree& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.hash < b.hash;
  });
  const auto same = [](const Subtree& a, const Subtree& b) { return a.hash == b.hash; };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  return found;
}

/// Which subtrees occur in more than one expression of a batch: a hash table with open addressing, whose entries are
/// hashes but for the lowest bit, which tells whether there was another one. (Subtrees whose hash is 0 or 1 count as if
/// they occurred once less.)
class Repeated {
 public:
  explicit Repeated(const std::vector<std::vector<Subtree>>& subtrees) {
    std::size_t count = 0;
    for (const auto& own : subtrees) count += own.size();
    places_.resize(std::bit_ceil(2 * count + 1));
    for (const auto& own : subtrees) {
      for (const Subtree& subtree : own) {
        std::uint64_t& place = places_[find(subtree.hash)];
        place = (subtree.hash & ~kAgain) | (place != 0 ? kAgain : 0);
      }
    }
  }

  bool contains(std::uint64_t hash) const { return (places_[find(hash)] & kAgain) != 0; }

 private:
  static constexpr std::uint64_t kAgain = 1;

  /// Where the hash is, or where it would be: then 0 is there.
  std::size_t find(std::uint64_t hash) const {
    const std::size_t mask = places_.size() - 1;
    std::size_t at = hash >> 1 & mask;
    while (places_[at] != 0 && ((places_[at] ^ hash) & ~kAgain) != 0) at = (at + 1) & mask;
    return at;
  }

  std::vector<std::uint64_t> places_;
};

}  // namespace

std::vector<std::uint32_t> orderedBySharing(const Population& expressions, std::span<const std::uint32_t> chosen,
                                            Precision precision, Math math) {
  const CodeWeights weights = codeWeights(precision, math);
  std::vector<std::vector<Subtree>> subtrees(chosen.size());
  tbb::parallel_for(std::size_t{0}, chosen.size(),
                    [&](std::size_t i) { subtrees[i] = subtreesOf(expressions[chosen[i]], weights); });
  const Repeated repeated(subtrees);
  std::vector<Signature> signatures(chosen.size());
  tbb::parallel_for(std::size_t{0}, chosen.size(), [&](std::size_t i) {
    std::size_t count = 0;
    for (const Subtree& subtree : subtrees[i]) {
      if (repeated.contains(subtree.hash)) signatures[i][count++] = subtree.hash;
      if (count == kSubtrees) break;
    }
  });
  std::vector<std::uint32_t> places(chosen.size()), order;
  std::iota(places.begin(), places.end(), 0U);
  tbb::parallel_sort(places.begin(), places.end(), [&](std::uint32_t a, std::uint32_t b) {
    return signatures[a] != signatures[b] ? signatures[a] < signatures[b] : a < b;
  });
  order.reserve(chosen.size());
  for (const std::uint32_t place : places) order.push_back(chosen[place]);
  return order;
}

}  // namespace srjit

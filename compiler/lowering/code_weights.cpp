#include "compiler/lowering/code_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <optional>

#include <tbb/parallel_for.h>
#include <tbb/parallel_sort.h>

#include "ir/functions/programs.h"
#include "ir/mix.h"
#include "ir/ops.h"
#include "ir/rows.h"

namespace srjit {
namespace {

// The domain that counts instructions: an estimate of the cost of a row of ops.def. Its numbers, words and
// truth values have no value.
struct Weight {
  Weight(double) {}
  Weight(std::int32_t) {}
};

// The current count and its mode, since the domain's operators take no argument for them.
struct Count {
  Precision precision = Precision::kF32;
  bool approximate = false;
  TargetKind target = TargetKind::kDevice;
  unsigned instructions = 0;

  bool isOnHost() const { return target == TargetKind::kHost; }
  // min.NaN and max.NaN of PTX: whether the minimum and the maximum are one instruction.
  bool propagatesNan() const { return !isOnHost() && !isDouble(precision); }
  unsigned division() const { return isOnHost() ? 1 : approximate ? 2 : kRoundedDivision; }
  static constexpr unsigned kRoundedDivision = 20;
};
thread_local Count current;

Weight add(unsigned instructions) {
  current.instructions += instructions;
  return 0.0;
}

// As in ir/functions/domain.def. A change of sign is part of the instruction that reads the number, and so are words.
Weight operator+(Weight, Weight) { return add(1); }
Weight operator-(Weight, Weight) { return add(1); }
Weight operator*(Weight, Weight) { return add(1); }
Weight operator/(Weight, Weight) { return add(current.division()); }
Weight operator-(Weight x) { return x; }
Weight operator&(Weight, Weight) { return add(1); }
Weight lt(Weight, Weight) { return add(1); }
Weight le(Weight, Weight) { return add(1); }
Weight eq(Weight, Weight) { return add(1); }
Weight select(Weight, Weight, Weight) { return add(1); }
Weight atMost(Weight, double) { return add(current.propagatesNan() ? 1 : 2); }
Weight atLeast(Weight, double) { return add(current.propagatesNan() ? 1 : 2); }
template <std::size_t kCount, class Rare>
std::array<Weight, kCount> rarely(Weight, const std::array<Weight, kCount>& usual, const Rare&) {
  add(1);
  return usual;
}
Weight shiftLeft(Weight, int) { return add(1); }
Weight shiftRight(Weight, int) { return add(1); }
Weight upperWord(Weight x) { return x; }
Weight lowerWord(Weight x) { return x; }
Weight withWords(Weight x, Weight, Weight) { return x; }

// The instructions of an operation of IEEE 754.
unsigned weightOf(Function operation) {
  switch (operation) {
    case Function::k_abs:
      return 0;
    case Function::k_minimum:
    case Function::k_maximum:
      return current.propagatesNan() ? 1 : 8;
    case Function::k_sqrt:
      return current.division();
    default:
      return 1;
  }
}

// The instructions of the approximate form that `fast` has of a function; none where it uses the precise form.
std::optional<unsigned> weightOfApproximation(Function function) {
  switch (function) {
    case Function::k_sin:
    case Function::k_cos:
    case Function::k_tanh:
      return current.isOnHost() ? std::nullopt : std::optional(1U);
    case Function::k_sqrt:
    case Function::k_exp2:
    case Function::k_log2:
      return 1;
    case Function::k_exp:
    case Function::k_log:
    case Function::k_log10:
      return 2;
    case Function::k_tan:
      return current.isOnHost() ? std::nullopt : std::optional(4U);
    case Function::k_pow:
      return 14;
    default:
      return {};
  }
}

Weight call(Function function, auto...) {
  const bool was_approximate = current.approximate;
  if (was_approximate) {
    if (const std::optional<unsigned> weight = weightOfApproximation(function)) return add(*weight);
  }
  switch (infoOf(function).code) {
    case FunctionCode::kOperation:
      return add(weightOf(function));
    case FunctionCode::kProgram:
      current.approximate = false;
      functions::apply<Weight>(current.precision, function, 0.0, 0.0);
      current.approximate = was_approximate;
      return 0.0;
  }
  __builtin_unreachable();
}

#define SRJIT_VALUE Weight
#define SRJIT_CALL call
#include "ir/functions/define.def"

template <class Count>
std::size_t sumOverTokens(const ExpressionView& expression, std::size_t leaf, const Count& count) {
  std::size_t all = 0;
  for (const Token token : expression) {
    all += token.kind == Token::Kind::kOp ? count(static_cast<std::size_t>(token.op)) : leaf;
  }
  return all;
}

}  // namespace

unsigned codeWeight(Op op, Precision precision, Math math, TargetKind target) {
  current = {precision, isApproximate(math, precision), target};
  applyRow<Weight>(op, 0.0, 0.0, 0.0);
  return current.instructions;
}

CodeWeights codeWeights(Precision precision, Math math, TargetKind target) {
  CodeWeights weights{};
  for (std::size_t op = 0; op < kOpCount; ++op) weights[op] = codeWeight(static_cast<Op>(op), precision, math, target);
  return weights;
}

std::size_t instructionsOf(const ExpressionView& expression, const CodeWeights& weights) {
  return sumOverTokens(expression, 0, [&](std::size_t op) -> std::size_t { return weights[op]; });
}

std::size_t deviceCodeLength(const ExpressionView& expression, const CodeWeights& weights) {
  return sumOverTokens(expression, 1, [&](std::size_t op) { return std::max<std::size_t>(1, weights[op]); });
}

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

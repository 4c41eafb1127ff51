#include "tools/search/trees/variation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>

namespace srjit::search {
namespace {

constexpr double kConstantShare = 0.3;  // of new leaves
constexpr double kOperatorShare = 0.9;  // of the roots of subtrees that crossover exchanges
constexpr std::size_t kGraftMost = 8;   // complexity of a subtree that a mutation makes
constexpr double kUsualConstants[] = {1, 2, 3, 4, 0.5, std::numbers::pi};
constexpr double kUsualExponents[] = {2, 3, 4, -1, -2, 0.5};
constexpr double kDefinedShare = 0.15;  // of mutations that put a definition above a subtree, and of random subtrees
constexpr double kExponentShare = 0.5;  // of new operands of a power that are one of these

template <class Item>
const Item& oneOf(std::span<const Item> items, Random& random) {
  return items[random.below(items.size())];
}

/// Standard normal, as a sum of uniform numbers of 16 bits (Irwin-Hall, n = 12): the same on every machine.
double normal(Random& random) {
  std::uint64_t sum = 0;
  for (int draw = 0; draw < 3; ++draw) {
    for (std::uint64_t bits = random.next(), part = 0; part < 4; ++part, bits >>= 16) sum += bits & 0xffff;
  }
  return static_cast<double>(sum) * 0x1p-16 - 6;
}

double newConstant(Random& random) {
  if (random.chance(0.5)) return oneOf<double>(kUsualConstants, random);
  return normal(random) * (random.chance(0.5) ? 1 : 10);
}

/// Gives its complexity.
std::size_t putLeaf(Trees& to, const Grammar& grammar, Random& random) {
  if (random.chance(kConstantShare)) {
    to.put(kConstantCode, newConstant(random));
    return grammar.options().constant_complexity;
  }
  to.put(variableCode(static_cast<std::uint32_t>(random.below(grammar.variables()))));
  return grammar.options().variable_complexity;
}

/// An operator, two times of three one of two operands where there are some; none if the grammar has none.
std::optional<Op> newOperator(const Grammar& grammar, Random& random) {
  std::array<std::size_t, kMaxArity + 1> chances{};
  constexpr std::array<std::size_t, kMaxArity + 1> kChances = {0, 3, 6, 1};
  for (std::size_t arity = 1; arity <= kMaxArity; ++arity) {
    if (!grammar.operatorsOf(static_cast<int>(arity)).empty()) chances[arity] = kChances[arity];
  }
  std::uint64_t at = random.below(std::accumulate(chances.begin(), chances.end(), std::size_t{0}));
  for (std::size_t arity = 1; arity <= kMaxArity; ++arity) {
    if (at < chances[arity]) return oneOf(grammar.operatorsOf(static_cast<int>(arity)), random);
    at -= chances[arity];
  }
  return {};
}

/// Whether the second operand of a new operator is a usual exponent.
bool hasUsualExponent(Op op, Random& random) { return op == Op::kPow && random.chance(kExponentShare); }

void putExponent(Trees& to, Random& random) { to.put(kConstantCode, oneOf<double>(kUsualExponents, random)); }

/// A definition whose arguments are `argument` at a random place, and random leaves.
void putDefined(Trees& to, const Grammar& grammar, const std::optional<TreeView>& argument, Random& random) {
  const Definition& definition = oneOf<Definition>(grammar.options().definitions, random);
  Trees arguments;
  const std::size_t place = random.below(definition.arity);
  for (std::size_t k = 0; k < definition.arity; ++k) {
    if (k == place && argument) {
      arguments.put(*argument);
    } else {
      putLeaf(arguments, grammar, random);
    }
    arguments.close();
  }
  for (const Token& token : definition.tokens) {
    if (token.kind == Token::Kind::kVariable) {
      to.put(arguments[token.index]);
    } else {
      to.put(codeOf(token), token.value);
    }
  }
}

bool isDefined(const Grammar& grammar, double chance, Random& random) {
  return !grammar.options().definitions.empty() && random.chance(chance);
}

/// The last token of a random subtree.
std::size_t pickSubtree(const TreeView& tree, Random& random) {
  const bool of_operator = random.chance(kOperatorShare);
  const std::size_t start = random.below(tree.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {  // the next one of the wanted kind
    const std::size_t at = start + i < tree.size() ? start + i : start + i - tree.size();
    if ((tree.codes[at] > 0) == of_operator) return at;
  }
  return start;
}

Edit changeToken(const TreeView& tree, const Grammar& grammar, Random& random, Trees& memory) {
  const std::size_t at = random.below(tree.size());
  const int arity = arityOf(tree.codes[at]);
  if (arity == 0) {
    putLeaf(memory, grammar, random);
  } else {
    const std::span<const Op> others = grammar.operatorsOf(arity);
    if (others.empty()) return {};
    memory.put(codeOf(oneOf(others, random)));
  }
  return {at, at + 1, memory.open()};
}

Edit changeConstant(const TreeView& tree, Random& random, Trees& memory) {
  const std::size_t start = random.below(tree.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const std::size_t at = (start + i) % tree.size();
    if (tree.codes[at] != kConstantCode) continue;
    double value = tree.constants[at];
    const double choice = random.unit();
    if (choice < 0.6) {
      value *= std::exp2(normal(random) * 0.5);
    } else if (choice < 0.7) {
      value = -value;
    } else if (choice < 0.85) {
      value = std::rint(value);
    } else {
      value = newConstant(random);
    }
    memory.put(kConstantCode, value);
    return {at, at + 1, memory.open()};
  }
  return {};
}

Edit changeSubtree(const TreeView& tree, const Grammar& grammar, Random& random, Trees& memory) {
  const std::size_t last = pickSubtree(tree, random);
  putRandomTree(memory, grammar, 1 + random.below(kGraftMost), random);
  return {subtreeBegin(tree.codes, last), last + 1, memory.open()};
}

Edit insertOperator(const TreeView& tree, const Grammar& grammar, Random& random, Trees& memory) {
  const std::optional<Op> op = newOperator(grammar, random);
  if (!op) return {};
  const std::size_t last = random.below(tree.size()), begin = subtreeBegin(tree.codes, last);
  const int arity = arityOf(*op);
  const int place = static_cast<int>(random.below(static_cast<std::uint64_t>(arity)));
  for (int i = 0; i < arity; ++i) {
    if (i == place) {
      memory.put(tree.part(begin, last + 1));
    } else if (i == 1 && hasUsualExponent(*op, random)) {
      putExponent(memory, random);
    } else {
      putRandomTree(memory, grammar, random.chance(0.7) ? 1 : 3, random);
    }
  }
  memory.put(codeOf(*op));
  return {begin, last + 1, memory.open()};
}

Edit deleteOperator(const TreeView& tree, Random& random) {
  const std::size_t last = pickSubtree(tree, random);
  const int arity = arityOf(tree.codes[last]);
  if (arity == 0) return {};
  std::size_t kept = last - 1;
  for (std::uint64_t i = random.below(static_cast<std::uint64_t>(arity)); i > 0; --i) {
    kept = subtreeBegin(tree.codes, kept) - 1;
  }
  return {subtreeBegin(tree.codes, last), last + 1, tree.part(subtreeBegin(tree.codes, kept), kept + 1)};
}

Edit exchangeOperands(const TreeView& tree, Random& random, Trees& memory) {
  const std::size_t last = pickSubtree(tree, random);
  if (arityOf(tree.codes[last]) != 2) return {};
  const std::size_t begin = subtreeBegin(tree.codes, last), middle = subtreeBegin(tree.codes, last - 1);
  memory.put(tree.part(middle, last));
  memory.put(tree.part(begin, middle));
  return {begin, last, memory.open()};
}

Edit hoistSubtree(const TreeView& tree, Random& random) {
  const std::size_t last = pickSubtree(tree, random);
  return {0, tree.size(), tree.part(subtreeBegin(tree.codes, last), last + 1)};
}

}  // namespace

std::size_t putRandomTree(Trees& to, const Grammar& grammar, std::size_t complexity, Random& random) {
  const std::size_t leaf = std::min(grammar.options().variable_complexity, grammar.options().constant_complexity);
  if (complexity > leaf && isDefined(grammar, kDefinedShare, random)) {
    const std::size_t before = to.open().size();
    putDefined(to, grammar, {}, random);
    std::size_t taken = 0;
    for (const std::int32_t code : to.open().codes.subspan(before)) taken += grammar.complexityOf(code);
    return taken;
  }
  const std::optional<Op> op = complexity > leaf ? newOperator(grammar, random) : std::nullopt;
  if (!op) return putLeaf(to, grammar, random);
  std::size_t taken = grammar.complexityOf(codeOf(*op));
  int operands = arityOf(*op);
  const bool has_exponent = hasUsualExponent(*op, random);
  if (has_exponent) {
    taken += grammar.options().constant_complexity;
    --operands;
  }
  while (operands-- > 0) {
    const std::size_t kept = taken + static_cast<std::size_t>(operands) * leaf;  // of those that follow
    const std::size_t room = complexity > kept ? complexity - kept : 1;
    taken += putRandomTree(to, grammar, operands == 0 ? room : 1 + random.below(room), random);
  }
  if (has_exponent) putExponent(to, random);
  to.put(codeOf(*op));
  return taken;
}

Edit crossover(const TreeView& mother, const TreeView& father, Random& random) {
  const std::size_t out = pickSubtree(mother, random), in = pickSubtree(father, random);
  return {subtreeBegin(mother.codes, out), out + 1, father.part(subtreeBegin(father.codes, in), in + 1)};
}

Edit mutation(const TreeView& tree, const Grammar& grammar, Random& random, Trees& memory) {
  memory.drop();
  if (isDefined(grammar, kDefinedShare, random)) {
    const std::size_t last = random.below(tree.size()), begin = subtreeBegin(tree.codes, last);
    putDefined(memory, grammar, tree.part(begin, last + 1), random);
    return {begin, last + 1, memory.open()};
  }
  const double choice = random.unit();
  if (choice < 0.20) return changeToken(tree, grammar, random, memory);
  if (choice < 0.35) return changeConstant(tree, random, memory);
  if (choice < 0.55) return changeSubtree(tree, grammar, random, memory);
  if (choice < 0.75) return insertOperator(tree, grammar, random, memory);
  if (choice < 0.90) return deleteOperator(tree, random);
  if (choice < 0.97) return exchangeOperands(tree, random, memory);
  return hoistSubtree(tree, random);
}

}  // namespace srjit::search

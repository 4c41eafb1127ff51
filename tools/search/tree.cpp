#include "tools/search/tree.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "ir/mix.h"
#include "passes/expression_optimizer.h"

namespace srjit::search {
namespace {

constexpr double kConstantShare = 0.3;  // of new leaves
constexpr double kOperatorShare = 0.9;  // of the roots of subtrees that crossover exchanges
constexpr std::size_t kGraftMost = 8;   // complexity of a subtree that a mutation makes
constexpr double kUsualConstants[] = {1, 2, 3, 4, 0.5, std::numbers::pi};
constexpr double kUsualExponents[] = {2, 3, 4, -1, -2, 0.5};
constexpr double kExponentShare = 0.5;  // of new operands of a power that are one of these

template <class Item>
const Item& oneOf(std::span<const Item> items, Random& random) {
  return items[random.below(items.size())];
}

/// Standard normal, as a sum of uniform numbers (Irwin-Hall, n = 12): its bits are the same on every machine.
double normal(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.unit();
  return sum;
}

double newConstant(Random& random) {
  if (random.chance(0.5)) return oneOf<double>(kUsualConstants, random);
  return normal(random) * (random.chance(0.5) ? 1 : 10);
}

Token newLeaf(const Grammar& grammar, Random& random) {
  if (random.chance(kConstantShare)) return Token::constant(newConstant(random));
  return Token::variable(static_cast<std::uint32_t>(random.below(grammar.variables())));
}

/// What stands behind a power that a tree grows by; none: what stands behind other operators.
std::optional<Token> newExponent(Op op, Random& random) {
  if (op != Op::kPow || !random.chance(kExponentShare)) return {};
  return Token::constant(oneOf<double>(kUsualExponents, random));
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

void replace(Tree& tree, std::size_t begin, std::size_t end, std::span<const Token> by) {
  const auto first = tree.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = tree.begin() + static_cast<std::ptrdiff_t>(end);
  const std::size_t common = std::min(end - begin, by.size());
  std::copy_n(by.begin(), common, first);
  if (by.size() > common) {
    tree.insert(last, by.begin() + static_cast<std::ptrdiff_t>(common), by.end());
  } else {
    tree.erase(first + static_cast<std::ptrdiff_t>(common), last);
  }
}

/// The last token of a random subtree.
std::size_t pickSubtree(std::span<const Token> tree, Random& random) {
  const bool of_operator = random.chance(kOperatorShare);
  const std::size_t start = random.below(tree.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {  // the next one of the wanted kind
    const std::size_t at = (start + i) % tree.size();
    if ((tree[at].kind == Token::Kind::kOp) == of_operator) return at;
  }
  return start;
}

void changeToken(Tree& tree, const Grammar& grammar, Random& random) {
  Token& token = tree[random.below(tree.size())];
  if (token.arity() == 0) {
    token = newLeaf(grammar, random);
    return;
  }
  const std::span<const Op> others = grammar.operatorsOf(token.arity());
  if (!others.empty()) token = Token::operation(oneOf(others, random));
}

void changeConstant(Tree& tree, Random& random) {
  const std::size_t start = random.below(tree.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {
    Token& token = tree[(start + i) % tree.size()];
    if (token.kind != Token::Kind::kConstant) continue;
    const double choice = random.unit();
    if (choice < 0.6) {
      token.value *= std::exp2(normal(random) * 0.5);
    } else if (choice < 0.7) {
      token.value = -token.value;
    } else if (choice < 0.85) {
      token.value = std::rint(token.value);
    } else {
      token.value = newConstant(random);
    }
    return;
  }
}

void changeSubtree(Tree& tree, const Grammar& grammar, Random& random) {
  const std::size_t last = pickSubtree(tree, random);
  const Tree graft = randomTree(grammar, 1 + random.below(kGraftMost), random);
  replace(tree, subtreeBegin(tree, last), last + 1, graft);
}

void insertOperator(Tree& tree, const Grammar& grammar, Random& random) {
  const std::optional<Op> op = newOperator(grammar, random);
  if (!op) return;
  const std::size_t last = random.below(tree.size()), begin = subtreeBegin(tree, last);
  const int arity = arityOf(*op);
  const int place = static_cast<int>(random.below(static_cast<std::uint64_t>(arity)));
  Tree above;
  above.reserve(last + 1 - begin + kMaxArity * kGraftMost);
  for (int i = 0; i < arity; ++i) {
    if (i == place) {
      above.insert(above.end(), tree.begin() + static_cast<std::ptrdiff_t>(begin),
                   tree.begin() + static_cast<std::ptrdiff_t>(last + 1));
    } else {
      const std::optional<Token> exponent = i == 1 ? newExponent(*op, random) : std::nullopt;
      const Tree other = exponent ? Tree{*exponent} : randomTree(grammar, random.chance(0.7) ? 1 : 3, random);
      above.insert(above.end(), other.begin(), other.end());
    }
  }
  above.push_back(Token::operation(*op));
  replace(tree, begin, last + 1, above);
}

void deleteOperator(Tree& tree, Random& random) {
  const std::size_t last = pickSubtree(tree, random);
  if (tree[last].arity() == 0) return;
  std::size_t kept = last - 1;
  for (std::uint64_t i = random.below(static_cast<std::uint64_t>(tree[last].arity())); i > 0; --i) {
    kept = subtreeBegin(tree, kept) - 1;
  }
  const auto at = [&](std::size_t i) { return tree.begin() + static_cast<std::ptrdiff_t>(i); };
  const std::size_t begin = subtreeBegin(tree, last), kept_begin = subtreeBegin(tree, kept);
  tree.erase(at(kept + 1), at(last + 1));
  tree.erase(at(begin), at(kept_begin));
}

void exchangeOperands(Tree& tree, Random& random) {
  const std::size_t last = pickSubtree(tree, random);
  if (tree[last].arity() != 2) return;
  const std::size_t begin = subtreeBegin(tree, last), middle = subtreeBegin(tree, last - 1);
  std::rotate(tree.begin() + static_cast<std::ptrdiff_t>(begin), tree.begin() + static_cast<std::ptrdiff_t>(middle),
              tree.begin() + static_cast<std::ptrdiff_t>(last));
}

void hoistSubtree(Tree& tree, Random& random) {
  const std::size_t last = pickSubtree(tree, random);
  tree.resize(last + 1);
  tree.erase(tree.begin(), tree.begin() + static_cast<std::ptrdiff_t>(subtreeBegin(tree, last)));
}

bool isWholeExponent(std::span<const Token> tree, std::size_t at) {
  if (at + 1 == tree.size() || tree[at + 1].kind != Token::Kind::kOp || tree[at + 1].op != Op::kPow) return false;
  return std::rint(tree[at].value) == tree[at].value && std::fabs(tree[at].value) <= kMostWholeExponent;
}

/// Calls `use` for the constants that may be fitted, from the first on.
template <class AnyToken, class Use>
void forEachConstant(std::span<AnyToken> tree, Exponents exponents, const Use& use) {
  for (std::size_t i = 0; i < tree.size(); ++i) {
    if (tree[i].kind != Token::Kind::kConstant) continue;
    if (exponents == Exponents::kWholeKept && isWholeExponent(tree, i)) continue;
    use(tree[i]);
  }
}

}  // namespace

std::size_t subtreeBegin(std::span<const Token> tokens, std::size_t last) noexcept {
  int missing = 1;
  for (std::size_t i = last + 1; i-- > 0;) {
    missing += tokens[i].arity() - 1;
    if (missing == 0) return i;
  }
  return 0;
}

Tree randomTree(const Grammar& grammar, std::size_t complexity, Random& random) {
  Tree tree;
  tree.reserve(complexity + kMaxArity);
  tree.push_back(newLeaf(grammar, random));
  std::size_t now = grammar.complexityOf(tree);
  while (now < complexity) {
    const std::optional<Op> op = newOperator(grammar, random);
    if (!op) break;
    std::size_t at = random.below(tree.size());
    while (tree[at].kind == Token::Kind::kOp) at = at == 0 ? tree.size() - 1 : at - 1;
    std::array<Token, kMaxArity + 1> tokens;
    const auto arity = static_cast<std::size_t>(arityOf(*op));
    for (std::size_t i = 0; i < arity; ++i) tokens[i] = i == 0 ? tree[at] : newLeaf(grammar, random);
    if (arity == 2 && random.chance(0.5)) std::swap(tokens[0], tokens[1]);
    if (const std::optional<Token> exponent = newExponent(*op, random)) tokens[1] = *exponent;
    tokens[arity] = Token::operation(*op);
    const std::span<const Token> grown = std::span(tokens).first(arity + 1);
    now += grammar.complexityOf(grown) - grammar.complexityOf(tree[at]);
    replace(tree, at, at + 1, grown);
  }
  return tree;
}

Tree crossover(std::span<const Token> mother, std::span<const Token> father, Random& random) {
  const std::size_t out = pickSubtree(mother, random), in = pickSubtree(father, random);
  const std::size_t out_begin = subtreeBegin(mother, out), in_begin = subtreeBegin(father, in);
  Tree child;
  child.reserve(out_begin + (in + 1 - in_begin) + (mother.size() - out - 1));
  child.assign(mother.begin(), mother.begin() + static_cast<std::ptrdiff_t>(out_begin));
  child.insert(child.end(), father.begin() + static_cast<std::ptrdiff_t>(in_begin),
               father.begin() + static_cast<std::ptrdiff_t>(in + 1));
  child.insert(child.end(), mother.begin() + static_cast<std::ptrdiff_t>(out + 1), mother.end());
  return child;
}

void mutate(Tree& tree, const Grammar& grammar, Random& random) {
  const double choice = random.unit();
  if (choice < 0.20) return changeToken(tree, grammar, random);
  if (choice < 0.35) return changeConstant(tree, random);
  if (choice < 0.55) return changeSubtree(tree, grammar, random);
  if (choice < 0.75) return insertOperator(tree, grammar, random);
  if (choice < 0.90) return deleteOperator(tree, random);
  if (choice < 0.97) return exchangeOperands(tree, random);
  hoistSubtree(tree, random);
}

Tree withoutConstants(std::span<const Token> tree, std::vector<double>& values, Exponents exponents) {
  values.clear();
  Tree result(tree.begin(), tree.end());
  forEachConstant(std::span(result), exponents, [&](Token& token) {
    values.push_back(token.value);
    token = Token::parameter(static_cast<std::uint32_t>(values.size() - 1));
  });
  return result;
}

std::size_t constantsIn(std::span<const Token> tree, Exponents exponents) noexcept {
  std::size_t count = 0;
  forEachConstant(tree, exponents, [&](const Token&) { ++count; });
  return count;
}

void setConstants(std::span<Token> tree, std::span<const double> values, Exponents exponents) {
  auto value = values.begin();
  forEachConstant(tree, exponents, [&](Token& token) { token.value = *value++; });
}

std::vector<Exponents> waysToFit(std::span<const Token> tree) {
  if (constantsIn(tree, Exponents::kWholeKept) == constantsIn(tree)) return {Exponents::kFitted};
  return {Exponents::kWholeKept, Exponents::kFitted};
}

Canonical canonicalOf(std::span<const Token> tree) {
  struct Memory {
    // In f64 engines do without the rules of kFast.
    ExpressionOptimizer optimizer{Precision::kF32, Math::kFast};
    std::vector<std::int32_t> codes;
    std::vector<double> constants;
  };
  thread_local Memory memory;
  memory.codes.clear();
  memory.constants.clear();
  std::uint32_t variables = 0;
  for (const Token& token : tree) {
    memory.codes.push_back(codeOf(token));
    if (token.kind == Token::Kind::kConstant) memory.constants.push_back(token.value);
    if (token.kind == Token::Kind::kVariable) variables = std::max(variables, token.index + 1);
  }
  memory.optimizer.run(ExpressionView(memory.codes, memory.constants, variables, 0), 0);
  const ExpressionGraph graph = memory.optimizer.graph();
  Canonical form{.shape = graph.dag.shapeHash(graph.root()), .is_constant = true};
  form.whole = form.shape;
  for (const NodeId member : graph.members) {
    const Node& node = graph.dag.node(member);
    if (node.kind == Token::Kind::kConstant) form.whole = combine(form.whole, std::bit_cast<std::uint64_t>(node.value));
    if (node.kind == Token::Kind::kVariable) form.is_constant = false;
  }
  return form;
}

}  // namespace srjit::search

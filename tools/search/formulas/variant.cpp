#include "tools/search/formulas/variant.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace srjit::search {
namespace {

/// `variant` without the tokens from `begin` to `first` and from `last` to `end`.
Variant without(const Variant& variant, std::size_t begin, std::size_t first, std::size_t last, std::size_t end) {
  Variant result;
  for (std::size_t i = 0; i < variant.tree.size(); ++i) {
    if ((i >= begin && i < first) || (i >= last && i < end)) continue;
    Token token = variant.tree[i];
    if (token.kind == Token::Kind::kParameter) {
      result.values.push_back(variant.values[token.index]);
      token.index = static_cast<std::uint32_t>(result.values.size() - 1);
    }
    result.tree.push_back(token);
  }
  return result;
}

}  // namespace

Variant Variant::of(std::span<const Token> tokens, Exponents exponents) {
  Variant variant;
  variant.tree.assign(tokens.begin(), tokens.end());
  forEachConstant(tokens, exponents, [&](std::size_t i) {
    variant.tree[i] = Token::parameter(static_cast<std::uint32_t>(variant.values.size()));
    variant.values.push_back(tokens[i].value);
  });
  return variant;
}

void Variant::append(double start, Op op) {
  tree.push_back(Token::parameter(static_cast<std::uint32_t>(values.size())));
  tree.push_back(Token::operation(op));
  values.push_back(start);
}

void Variant::undo(const Link& link) {
  for (const Op op : link.inverse) tree.push_back(Token::operation(op));
}

std::optional<Variant> Variant::rounded(std::span<const std::optional<double>> numbers) const {
  Variant result;
  result.tree = tree;
  std::vector<Token> tokens;
  for (std::size_t p = 0; p < values.size(); ++p) {
    if (numbers[p]) {
      tokens.push_back(Token::constant(*numbers[p]));
    } else {
      tokens.push_back(Token::parameter(static_cast<std::uint32_t>(result.values.size())));
      result.values.push_back(values[p]);
    }
  }
  if (result.values.size() == values.size()) return {};
  for (Token& token : result.tree) {
    if (token.kind == Token::Kind::kParameter) token = tokens[token.index];
  }
  return result;
}

std::vector<Variant> Variant::shortened() const {
  const std::vector<std::uint32_t> begins = subtreeStarts(tree);
  std::vector<Variant> shorter;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    std::size_t last = i;
    for (int k = 0; k < tree[i].arity(); ++k) {
      const std::size_t first = begins[--last];
      shorter.push_back(without(*this, begins[i], first, last + 1, i + 1));
      last = first;
    }
  }
  return shorter;
}

}  // namespace srjit::search

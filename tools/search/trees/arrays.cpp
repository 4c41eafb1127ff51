#include "tools/search/trees/arrays.h"

#include <utility>

namespace srjit::search {

std::size_t subtreeBegin(std::span<const std::int32_t> codes, std::size_t last) noexcept {
  int missing = 1;
  for (std::size_t i = last + 1; i-- > 0;) {
    missing += arityOf(codes[i]) - 1;
    if (missing == 0) return i;
  }
  return 0;
}

void Trees::clear() {
  offsets_.resize(1);
  used_ = 0;
}

void Trees::grow(std::size_t tokens) {
  codes_.resize(std::max(tokens, 2 * codes_.size()));
  constants_.resize(codes_.size());
}

void Trees::add(std::span<const Token> tree) {
  for (const Token& token : tree) put(codeOf(token), token.value);
  close();
}

void Trees::append(const Trees& trees) {
  const std::size_t first = used_;
  put(trees.tokens(0, trees.begin(trees.size())));
  for (std::size_t i = 1; i <= trees.size(); ++i) {
    offsets_.push_back(static_cast<std::int64_t>(first + trees.begin(i)));
  }
}

Expression expressionOf(const TreeView& tree) {
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < tree.size(); ++i) tokens.push_back(tree[i]);
  return Expression::create(std::move(tokens)).value();
}

}  // namespace srjit::search

// Trees of a search in flat arrays: postfix tokens, one tree behind another, without an object for each. The arrays are
// those that an Engine takes (ir/population.h), so a population is submitted as it is. Outside of islands, where trees
// are few, a tree is an Expression.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/ops.h"
#include "ir/population.h"

namespace srjit::search {

/// Tokens of a tree, or a part of them. Borrowed.
struct TreeView {
  std::span<const std::int32_t> codes;
  std::span<const double> constants;  ///< by token; of use where the code is kConstantCode

  std::size_t size() const noexcept { return codes.size(); }
  Token operator[](std::size_t i) const noexcept {
    return codes[i] == kConstantCode ? Token::constant(constants[i]) : tokenOf(codes[i]);
  }
  TreeView part(std::size_t begin, std::size_t end) const noexcept {
    return {codes.subspan(begin, end - begin), constants.subspan(begin, end - begin)};
  }
};

/// How many operands the token of a code has.
inline int arityOf(std::int32_t code) noexcept {
  return code > 0 ? srjit::arityOf(kOpsByCode[static_cast<std::size_t>(code)]) : 0;
}

/// The first token of the subtree whose last is codes[last].
std::size_t subtreeBegin(std::span<const std::int32_t> codes, std::size_t last) noexcept;

/// A part of a tree, and the tokens that take its place. Borrowed.
struct Edit {
  std::size_t begin = 0, end = 0;
  TreeView by = {};
};

/// Trees in arrays of their own. Views are valid until something is added.
class Trees {
 public:
  std::size_t size() const noexcept { return offsets_.size() - 1; }
  TreeView operator[](std::size_t tree) const noexcept { return tokens(begin(tree), begin(tree + 1)); }
  /// Borrowed from this.
  PopulationView view() const noexcept {
    return {std::span(codes_).first(begin(size())), std::span(constants_).first(begin(size())), offsets_};
  }
  /// The numbers of a tree, by token.
  std::span<double> constantsOf(std::size_t tree) noexcept {
    return std::span(constants_).subspan(begin(tree), begin(tree + 1) - begin(tree));
  }

  void clear();  ///< keeps the memory
  void add(const TreeView& tree) {
    put(tree);
    close();
  }
  void add(std::span<const Token> tree);
  void append(const Trees& trees);

  // A tree whose tokens come one after another: put() some, then close() or drop() them.
  void put(std::int32_t code, double constant = 0) {
    makeRoom(1);
    codes_[used_] = code;
    constants_[used_++] = constant;
  }
  /// `part` must not be of this.
  void put(const TreeView& part) {
    makeRoom(part.size());
    write(part);
  }
  /// `tree` after an edit; neither may be of this.
  void put(const TreeView& tree, const Edit& edit) {
    makeRoom(tree.size() + edit.by.size());
    write(tree.part(0, edit.begin));
    write(edit.by);
    write(tree.part(edit.end, tree.size()));
  }
  TreeView open() const noexcept { return tokens(begin(size()), used_); }
  std::span<std::int32_t> openCodes() noexcept {
    return std::span(codes_).subspan(begin(size()), used_ - begin(size()));
  }
  std::span<double> openConstants() noexcept {
    return std::span(constants_).subspan(begin(size()), used_ - begin(size()));
  }
  void close() { offsets_.push_back(static_cast<std::int64_t>(used_)); }
  void drop() noexcept { used_ = begin(size()); }

 private:
  std::size_t begin(std::size_t tree) const noexcept { return static_cast<std::size_t>(offsets_[tree]); }
  TreeView tokens(std::size_t first, std::size_t last) const noexcept {
    return {std::span(codes_).subspan(first, last - first), std::span(constants_).subspan(first, last - first)};
  }
  void makeRoom(std::size_t tokens) {
    if (codes_.size() - used_ < tokens) grow(used_ + tokens);
  }
  void grow(std::size_t tokens);
  void write(const TreeView& part) noexcept {
    std::copy_n(part.codes.data(), part.size(), codes_.data() + used_);
    std::copy_n(part.constants.data(), part.size(), constants_.data() + used_);
    used_ += part.size();
  }

  std::vector<std::int32_t> codes_;  ///< of which `used_` count, also below
  std::vector<double> constants_;
  std::vector<std::int64_t> offsets_ = {0};
  std::size_t used_ = 0;
};

Expression expressionOf(const TreeView& tree);

/// Which constants of a tree may be fitted. A power of a negative base has a value for whole exponents only, and no
/// derivative by any of them, so a fit of its exponent cannot begin.
enum class Exponents : std::uint8_t {
  kFitted,     ///< all constants
  kWholeKept,  ///< all but whole exponents up to kMostWholeExponent
};
inline constexpr double kMostWholeExponent = 20;

/// Calls `use` with the number of each token that is a constant to be fitted, from the first on. `tree` is a TreeView
/// or a span of tokens.
template <class AnyTree, class Use>
void forEachConstant(const AnyTree& tree, Exponents exponents, const Use& use) {
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const Token token = tree[i];
    if (token.kind != Token::Kind::kConstant) continue;
    const bool is_whole = std::rint(token.value) == token.value && std::fabs(token.value) <= kMostWholeExponent;
    const bool is_kept = exponents == Exponents::kWholeKept && is_whole && i + 1 < tree.size() &&
                         tree[i + 1] == Token::operation(Op::kPow);
    if (!is_kept) use(i);
  }
}

/// The number of constants that forEachConstant() names.
template <class AnyTree>
std::size_t constantsIn(const AnyTree& tree, Exponents exponents = Exponents::kFitted) {
  std::size_t count = 0;
  forEachConstant(tree, exponents, [&](std::size_t) { ++count; });
  return count;
}

/// The ways to fit a tree: with whole exponents kept, if it has some, and with all constants.
template <class AnyTree>
std::span<const Exponents> waysToFit(const AnyTree& tree) {
  static constexpr Exponents kWays[] = {Exponents::kWholeKept, Exponents::kFitted};
  const bool has_whole = constantsIn(tree, Exponents::kWholeKept) != constantsIn(tree);
  return std::span(kWays).subspan(has_whole ? 0 : 1);
}

}  // namespace srjit::search

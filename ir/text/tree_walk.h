// The walk of all printers over a postfix program, with an explicit stack of the pieces still to be written.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/expression.h"

namespace srjit::text {

class TreeWalk {
 protected:
  /// A piece of text, or a subtree still to be written, by the index of its last token.
  struct Item {
    std::string_view piece;
    std::uint32_t root = 0;
    int level = 0;  ///< the loosest level that needs no parentheses
  };
  /// Last tokens of the operands of a subtree, in order.
  struct Operands {
    std::uint32_t roots[kMaxArity];
    int count;
  };

  explicit TreeWalk(const Expression& expression) : tokens_(expression.tokens()), starts_(subtreeStarts(tokens_)) {
    out_.reserve(tokens_.size() * 5);
  }

  /// `write` takes subtrees, `append` pieces. Both add to `out_`, and schedule more items.
  template <class Write, class Append>
  std::string walk(const Write& write, const Append& append, int level = 0) {
    pending_.push_back(subtree(static_cast<std::uint32_t>(tokens_.size() - 1), level));
    while (!pending_.empty()) {
      const Item item = pending_.back();
      pending_.pop_back();
      if (item.piece.empty()) {
        write(item);
      } else {
        append(item.piece);
      }
    }
    return std::move(out_);
  }

  static Item subtree(std::uint32_t root, int level) { return {{}, root, level}; }
  static Item piece(std::string_view text) { return {text, 0, 0}; }

  Operands operandsOf(std::uint32_t root) const {
    Operands operands{{}, tokens_[root].arity()};
    std::uint32_t next = root;
    for (int i = operands.count - 1; i >= 0; --i) {
      operands.roots[i] = next - 1;
      next = starts_[next - 1];
    }
    return operands;
  }

  /// Schedules items to be written in the order given.
  void push(std::initializer_list<Item> items) {
    for (auto item = std::rbegin(items); item != std::rend(items); ++item) pending_.push_back(*item);
  }

  std::span<const Token> tokens_;
  std::vector<std::uint32_t> starts_;
  std::vector<Item> pending_;
  std::string out_;
};

}  // namespace srjit::text

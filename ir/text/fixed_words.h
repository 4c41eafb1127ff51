// Short words that mean the same whatever the columns are called, by a perfect hash: most words of a postfix text.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ir/expression.h"
#include "ir/mix.h"
#include "ir/ops.h"

namespace srjit::text {

/// A word of 1 to kLongestFixed bytes as a number, the first byte in the lowest bits.
inline constexpr std::size_t kLongestFixed = 7;
constexpr std::uint64_t keyOfWord(std::string_view word) noexcept {
  std::uint64_t key = 0;
  for (std::size_t i = 0; i < word.size(); ++i) key |= std::uint64_t{static_cast<unsigned char>(word[i])} << 8 * i;
  return key;
}

/// A word and its token. One that is not set is no word's.
struct FixedWord {
  std::uint64_t key = ~std::uint64_t{0};
  Token token{};
  std::size_t arity = 0;
};

/// Behind the words, one row that is none.
struct FixedWords {
  static constexpr std::size_t kDigits = 10;
  std::array<FixedWord, 2 * kOpCount + 2 * kDigits + 1> rows{};
  std::size_t count = 0;

  constexpr void add(std::string_view word, const Token& token, std::size_t arity) {
    if (word.size() > kLongestFixed) return;
    const std::uint64_t key = keyOfWord(word);
    for (std::size_t i = 0; i < count; ++i) {
      if (rows[i].key == key) return;  // the text of a function is its name
    }
    rows[count++] = {key, token, arity};
  }
};

/// The operators by name and text, x0 to x9 and p0 to p9.
inline constexpr FixedWords kFixedWords = [] {
  FixedWords words;
#define SRJIT_OP(id, name, text, arity, ...)                   \
  words.add(name, {Token::Kind::kOp, Op::k##id, 0, 0}, arity); \
  words.add(text, {Token::Kind::kOp, Op::k##id, 0, 0}, arity);
#include "ir/ops.def"
#undef SRJIT_OP
  for (std::uint32_t i = 0; i < FixedWords::kDigits; ++i) {
    const char digit = static_cast<char>('0' + i);
    const char x[] = {'x', digit}, p[] = {'p', digit};
    words.add({x, 2}, {Token::Kind::kVariable, Op{}, i, 0}, 0);
    words.add({p, 2}, {Token::Kind::kParameter, Op{}, i, 0}, 0);
  }
  return words;
}();

/// Rows of kFixedWords by the upper bits of key * multiplier.
struct FixedWordIndex {
  static constexpr std::size_t kSize = std::bit_ceil(kFixedWords.count * kFixedWords.count / 4);
  std::uint64_t multiplier = 0;
  std::array<std::uint16_t, kSize> rows{};

  constexpr std::size_t slotOf(std::uint64_t key) const noexcept {
    return static_cast<std::size_t>(key * multiplier >> (64 - std::countr_zero(kSize)));
  }
};

/// Tries multipliers until no two words have one slot; at this size, one in four or so serves.
inline constexpr FixedWordIndex kFixedWordIndex = [] {
  constexpr std::uint16_t kNone = kFixedWords.count;
  FixedWordIndex index;
  std::uint64_t random = 0;
  for (bool collides = true; collides;) {
    index.multiplier = nextRandom(random);
    index.rows.fill(kNone);
    collides = false;
    for (std::uint16_t row = 0; row < kNone && !collides; ++row) {
      std::uint16_t& slot = index.rows[index.slotOf(kFixedWords.rows[row].key)];
      collides = slot != kNone;
      slot = row;
    }
  }
  return index;
}();

/// The word with this key; one with another key if there is none.
inline const FixedWord& findFixedWord(std::uint64_t key) noexcept {
  return kFixedWords.rows[kFixedWordIndex.rows[kFixedWordIndex.slotOf(key)]];
}

}  // namespace srjit::text

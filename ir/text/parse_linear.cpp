// Postfix and prefix: words separated by white space.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "ir/mix.h"
#include "ir/ops.h"
#include "ir/text/lexer.h"
#include "ir/text/parsers.h"
#include "ir/text/words.h"

namespace srjit::text {
namespace {

// Short words that mean the same whatever the columns are called, by a perfect hash: most words of a postfix text.

/// A word of 1 to kLongestFixed bytes as a number, the first byte in the lowest bits.
constexpr std::size_t kLongestFixed = 7;
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
constexpr FixedWords kFixedWords = [] {
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
constexpr FixedWordIndex kFixedWordIndex = [] {
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
const FixedWord& findFixedWord(std::uint64_t key) noexcept {
  return kFixedWords.rows[kFixedWordIndex.rows[kFixedWordIndex.slotOf(key)]];
}

/// Reads the words of a text one after another.
class Words {
 public:
  Words(std::string_view text, const ColumnNames& columns)
      : text_(text),
        columns_(columns),
        has_index_names_(!columns.indexWords('x').empty() || !columns.indexWords('p').empty()),
        blocks_(text.data()) {
    if (text.size() >= kBlock) {
      last_block_ = text.data() + text.size() - kBlock;
      return;
    }
    std::ranges::copy(text, short_text_.begin());
    blocks_ = last_block_ = short_text_.data();
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  /// Steps to the next word and gives its token, if it is a fixed one right behind the space that ended
  /// the word before. Else stays where it is and gives nullptr. Has no loops or branches that depend on the word: a
  /// mispredicted one takes as long as all the rest.
  const FixedWord* nextFixed() noexcept {
    if (next_ >= text_.size()) return nullptr;
    const std::uint64_t block = blockAt(next_);
    // Of the bits that are set, the lowest is in the first byte that is no larger than a space ("hasless" of S. E.
    // Anderson, "Bit Twiddling Hacks").
    constexpr std::uint64_t kOnes = ~std::uint64_t{0} / 0xff;
    const std::uint64_t ends = (block - kOnes * (' ' + 1)) & ~block & (kOnes * 0x80);
    if (ends == 0) return nullptr;
    const unsigned bits = static_cast<unsigned>(std::countr_zero(ends)) & ~7u;
    const std::uint64_t key = block & ((std::uint64_t{1} << bits) - 1);
    const std::size_t end = next_ + bits / 8;
    const FixedWord& fixed = findFixedWord(key);
    const bool at_end = end == text_.size();
    const bool at_space = isSpace(static_cast<char>(block >> bits));
    const bool named = has_index_names_ & (fixed.token.kind != Token::Kind::kOp);
    if ((fixed.key != key) | !(at_end | at_space) | named) return nullptr;
    offset_ = next_;
    end_ = end;
    next_ = end + 1;
    return &fixed;
  }

  /// Steps to the next word; false at the end of the text.
  bool next() noexcept {
    offset_ = skipSpace(text_, std::min(next_, text_.size()));
    end_ = offset_;
    // A space in backquotes is of the name; what stands behind them before the next space is an error of read().
    if (end_ < text_.size() && text_[end_] == kBackquote) end_ += scanQuotedName(text_, end_);
    while (end_ < text_.size() && !isSpace(text_[end_])) ++end_;
    next_ = end_ + 1;
    return end_ != offset_;
  }
  std::string_view word() const noexcept { return text_.substr(offset_, end_ - offset_); }

  Error fail(std::string message) const { return errorAt(text_, offset_, end_ - offset_, std::move(message)); }
  Span place() const { return *fail({}).where; }

  /// The token of the present word.
  bool read(Token& token) const {
    const std::string_view word = this->word();
    if (word[0] == kBackquote) {
      const Result<Token> variable = readQuotedWord(text_, offset_, word.size(), columns_);
      if (variable) token = *variable;
      return variable.ok();
    }
    const bool negative = word.size() > 1 && word[0] == '-';
    const std::string_view digits = word.substr(negative ? 1 : 0);
    if (isDigit(digits[0]) || digits[0] == '.') {
      double value = 0;
      if (readNumber(digits, value) != NumberFault::kNone) return false;
      token = Token::constant(negative ? -value : value);
      return true;
    }
    if (const auto op = findOp(word)) {
      token = Token::operation(*op);
      return true;
    }
    if (readWord(digits, columns_, token) != WordKind::kOperand) return false;
    if (!negative) return true;
    if (token.kind != Token::Kind::kConstant) return false;
    token = negated(token);
    return true;
  }

  /// Why read() gave nothing.
  Error readError() const {
    const std::string_view word = this->word();
    if (word[0] == kBackquote) return readQuotedWord(text_, offset_, word.size(), columns_).error();
    const std::size_t start = word.size() > 1 && word[0] == '-' ? 1 : 0;
    if (isDigit(word[start]) || word[start] == '.') return numberError(text_, offset_ + start, word.size() - start);
    Token token;
    return wordError(text_, offset_, word, "word", readWord(word, columns_, token), columns_);
  }

 private:
  static constexpr std::size_t kBlock = sizeof(std::uint64_t);
  static_assert(std::endian::native == std::endian::little, "the first byte of a block is in its lowest bits");

  /// The eight bytes from `offset`, which is in the text; zeros behind the text.
  std::uint64_t blockAt(std::size_t offset) const noexcept {
    const char* const wanted = blocks_ + offset;
    const char* const read = std::min(wanted, last_block_);
    std::uint64_t block;
    std::memcpy(&block, read, kBlock);
    return block >> 8 * (wanted - read);
  }

  const std::string_view text_;
  const ColumnNames& columns_;
  const bool has_index_names_;
  const char* blocks_;                     ///< the text, or
  std::array<char, kBlock> short_text_{};  ///< a copy of a text that has no eight bytes
  const char* last_block_;                 ///< where the last eight bytes start
  std::size_t offset_ = 0, end_ = 0;       ///< of the present word
  std::size_t next_ = 0;                   ///< behind the space that ends it
};

/// "'atan2' needs 2 operands, but 1 STANDS it".
std::string lackMessage(Op op, std::size_t found, std::string_view verb, std::string_view rest) {
  const int arity = arityOf(op);
  return fmt::format("'{}' needs {} operand{}, but {} {}{}{}", infoOf(op).text, arity, arity == 1 ? "" : "s",
                     found == 0 ? "none" : fmt::format("{}", found), verb, found > 1 ? "" : "s", rest);
}

}  // namespace

Result<ProgramNeeds> parsePostfix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                                  std::size_t max_nodes) {
  Words words(text, columns);
  ProgramBuilder program(tokens, max_nodes);
  Token token;
  const auto add = [&](const Token& next, std::size_t arity) {
    if (program.height() < arity) return false;
    program.add(next, arity);
    return true;
  };
  const auto lack = [&](Op op) { return words.fail(lackMessage(op, program.height(), "precede", " it")); };
  for (;;) {
    if (program.isTooLong()) return program.tooLong(words.place());
    if (const FixedWord* const fixed = words.nextFixed()) {
      if (!add(fixed->token, fixed->arity)) return lack(fixed->token.op);
      continue;
    }
    if (!words.next()) break;
    if (!words.read(token)) return words.readError();
    if (!add(token, static_cast<std::size_t>(token.arity()))) return lack(token.op);
  }
  if (program.height() == 1) return program.needs();
  if (program.empty()) return words.fail("expected an operand before the end of the text");
  return words.fail(
      fmt::format("expected an operator before the end of the text, which leaves {} values", program.height()));
}

Result<ProgramNeeds> parsePrefix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                                 std::size_t max_nodes) {
  struct Open {
    Op op;
    int missing;
  };
  Words words(text, columns);
  ProgramBuilder program(tokens, max_nodes);
  std::vector<Open> open;
  Token token;
  for (;;) {
    if (program.isTooLong(open.size())) return program.tooLong(words.place());
    const FixedWord* const fixed = words.nextFixed();
    if (fixed == nullptr && !words.next()) break;
    if (!program.empty() && open.empty()) {
      return words.fail(fmt::format("expected the end of the text before {}", inQuotes(words.word())));
    }
    if (fixed != nullptr) {
      token = fixed->token;
    } else if (!words.read(token)) {
      return words.readError();
    }
    if (token.kind == Token::Kind::kOp) {
      open.push_back({token.op, token.arity()});
      continue;
    }
    program.add(token);
    while (!open.empty() && --open.back().missing == 0) {
      program.add(Token::operation(open.back().op));
      open.pop_back();
    }
  }
  if (!open.empty()) {
    const auto found = static_cast<std::size_t>(arityOf(open.back().op) - open.back().missing);
    return words.fail(lackMessage(open.back().op, found, "follow", " it before the end of the text"));
  }
  if (program.empty()) return words.fail("expected an operand before the end of the text");
  return program.needs();
}

}  // namespace srjit::text

// Postfix and prefix: words separated by white space.
#include <vector>

#include <fmt/format.h>

#include "ir/ops.h"
#include "ir/text/lexer.h"
#include "ir/text/parsers.h"
#include "ir/text/quoted_name.h"
#include "ir/text/words.h"

namespace srjit::text {
namespace {

/// Reads the words of a text one after another.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  /// Steps to the next word; false at the end of the text.
  bool next() noexcept {
    offset_ = skipSpace(text_, offset_ + word_.size());
    // A space in backquotes is of the name; what stands behind them before the next space is an error of read().
    std::size_t end = offset_;
    if (end < text_.size() && text_[end] == kBackquote) end += scanQuotedName(text_, end);
    while (end < text_.size() && !isSpace(text_[end])) ++end;
    word_ = text_.substr(offset_, end - offset_);
    return !word_.empty();
  }
  std::string_view word() const noexcept { return word_; }
  std::size_t offset() const noexcept { return offset_; }

  Error fail(std::string message) const { return errorAt(text_, offset_, word_.size(), std::move(message)); }

  /// The token of the present word.
  bool read(const ColumnNames& columns, Token& token) const {
    if (word_[0] == kBackquote) {
      const Result<Token> variable = readQuotedWord(text_, offset_, word_.size(), columns);
      if (variable) token = *variable;
      return variable.ok();
    }
    const bool negative = word_.size() > 1 && word_[0] == '-';
    const std::string_view digits = word_.substr(negative ? 1 : 0);
    if (isDigit(digits[0]) || digits[0] == '.') {
      double value = 0;
      if (readNumber(digits, value) != NumberFault::kNone) return false;
      token = Token::constant(negative ? -value : value);
      return true;
    }
    if (const auto op = findOp(word_)) {
      token = Token::operation(*op);
      return true;
    }
    if (readWord(digits, columns, token) != WordKind::kOperand) return false;
    if (!negative) return true;
    token.value = -token.value;
    return token.kind == Token::Kind::kConstant;
  }

  /// Why read() gave nothing.
  Error readError(const ColumnNames& columns) const {
    if (word_[0] == kBackquote) return readQuotedWord(text_, offset_, word_.size(), columns).error();
    const bool negative = word_.size() > 1 && word_[0] == '-';
    const std::size_t start = negative ? 1 : 0;
    if (isDigit(word_[start]) || word_[start] == '.') return numberError(text_, offset_ + start, word_.size() - start);
    Token token;
    return wordError(text_, offset_, word_, "word", readWord(word_, columns, token), columns);
  }

 private:
  std::string_view text_;
  std::string_view word_;
  std::size_t offset_ = 0;
};

/// "'atan2' needs 2 operands, but 1 STANDS it".
std::string lackMessage(Op op, std::size_t found, std::string_view verb, std::string_view rest) {
  const int arity = arityOf(op);
  return fmt::format("'{}' needs {} operand{}, but {} {}{}{}", infoOf(op).text, arity, arity == 1 ? "" : "s",
                     found == 0 ? "none" : fmt::format("{}", found), verb, found > 1 ? "" : "s", rest);
}

}  // namespace

Result<Expression> parsePostfix(std::string_view text, const ColumnNames& columns) {
  Words words(text);
  std::vector<Token> tokens;
  tokens.reserve(text.size() / 2 + 1);
  std::size_t height = 0;
  while (words.next()) {
    Token token;
    if (!words.read(columns, token)) return words.readError(columns);
    const auto arity = static_cast<std::size_t>(token.arity());
    if (height < arity) return words.fail(lackMessage(token.op, height, "precede", " it"));
    height = height - arity + 1;
    tokens.push_back(token);
  }
  if (height == 0) return words.fail("expected an operand before the end of the text");
  if (height > 1) {
    return words.fail(fmt::format("expected an operator before the end of the text, which leaves {} values", height));
  }
  return Expression::create(std::move(tokens));
}

Result<Expression> parsePrefix(std::string_view text, const ColumnNames& columns) {
  struct Open {
    Op op;
    int missing;
  };
  Words words(text);
  std::vector<Token> tokens;
  tokens.reserve(text.size() / 2 + 1);
  std::vector<Open> open;
  while (words.next()) {
    if (!tokens.empty() && open.empty())
      return words.fail(fmt::format("expected the end of the text before {}", inQuotes(words.word())));
    Token token;
    if (!words.read(columns, token)) return words.readError(columns);
    if (token.kind == Token::Kind::kOp) {
      open.push_back({token.op, token.arity()});
      continue;
    }
    tokens.push_back(token);
    while (!open.empty() && --open.back().missing == 0) {
      tokens.push_back(Token::operation(open.back().op));
      open.pop_back();
    }
  }
  if (!open.empty()) {
    const auto found = static_cast<std::size_t>(arityOf(open.back().op) - open.back().missing);
    return words.fail(lackMessage(open.back().op, found, "follow", " it before the end of the text"));
  }
  if (tokens.empty()) return words.fail("expected an operand before the end of the text");
  return Expression::create(std::move(tokens));
}

}  // namespace srjit::text

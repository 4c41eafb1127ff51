// Operator precedence parsing with an explicit stack (E. W. Dijkstra, "ALGOL-60 Translation", 1961: the shunting yard).
// Its output is postfix, so tokens go straight to the program.
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "ir/text/parsers.h"
#include "ir/text/words.h"

namespace srjit::text {
namespace {

struct Lexeme {
  enum class Kind : std::uint8_t { kNumber, kWord, kQuotedName, kSign, kOther, kEnd };
  Kind kind;
  std::size_t offset;
  std::size_t length;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Lexeme peek() const {
    const std::size_t start = skipSpace(text_, offset_);
    if (start == text_.size()) return {Lexeme::Kind::kEnd, start, 0};
    const char c = text_[start];
    if (isDigit(c) || c == '.') return {Lexeme::Kind::kNumber, start, scanNumber(text_, start)};
    if (const std::size_t length = scanOperand(text_, start)) return {Lexeme::Kind::kWord, start, length};
    if (c == kBackquote) return {Lexeme::Kind::kQuotedName, start, scanQuotedName(text_, start)};
    if (text_.substr(start, 2) == "**") return {Lexeme::Kind::kSign, start, 2};
    if (std::string_view("+-*/^(),").find(c) != std::string_view::npos) return {Lexeme::Kind::kSign, start, 1};
    return {Lexeme::Kind::kOther, start, 1};
  }
  void skip(const Lexeme& lexeme) { offset_ = lexeme.offset + lexeme.length; }
  std::string_view textOf(const Lexeme& lexeme) const { return text_.substr(lexeme.offset, lexeme.length); }

 private:
  std::string_view text_;
  std::size_t offset_ = 0;
};

/// An open parenthesis, an open call of a function, or an operator that waits for its right operand.
struct Frame {
  enum class Kind : std::uint8_t { kGroup, kCall, kSign };
  Kind kind;
  Op op;
  std::uint8_t level;       ///< kSign
  std::uint32_t arguments;  ///< kCall: arguments before the present one
  std::size_t offset;
  std::size_t end = 0;  ///< kCall, kSign: of the word
};

class Parser {
 public:
  Parser(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens, std::size_t max_nodes,
         std::vector<TextRange>* places)
      : text_(text), columns_(columns), lexer_(text), program_(tokens, max_nodes), places_(places) {}

  Result<ProgramNeeds> run() {
    while (!done_) {
      const Lexeme lexeme = lexer_.peek();
      lexer_.skip(lexeme);
      if (after_operand_) {
        readOperator(lexeme);
      } else {
        readOperand(lexeme);
      }
      if (error_) return *std::move(error_);
      if (program_.isTooLong()) return program_.tooLong(*errorAt(text_, lexeme.offset, lexeme.length, {}).where);
    }
    return program_.needs();
  }

 private:
  void readOperand(const Lexeme& lexeme) {
    const std::string_view word = lexer_.textOf(lexeme);
    if (lexeme.kind == Lexeme::Kind::kNumber) return readConstant(lexeme, 1, lexeme.offset);
    if (lexeme.kind == Lexeme::Kind::kWord) return readWordOrCall(lexeme);
    if (lexeme.kind == Lexeme::Kind::kQuotedName) return readName(lexeme);
    if (word == "+") return;
    if (word == "(") {
      open_.push_back({Frame::Kind::kGroup, Op::kAdd, 0, 0, lexeme.offset});
    } else if (word == "-") {
      readMinus(lexeme);
    } else {
      failBefore("an operand", lexeme);
    }
  }

  /// '-' before a constant belongs to it, unless the constant is the base of a power.
  void readMinus(const Lexeme& minus) {
    const Lexeme operand = lexer_.peek();
    Lexer beyond = lexer_;
    beyond.skip(operand);
    const std::string_view next = beyond.textOf(beyond.peek());
    if (next != "^" && next != "**") {
      if (operand.kind == Lexeme::Kind::kNumber) {
        lexer_ = beyond;
        return readConstant(operand, -1, minus.offset);
      }
      Token token;
      if (operand.kind == Lexeme::Kind::kWord && next != "(" &&
          readWord(lexer_.textOf(operand), columns_, token) == WordKind::kOperand &&
          token.kind == Token::Kind::kConstant) {
        lexer_ = beyond;
        return emitOperand(negated(token), minus.offset, endOf(operand));
      }
    }
    open_.push_back({Frame::Kind::kSign, kNegation.op, kNegation.level, 0, minus.offset, endOf(minus)});
  }

  void readConstant(const Lexeme& number, double sign, std::size_t first) {
    double value = 0;
    if (readNumber(lexer_.textOf(number), value) != NumberFault::kNone) {
      return fail(numberError(text_, number.offset, number.length));
    }
    emitOperand(Token::constant(sign * value), first, endOf(number));
  }

  void readName(const Lexeme& quoted) {
    Result<Token> token = readQuotedWord(text_, quoted.offset, quoted.length, columns_);
    if (!token) return fail(std::move(token).error());
    emitOperand(*token, quoted.offset, endOf(quoted));
  }

  void readWordOrCall(const Lexeme& lexeme) {
    const std::string_view word = lexer_.textOf(lexeme);
    const Lexeme next = lexer_.peek();
    const auto op = findOp(word);
    if (lexer_.textOf(next) == "(") {
      if (!op) return fail(wordError(text_, lexeme.offset, word, "function", WordKind::kUnknown, columns_));
      lexer_.skip(next);
      const Lexeme first = lexer_.peek();
      if (lexer_.textOf(first) == ")") return failArguments(*op, 0, first);
      open_.push_back({Frame::Kind::kCall, *op, 0, 0, lexeme.offset, endOf(lexeme)});
      return;
    }
    Token token;
    const WordKind kind = readWord(word, columns_, token);
    if (kind == WordKind::kOperand) return emitOperand(token, lexeme.offset, endOf(lexeme));
    if (op) return failBefore("'('", next, fmt::format(", to call '{}'", word));
    fail(wordError(text_, lexeme.offset, word, "name", kind, columns_));
  }

  void readOperator(const Lexeme& lexeme) {
    const std::string_view word = lexer_.textOf(lexeme);
    if (lexeme.kind == Lexeme::Kind::kEnd) return finish(lexeme);
    if (lexeme.kind == Lexeme::Kind::kSign) {
      if (word == ")") return close(lexeme);
      if (word == ",") return nextArgument(lexeme);
      for (const Sign& sign : kSigns) {
        if (word == sign.text) return pushSign(sign, lexeme);
      }
    }
    failBefore("an operator", lexeme);
  }

  void pushSign(const Sign& sign, const Lexeme& lexeme) {
    // The left operand ends at every open operator that binds at least as tightly as the operand must.
    unwind(sign.left);
    open_.push_back(
        {Frame::Kind::kSign, sign.op, static_cast<std::uint8_t>(sign.level), 0, lexeme.offset, endOf(lexeme)});
    after_operand_ = false;
  }

  void nextArgument(const Lexeme& comma) {
    unwind(0);
    if (open_.empty() || open_.back().kind == Frame::Kind::kGroup) {
      return fail(errorAt(text_, comma.offset, 1,
                          open_.empty() ? "expected an operator or the end of the text before ','"
                                        : "expected an operator or ')' before ','"));
    }
    Frame& call = open_.back();
    if (++call.arguments == static_cast<std::uint32_t>(arityOf(call.op))) {
      return failArguments(call.op, call.arguments + 1, comma);
    }
    after_operand_ = false;
  }

  void close(const Lexeme& parenthesis) {
    unwind(0);
    if (open_.empty()) {
      return fail(errorAt(text_, parenthesis.offset, 1,
                          "expected an operator or the end of the text before ')', which closes no '('"));
    }
    const Frame frame = open_.back();
    if (frame.kind == Frame::Kind::kCall) {
      if (frame.arguments + 1 < static_cast<std::uint32_t>(arityOf(frame.op))) {
        return failArguments(frame.op, frame.arguments + 1, parenthesis);
      }
      emitOperator(frame);
    }
    open_.pop_back();
  }

  void finish(const Lexeme& end) {
    unwind(0);
    if (!open_.empty()) return failBefore("an operator or ')'", end);
    done_ = true;
  }

  /// Emits the operators of at least `level` down to the innermost parenthesis.
  void unwind(int level) {
    while (!open_.empty() && open_.back().kind == Frame::Kind::kSign && open_.back().level >= level) {
      emitOperator(open_.back());
      open_.pop_back();
    }
  }

  static std::size_t endOf(const Lexeme& lexeme) { return lexeme.offset + lexeme.length; }

  void emitOperator(const Frame& frame) { emit(Token::operation(frame.op), frame.offset, frame.end); }

  void emitOperand(const Token& token, std::size_t first, std::size_t end) {
    emit(token, first, end);
    after_operand_ = true;
  }

  void emit(const Token& token, std::size_t first, std::size_t end) {
    program_.add(token);
    if (places_ != nullptr) places_->push_back({first, end - first});
  }

  void fail(Error error) { error_ = std::move(error); }

  /// "expected EXPECTED before FOUND" and why, and at the end of the text which parenthesis is open.
  void failBefore(std::string_view expected, const Lexeme& found, std::string_view why = "") {
    if (found.kind == Lexeme::Kind::kEnd) {
      std::string message = fmt::format("expected {} before the end of the text{}", expected, why);
      for (auto frame = open_.rbegin(); frame != open_.rend(); ++frame) {
        if (frame->kind == Frame::Kind::kSign) continue;
        const Span where = *errorAt(text_, frame->offset, 1, {}).where;
        message += frame->kind == Frame::Kind::kCall ? fmt::format("; '{}(' is open", infoOf(frame->op).name)
                                                     : "; '(' is open";
        message += fmt::format(" since line {} column {}", where.line, where.column);
        break;
      }
      return fail(errorAt(text_, found.offset, 0, std::move(message)));
    }
    std::size_t length = found.length;
    const std::string name = found.kind == Lexeme::Kind::kOther ? nameCharacter(text_, found.offset, length)
                                                                : inQuotes(lexer_.textOf(found));
    fail(errorAt(text_, found.offset, length, fmt::format("expected {} before {}{}", expected, name, why)));
  }

  void failArguments(Op op, std::uint32_t given, const Lexeme& where) {
    const auto arity = static_cast<std::uint32_t>(arityOf(op));
    const std::string given_text = given > arity ? "more are"
                                   : given == 0  ? "none is"
                                   : given == 1  ? "1 is"
                                                 : fmt::format("{} are", given);
    fail(errorAt(text_, where.offset, where.length,
                 fmt::format("'{}' takes {} argument{}, but {} given", infoOf(op).name, arity, arity == 1 ? "" : "s",
                             given_text)));
  }

  std::string_view text_;
  const ColumnNames& columns_;
  Lexer lexer_;
  ProgramBuilder program_;
  std::vector<TextRange>* places_;  ///< of the text of each token, if wanted
  std::vector<Frame> open_;
  std::optional<Error> error_;
  bool after_operand_ = false;
  bool done_ = false;
};

}  // namespace

Result<ProgramNeeds> parseInfix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                                std::size_t max_nodes, std::vector<TextRange>* places) {
  return Parser(text, columns, tokens, max_nodes, places).run();
}

}  // namespace srjit::text

// JSON through nlohmann's event parser, which keeps its state on the heap; a tree of json values would recurse.
#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ir/ops.h"
#include "ir/text/lexer.h"
#include "ir/text/parsers.h"
#include "ir/text/words.h"

namespace srjit::text {
namespace {

/// Where the next event's text stands. The parser reports no places, but its events come in the order of the text.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {
    if (text.starts_with("\xef\xbb\xbf")) end_ = 3;  // the parser skips a byte order mark
  }

  void next() {
    start_ = end_;
    while (start_ < text_.size() && (isSpace(text_[start_]) || text_[start_] == ',' || text_[start_] == ':')) ++start_;
    end_ = start_;
    if (start_ == text_.size()) return;
    if (text_[start_] == '"') {
      do {
        end_ += text_[end_] == '\\' ? 2 : 1;
      } while (end_ < text_.size() && text_[end_] != '"');
      ++end_;
    } else if (isWordPart(text_[start_]) || text_[start_] == '-') {
      end_ = start_ + 1 + scanNumber(text_, start_ + 1);
    } else {
      ++end_;
    }
  }
  std::size_t start() const noexcept { return start_; }
  std::size_t length() const noexcept { return end_ - start_; }
  std::string_view word() const noexcept { return text_.substr(start_, length()); }

 private:
  std::string_view text_;
  std::size_t start_ = 0;
  std::size_t end_ = 0;
};

class Events final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Events(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens, std::size_t max_nodes)
      : text_(text), columns_(columns), cursor_(text), program_(tokens, max_nodes) {}

  Result<ProgramNeeds> take() {
    if (error_) return *std::move(error_);
    return program_.needs();
  }

  bool null() override { return misplaced(); }
  bool boolean(bool) override { return misplaced(); }
  bool number_integer(number_integer_t) override { return number(); }
  bool number_unsigned(number_unsigned_t) override { return number(); }
  bool number_float(number_float_t, const string_t&) override { return number(); }
  bool binary(binary_t&) override { return misplaced(); }

  bool string(string_t& value) override {
    cursor_.next();
    switch (expected_) {
      case Expected::kValue: {
        Token token;
        const bool negative = value == "-inf";
        if (!negative && value != "inf" && value != "nan") return failExpected();
        readWord(negative ? "inf" : value, columns_, token);
        return emit(negative ? negated(token) : token);
      }
      case Expected::kOpName:
        return operatorName(value);
      case Expected::kVariable: {
        const auto column = columns_.find(value);
        if (column) return leaf(Token::variable(*column));
        const WordKind kind = columns_.roleOf(value).empty() ? WordKind::kUnknown : WordKind::kNoVariable;
        return fail(wordError(text_, cursor_.start() + 1, value, "column", kind, columns_));
      }
      default:
        return failExpected();
    }
  }

  bool start_object(std::size_t) override {
    cursor_.next();
    if (expected_ != Expected::kValue) return failExpected();
    open_.push_back({});
    if (program_.isTooLong(open_.size())) return failTooLong();
    expected_ = Expected::kKey;
    return true;
  }

  bool key(string_t& name) override {
    cursor_.next();
    Object& object = open_.back();
    const auto expect = [&](bool allowed, Expected next) {
      if (!allowed)
        return fail(here(fmt::format(
            "unexpected key '{}': an object has \"op\" and \"args\", or \"var\", or \"param\", once", name)));
      expected_ = next;
      return true;
    };
    const bool call = !object.leaf;
    if (name == "op") return expect(call && !object.op, Expected::kOpName);
    if (name == "args") return expect(call && !object.has_arguments, Expected::kArguments);
    const bool empty = call && !object.op && !object.has_arguments;
    if (name == "var") return expect(empty, Expected::kVariable);
    if (name == "param") return expect(empty, Expected::kParameter);
    return fail(here(fmt::format("unknown key {}; expected \"op\", \"args\", \"var\" or \"param\"", inQuotes(name))));
  }

  bool end_object() override {
    cursor_.next();
    const Object object = open_.back();
    open_.pop_back();
    if (object.leaf) return emit(*object.leaf);
    if (!object.op && !object.has_arguments)
      return fail(here("expected a key \"op\", \"var\" or \"param\" before '}'"));
    if (!object.op) return fail(here("expected a key \"op\" beside \"args\" before '}'"));
    if (!object.has_arguments) return fail(here("expected a key \"args\" beside \"op\" before '}'"));
    const auto arity = static_cast<std::uint32_t>(arityOf(*object.op));
    if (object.arguments != arity) {
      return fail(here(fmt::format("'{}' takes {} argument{}, but {} {} given", infoOf(*object.op).name, arity,
                                   arity == 1 ? "" : "s", object.arguments, object.arguments == 1 ? "is" : "are")));
    }
    return emit(Token::operation(*object.op));
  }

  bool start_array(std::size_t) override {
    cursor_.next();
    if (expected_ != Expected::kArguments) return failExpected();
    open_.back().has_arguments = true;
    expected_ = Expected::kValue;
    return true;
  }

  bool end_array() override {
    cursor_.next();
    expected_ = Expected::kKey;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& exception) override {
    constexpr int kNumberOverflow = 406;
    if (exception.id == kNumberOverflow) {
      cursor_.next();
      const std::size_t sign = cursor_.word().starts_with('-') ? 1 : 0;
      return fail(numberError(text_, cursor_.start() + sign, cursor_.length() - sign));
    }
    const auto [offset, length] = faultAt(position);
    return fail(malformedJson(text_, offset, length, exception.what()));
  }

 private:
  enum class Expected : std::uint8_t { kValue, kKey, kOpName, kArguments, kVariable, kParameter };

  struct Object {
    std::optional<Op> op{};
    std::optional<Token> leaf{};
    std::uint32_t arguments = 0;
    bool has_arguments = false;
  };

  struct Place {
    std::size_t offset;
    std::size_t length;
  };

  /// The token that ends where the parser stopped, having read `position` bytes. The cursor would miss a ',' or ':'.
  Place faultAt(std::size_t position) {
    const std::size_t last = std::clamp<std::size_t>(position, 1, text_.size()) - 1;
    cursor_.next();
    const bool covered = cursor_.start() <= last && last < cursor_.start() + cursor_.length();
    return covered ? Place{cursor_.start(), cursor_.length()} : Place{last, 1};
  }

  bool number() {
    cursor_.next();
    std::string_view digits = cursor_.word();
    if (expected_ == Expected::kVariable || expected_ == Expected::kParameter) return index(digits);
    if (expected_ != Expected::kValue) return failExpected();
    const bool negative = digits[0] == '-';
    if (negative) digits.remove_prefix(1);
    double value = 0;
    if (readNumber(digits, value) != NumberFault::kNone) {
      return fail(numberError(text_, cursor_.start() + (negative ? 1 : 0), digits.size()));
    }
    return emit(Token::constant(negative ? -value : value));
  }

  bool index(std::string_view digits) {
    const bool variable = expected_ == Expected::kVariable;
    std::uint32_t index = 0;
    for (const char c : digits) {
      if (!isDigit(c)) return failExpected();
      index = index * 10 + static_cast<std::uint32_t>(c - '0');
      if (index > Expression::kMaxIndex) {
        Error error = here(fmt::format("{} index {} is above the largest index, {}",
                                       variable ? "variable" : "parameter", inQuotes(digits), Expression::kMaxIndex));
        error.code = Errc::kInvalid;
        return fail(std::move(error));
      }
    }
    return leaf(variable ? Token::variable(index) : Token::parameter(index));
  }

  bool operatorName(const std::string& name) {
    const auto op = findOp(name);
    if (!op) return fail(wordError(text_, cursor_.start() + 1, name, "function", WordKind::kUnknown, columns_));
    open_.back().op = op;
    expected_ = Expected::kKey;
    return true;
  }

  bool leaf(const Token& token) {
    open_.back().leaf = token;
    expected_ = Expected::kKey;
    return true;
  }

  bool emit(const Token& token) {
    program_.add(token);
    if (program_.isTooLong()) return failTooLong();
    if (!open_.empty()) ++open_.back().arguments;
    expected_ = Expected::kValue;
    return true;
  }

  bool misplaced() {
    cursor_.next();
    return failExpected();
  }

  bool failTooLong() { return fail(program_.tooLong(*here({}).where)); }

  bool failExpected() {
    constexpr std::string_view kExpected[] = {"an object, a number, \"inf\", \"-inf\" or \"nan\"",
                                              "a key",
                                              "the name of an operator",
                                              "an array of operands",
                                              "an index or a column name",
                                              "an index"};
    return fail(here(fmt::format("expected {} before {}", kExpected[static_cast<std::size_t>(expected_)],
                                 inQuotes(cursor_.word()))));
  }

  Error here(std::string message) const {
    return errorAt(text_, cursor_.start(), cursor_.length(), std::move(message));
  }

  bool fail(Error error) {
    error_ = std::move(error);
    return false;
  }

  std::string_view text_;
  const ColumnNames& columns_;
  Cursor cursor_;
  ProgramBuilder program_;
  std::vector<Object> open_;
  std::optional<Error> error_;
  Expected expected_ = Expected::kValue;
};

}  // namespace

// `what` is "[json...] parse error at ...: syntax error while parsing value - DETAIL; expected TOKEN". DETAIL is
// "unexpected TOKEN" or what the lexer found wrong, followed by "; last read: '...'".
Error malformedJson(std::string_view text, std::size_t offset, std::size_t length, std::string_view what) {
  if (const auto dash = what.find(" - "); dash != std::string_view::npos) what.remove_prefix(dash + 3);
  std::string_view expected;
  if (const auto at = what.rfind("; expected "); at != std::string_view::npos) expected = what.substr(at + 11);
  const std::string_view detail = what.substr(0, what.find("; "));
  if (detail == "unexpected end of input" || detail.ends_with("missing closing quote")) {
    offset = text.size();
    length = 0;
  }
  if (expected == "end of input") expected = "the end of the text";
  if (expected.empty() || !detail.starts_with("unexpected")) {
    return errorAt(text, offset, length, fmt::format("malformed JSON: {}", detail));
  }
  const std::string found = length == 0 ? "the end of the text" : inQuotes(text.substr(offset, length));
  return errorAt(text, offset, length, fmt::format("malformed JSON: expected {} before {}", expected, found));
}

Result<ProgramNeeds> parseJson(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                               std::size_t max_nodes) {
  Events events(text, columns, tokens, max_nodes);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

}  // namespace srjit::text

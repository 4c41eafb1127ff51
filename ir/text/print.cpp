// The printers of all forms that parse() reads.
#include <charconv>
#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ir/text.h"
#include "ir/text/lexer.h"
#include "ir/text/parsers.h"
#include "ir/text/tree_walk.h"
#include "ir/text/words.h"

namespace srjit {
namespace text {
namespace {

class Printer : TreeWalk {
 public:
  Printer(const Expression& expression, const ColumnNames& columns) : TreeWalk(expression), columns_(columns) {}

  std::string infix() {
    return written([this](const Item& item) { writeInfix(item); });
  }
  std::string prefix() {
    return written([this](const Item& item) { writePrefix(item); });
  }
  std::string json() {
    return written([this](const Item& item) { writeJson(item); });
  }
  std::string postfix() {
    for (const Token& token : tokens_) {
      if (!out_.empty()) out_ += ' ';
      writeWord(token);
    }
    return std::move(out_);
  }

 private:
  template <class Write>
  std::string written(const Write& write) {
    return walk(write, [this](std::string_view piece) { out_ += piece; }, kSum);
  }

  void pushList(const Operands& operands, std::string_view separator, std::string_view close, int level) {
    if (!close.empty()) pending_.push_back(piece(close));
    for (int i = operands.count - 1; i >= 0; --i) {
      pending_.push_back(subtree(operands.roots[i], level));
      if (i > 0) pending_.push_back(piece(separator));
    }
  }

  void writeInfix(const Item& item) {
    const Token& token = tokens_[item.root];
    const int level = levelOf(token);
    if (level < item.level) {
      out_ += '(';
      push({subtree(item.root, kSum), piece(")")});
      return;
    }
    if (token.kind != Token::Kind::kOp) return writeLeaf(token, false);
    const Operands operands = operandsOf(item.root);
    const Sign* sign = findSign(token.op);
    if (sign == nullptr) {
      out_ += infoOf(token.op).text;
      out_ += '(';
      pushList(operands, ", ", ")", kSum);
    } else if (operands.count == 1) {
      // A '-' directly before a plain constant would make a negative constant.
      const Token& operand = tokens_[operands.roots[0]];
      const bool plain = operand.kind == Token::Kind::kConstant && levelOf(operand) == kAtom;
      out_ += plain ? "-(" : "-";
      if (plain) pending_.push_back(piece(")"));
      pending_.push_back(subtree(operands.roots[0], sign->right));
    } else {
      push({subtree(operands.roots[0], sign->left), piece(spaced(*sign)), subtree(operands.roots[1], sign->right)});
    }
  }

  static std::string_view spaced(const Sign& sign) {
    switch (sign.op) {
      case Op::kAdd:
        return " + ";
      case Op::kSub:
        return " - ";
      case Op::kMul:
        return " * ";
      case Op::kDiv:
        return " / ";
      default:
        return sign.text;
    }
  }

  static int levelOf(const Token& token) {
    if (token.kind == Token::Kind::kConstant) return std::signbit(token.value) ? kUnary : kAtom;
    if (token.kind != Token::Kind::kOp) return kAtom;
    const Sign* sign = findSign(token.op);
    return sign == nullptr ? kAtom : sign->level;
  }

  void writePrefix(const Item& item) {
    writeWord(tokens_[item.root]);
    const Operands operands = operandsOf(item.root);
    if (operands.count == 0) return;
    pushList(operands, " ", {}, 0);
    pending_.push_back(piece(" "));
  }

  void writeJson(const Item& item) {
    const Token& token = tokens_[item.root];
    switch (token.kind) {
      case Token::Kind::kConstant:
        if (std::isfinite(token.value)) return writeNumber(token.value);
        out_ += '"';
        writeNumber(token.value);
        out_ += '"';
        return;
      case Token::Kind::kVariable:
        if (writeJsonColumn(token.index)) return;
        fmt::format_to(std::back_inserter(out_), "{{\"var\":{}}}", token.index);
        return;
      case Token::Kind::kParameter:
        fmt::format_to(std::back_inserter(out_), "{{\"param\":{}}}", token.index);
        return;
      case Token::Kind::kOp:
        fmt::format_to(std::back_inserter(out_), "{{\"op\":\"{}\",\"args\":[", infoOf(token.op).name);
        pushList(operandsOf(item.root), ",", "]}", 0);
        return;
    }
  }

  /// Writes a column by name, unless JSON cannot hold the name or another column has it.
  bool writeJsonColumn(std::uint32_t index) {
    if (index >= columns_.size() || columns_.find(columns_[index]) != index) return false;
    const std::string& name = columns_[index];
    char32_t code = 0;
    for (std::size_t i = 0; i < name.size();) {
      const std::size_t length = readCharacter(name, i, code);
      if (length == 0) return false;
      i += length;
    }
    out_ += "{\"var\":" + nlohmann::json(name).dump() + "}";
    return true;
  }

  void writeWord(const Token& token) {
    if (token.kind == Token::Kind::kOp) {
      out_ += infoOf(token.op).text;
    } else {
      writeLeaf(token, true);
    }
  }

  void writeLeaf(const Token& token, bool operators_win) {
    if (token.kind == Token::Kind::kConstant) return writeNumber(token.value);
    appendWord(out_, token, columns_, operators_win);
  }

  void writeNumber(double value) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    out_.append(digits, end);
  }

  const ColumnNames& columns_;
};

}  // namespace
}  // namespace text

std::string print(const Expression& expression, Language language, const ColumnNames& columns) {
  text::Printer printer(expression, columns);
  switch (language) {
    case Language::kInfix:
      return printer.infix();
    case Language::kPostfix:
      return printer.postfix();
    case Language::kPrefix:
      return printer.prefix();
    case Language::kJson:
      return printer.json();
  }
  return {};
}

}  // namespace srjit

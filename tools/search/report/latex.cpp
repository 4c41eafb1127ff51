#include "tools/search/report/latex.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numbers>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "ir/ops.h"
#include "ir/text/lexer.h"
#include "ir/text/words.h"

namespace srjit::search {
namespace {

/// How tightly a formula holds together, loosest first.
enum LatexLevel : int { kAnything = 0, kSumOf = 1, kProductOf = 2, kPowerOf = 3, kBaseOf = 4 };

/// What an operator is written as. In a pattern "@x2" is the operand x, in parentheses if its level is below 2; '*' is
/// a product's sign, which depends on what follows; "@n" is the operator's name. No operand is written twice: a formula
/// would grow exponentially.
struct LatexForm {
  LatexLevel level = kAnything;
  std::string_view pattern;
};

struct LatexRow {
  Op op;
  LatexForm form;
};

constexpr std::string_view kBracketOpen = "\\left[", kBracketClose = "\\right]", kCallOpen = "\\left(";

constexpr LatexRow kLatexRows[] = {
    {Op::kAdd, {kSumOf, "@x1 + @y2"}},
    {Op::kSub, {kSumOf, "@x1 - @y2"}},
    {Op::kMul, {kProductOf, "@x2*@y2"}},
    {Op::kDiv, {kPowerOf, "\\frac{@x0}{@y0}"}},
    {Op::kPow, {kPowerOf, "@x4^{@y0}"}},
    {Op::kNeg, {kProductOf, "-@x2"}},
    {Op::kFma, {kSumOf, "@x2*@y2 + @z2"}},
    {Op::kFms, {kSumOf, "@x2*@y2 - @z2"}},
    {Op::kFnma, {kSumOf, "@z1 - @x2*@y2"}},
    {Op::kInv, {kPowerOf, "\\frac{1}{@x0}"}},
    {Op::kSquare, {kPowerOf, "@x4^{2}"}},
    {Op::kCube, {kPowerOf, "@x4^{3}"}},
    {Op::kSqrt, {kBaseOf, "\\sqrt{@x0}"}},
    {Op::kCbrt, {kBaseOf, "\\sqrt[3]{@x0}"}},
    {Op::kAbs, {kBaseOf, "\\left|@x0\\right|"}},
    {Op::kMin, {kPowerOf, "\\min\\left(@x0, @y0\\right)"}},
    {Op::kMax, {kPowerOf, "\\max\\left(@x0, @y0\\right)"}},
    {Op::kFloor, {kBaseOf, "\\left\\lfloor @x0 \\right\\rfloor"}},
    {Op::kCeil, {kBaseOf, "\\left\\lceil @x0 \\right\\rceil"}},
    {Op::kMod, {kAnything, "@x3 \\bmod @y3"}},
    {Op::kExp, {kPowerOf, "\\exp\\left(@x0\\right)"}},
    {Op::kExp2, {kPowerOf, "2^{@x0}"}},
    {Op::kExpm1, {kSumOf, "\\exp\\left(@x0\\right) - 1"}},
    {Op::kLog, {kPowerOf, "\\log\\left(@x0\\right)"}},
    {Op::kLog2, {kPowerOf, "\\log_{2}\\left(@x0\\right)"}},
    {Op::kLog10, {kPowerOf, "\\log_{10}\\left(@x0\\right)"}},
    {Op::kLog1p, {kPowerOf, "\\log\\left(1 + @x1\\right)"}},
    {Op::kSin, {kPowerOf, "\\sin\\left(@x0\\right)"}},
    {Op::kCos, {kPowerOf, "\\cos\\left(@x0\\right)"}},
    {Op::kTan, {kPowerOf, "\\tan\\left(@x0\\right)"}},
    {Op::kAsin, {kPowerOf, "\\arcsin\\left(@x0\\right)"}},
    {Op::kAcos, {kPowerOf, "\\arccos\\left(@x0\\right)"}},
    {Op::kAtan, {kPowerOf, "\\arctan\\left(@x0\\right)"}},
    {Op::kSinh, {kPowerOf, "\\sinh\\left(@x0\\right)"}},
    {Op::kCosh, {kPowerOf, "\\cosh\\left(@x0\\right)"}},
    {Op::kTanh, {kPowerOf, "\\tanh\\left(@x0\\right)"}},
    {Op::kAsinh, {kPowerOf, "\\operatorname{arsinh}\\left(@x0\\right)"}},
    {Op::kAcosh, {kPowerOf, "\\operatorname{arcosh}\\left(@x0\\right)"}},
    {Op::kAtanh, {kPowerOf, "\\operatorname{artanh}\\left(@x0\\right)"}},
    {Op::kLogistic, {kPowerOf, "\\frac{1}{1 + \\exp\\left(-@x2\\right)}"}},
    {Op::kAq, {kPowerOf, "\\frac{@x0}{\\sqrt{1 + @y4^{2}}}"}},
    // 1 or 0, as Iverson's brackets are.
    {Op::kLt, {kBaseOf, "\\left[@x1 < @y1\\right]"}},
    {Op::kLe, {kBaseOf, "\\left[@x1 \\le @y1\\right]"}},
    {Op::kGt, {kBaseOf, "\\left[@x1 > @y1\\right]"}},
    {Op::kGe, {kBaseOf, "\\left[@x1 \\ge @y1\\right]"}},
    {Op::kIf, {kAnything, "\\begin{cases} @y0 & \\text{if } @c \\\\ @z0 & \\text{otherwise} \\end{cases}"}},
    {Op::kPsqrt, {kBaseOf, "\\sqrt{\\left|@x0\\right|}"}},
    {Op::kLooseSqrt, {kBaseOf, "\\sqrt{\\left|@x0\\right|}"}},
};

/// By operator; one without a row above is a call by its name.
constexpr std::array<LatexForm, kOpCount> kLatexForms = [] {
  std::array<LatexForm, kOpCount> forms{};
  std::size_t op = 0;
#define SRJIT_OP(id, name, text, arity, ...)                                          \
  forms[op++] = {kPowerOf, arity == 1   ? "\\operatorname{@n}\\left(@x0\\right)"      \
                           : arity == 2 ? "\\operatorname{@n}\\left(@x0, @y0\\right)" \
                                        : "\\operatorname{@n}\\left(@x0, @y0, @z0\\right)"};
#include "ir/ops.def"
#undef SRJIT_OP
  for (const LatexRow& row : kLatexRows) forms[static_cast<std::size_t>(row.op)] = row.form;
  return forms;
}();

const LatexForm& latexFormOf(Op op) { return kLatexForms[static_cast<std::size_t>(op)]; }

bool isComparison(const Token& token) {
  return token.kind == Token::Kind::kOp && latexFormOf(token.op).pattern.starts_with(kBracketOpen);
}

/// Whether its name may have an exponent: \sin^{2}\left(x\right).
bool isNamedFunction(const Token& token) {
  return token.kind == Token::Kind::kOp && token.op != Op::kExp &&
         latexFormOf(token.op).pattern.ends_with("\\left(@x0\\right)");
}

/// What a formula starts with.
enum class LatexLead : std::uint8_t { kOther, kMinus, kDigit };

struct LatexFacts {
  LatexLevel level = kBaseOf;
  LatexLead lead = LatexLead::kOther;
};

/// A piece of text, or a subtree still to be written.
struct LatexItem {
  std::string_view piece = {};
  std::uint32_t root = 0;            ///< the subtree's last token
  LatexLevel level = kAnything;      ///< the loosest level that needs no parentheses
  bool may_start_with_minus = true;  ///< without parentheses
  bool drops_minus = false;          ///< the sign before the subtree has it already
};

class LatexWriter {
 public:
  LatexWriter(const Expression& expression, const ColumnNames& columns)
      : tokens_(expression.tokens()), columns_(columns), starts_(subtreeStarts(tokens_)) {
    facts_.reserve(tokens_.size());
    for (std::uint32_t i = 0; i < tokens_.size(); ++i) facts_.push_back(factsOf(i));
    out_.reserve(tokens_.size() * 8);
  }

  std::string write() {
    pending_.push_back({.root = static_cast<std::uint32_t>(tokens_.size() - 1)});
    while (!pending_.empty()) {
      const LatexItem item = pending_.back();
      pending_.pop_back();
      if (item.piece.empty()) {
        writeSubtree(item);
      } else {
        out_ += item.piece;
      }
    }
    return std::move(out_);
  }

 private:
  std::uint32_t operandOf(std::uint32_t root, char letter) const {
    std::uint32_t operand = root - 1;
    for (int i = tokens_[root].arity() - 1; i > letter - 'x'; --i) operand = starts_[operand] - 1;
    return operand;
  }

  /// Of a token whose operands have theirs.
  LatexFacts factsOf(std::uint32_t root) const {
    const Token& token = tokens_[root];
    if (token.kind == Token::Kind::kConstant) return factsOfNumber(token.value);
    if (token.kind != Token::Kind::kOp) return {};
    const auto& [level, pattern] = latexFormOf(token.op);
    if (pattern[0] == '-') return {level, LatexLead::kMinus};
    if (text::isDigit(pattern[0])) return {level, LatexLead::kDigit};
    if (pattern[0] != '@') return {level};
    const LatexFacts& first = facts_[operandOf(root, pattern[1])];
    return {level, first.level < pattern[2] - '0' ? LatexLead::kOther : first.lead};
  }

  static LatexFacts factsOfNumber(double value) {
    const std::string number = constantText(value);
    const bool is_product = number.find("\\cdot") != std::string::npos;
    const LatexLevel level = number[0] == '-' || is_product          ? kProductOf
                             : number.find('^') != std::string::npos ? kPowerOf
                                                                     : kBaseOf;
    const LatexLead lead = number[0] == '-'           ? LatexLead::kMinus
                           : text::isDigit(number[0]) ? LatexLead::kDigit
                                                      : LatexLead::kOther;
    return {level, lead};
  }

  static std::string constantText(double value) {
    if (std::abs(value) == std::numbers::pi) return value < 0 ? "-\\pi" : "\\pi";
    return latexNumber(text::numberText(value, Precision::kF64));
  }

  bool endsWithSign() const { return out_.ends_with(" + ") || out_.ends_with(" - "); }

  void writeSubtree(LatexItem item) {
    const LatexFacts& facts = facts_[item.root];
    const bool has_minus = facts.lead == LatexLead::kMinus && !item.drops_minus;
    if (facts.level < item.level || (has_minus && !item.may_start_with_minus && !endsWithSign())) {
      out_ += kCallOpen;
      pending_.push_back({.piece = "\\right)"});
      pending_.push_back({.root = item.root});
      return;
    }
    if (has_minus && endsWithSign()) {  // a + -2 b is a - 2 b
      char& sign = out_[out_.size() - 2];
      sign = sign == '+' ? '-' : '+';
      item.drops_minus = true;
    }
    const Token& token = tokens_[item.root];
    switch (token.kind) {
      case Token::Kind::kConstant:
        out_ += constantText(item.drops_minus ? std::abs(token.value) : token.value);
        break;
      case Token::Kind::kVariable:
        out_ += columnText(token.index);
        break;
      case Token::Kind::kParameter:
        fmt::format_to(std::back_inserter(out_), "p_{{{}}}", token.index);
        break;
      case Token::Kind::kOp:
        writeOperation(item);
        break;
    }
  }

  std::string columnText(std::uint32_t index) const {
    if (index >= columns_.size() || columns_.find(columns_[index]) != index) return fmt::format("x_{{{}}}", index);
    return latexName(columns_[index]);
  }

  void writeOperation(const LatexItem& item) {
    const Token& token = tokens_[item.root];
    std::string_view pattern = latexFormOf(token.op).pattern;
    const bool is_minus = pattern[0] == '-';
    if (item.drops_minus && is_minus) pattern.remove_prefix(1);
    const std::size_t scheduled = pending_.size();
    const bool is_power = token.op == Op::kSquare || token.op == Op::kCube;
    if (is_power && isNamedFunction(tokens_[item.root - 1])) {
      const std::string_view exponent = pattern.substr(pattern.find('^'));
      const std::string_view call = latexFormOf(tokens_[item.root - 1].op).pattern;
      const std::size_t name = call.find(kCallOpen);
      schedule(item.root - 1, call.substr(0, name), false);
      schedule(item.root, exponent, false);
      schedule(item.root - 1, call.substr(name), false);
    } else {
      schedule(item.root, pattern, item.drops_minus && !is_minus);
    }
    std::reverse(pending_.begin() + static_cast<std::ptrdiff_t>(scheduled), pending_.end());
  }

  /// Appends the items of a pattern to those that are pending, the first one first. `drops_minus`: that of an operand
  /// at the start.
  void schedule(std::uint32_t root, std::string_view pattern, bool drops_minus) {
    for (bool is_first = true; !pattern.empty(); is_first = false) {
      if (pattern.starts_with("@n")) {
        scheduleName(infoOf(tokens_[root].op).name);
        pattern.remove_prefix(2);
      } else if (pattern.starts_with("@c")) {
        scheduleCondition(operandOf(root, 'x'));
        pattern.remove_prefix(2);
      } else if (pattern[0] == '@') {
        const auto level = static_cast<LatexLevel>(pattern[2] - '0');
        pending_.push_back({.root = operandOf(root, pattern[1]),
                            .level = level,
                            .may_start_with_minus = is_first || level < kProductOf,
                            .drops_minus = is_first && drops_minus});
        pattern.remove_prefix(3);
      } else if (pattern[0] == '*') {
        const LatexFacts& right = facts_[operandOf(root, pattern[2])];
        const bool is_number = right.lead == LatexLead::kDigit && right.level >= kProductOf;
        pending_.push_back({.piece = is_number ? " \\cdot " : " \\, "});
        pattern.remove_prefix(1);
      } else {
        const std::size_t length = std::min(pattern.find_first_of("@*"), pattern.size());
        pending_.push_back({.piece = pattern.substr(0, length)});
        pattern.remove_prefix(length);
      }
    }
  }

  void scheduleName(std::string_view name) {
    for (std::size_t end = name.find('_'); end != std::string_view::npos; end = name.find('_')) {
      pending_.push_back({.piece = name.substr(0, end)});
      pending_.push_back({.piece = "\\_"});
      name.remove_prefix(end + 1);
    }
    pending_.push_back({.piece = name});
  }

  void scheduleCondition(std::uint32_t root) {
    if (isComparison(tokens_[root])) {
      std::string_view pattern = latexFormOf(tokens_[root].op).pattern;
      pattern.remove_prefix(kBracketOpen.size());
      pattern.remove_suffix(kBracketClose.size());
      return schedule(root, pattern, false);
    }
    pending_.push_back({.root = root, .level = kSumOf});
    pending_.push_back({.piece = " > 0"});
  }

  std::span<const Token> tokens_;
  const ColumnNames& columns_;
  std::vector<std::uint32_t> starts_;
  std::vector<LatexFacts> facts_;  ///< by token
  std::vector<LatexItem> pending_;
  std::string out_;
};

}  // namespace

std::string latexText(const Expression& expression, const ColumnNames& columns) {
  return LatexWriter(expression, columns).write();
}

}  // namespace srjit::search

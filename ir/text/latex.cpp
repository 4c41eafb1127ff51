#include "ir/text/latex.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <unordered_map>

#include <fmt/format.h>

#include "ir/ops.h"
#include "ir/text/lexer.h"
#include "ir/text/tree_walk.h"
#include "ir/text/words.h"

namespace srjit::text {
namespace {

/// How tightly a formula holds together, loosest first.
enum LatexLevel : int { kAnything = 0, kSumOf = 1, kProductOf = 2, kPowerOf = 3, kBaseOf = 4 };

/// The forms of latex.def.
constexpr std::pair<Op, std::string_view> kLatexForms[] = {
#define SRJIT_LATEX(id, form) {Op::k##id, form},
#include "ir/text/latex.def"
#undef SRJIT_LATEX
};

/// Characters of text that LaTeX writes with a backslash before them, and those that it has a name for.
constexpr std::string_view kEscapedCharacters = "_%&#${}", kNamedCharacters = "~^\\<>|\"";
constexpr std::string_view kCharacterNames[] = {"asciitilde", "asciicircum", "backslash",    "less",
                                                "greater",    "bar",         "quotedblright"};

/// The Greek letters that LaTeX has, but for pi.
constexpr std::string_view kGreekLetters =
    " alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ";

std::string escapedForLatex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const std::size_t named = kNamedCharacters.find(c);
    if (named != std::string_view::npos) {
      out += fmt::format("\\text{}{{}}", kCharacterNames[named]);
    } else {
      out.append(kEscapedCharacters.find(c) == std::string_view::npos ? "" : "\\") += c;
    }
  }
  return out;
}

std::string latexFormFor(Op op) {
  const auto* const row = std::ranges::find(kLatexForms, op, &std::pair<Op, std::string_view>::first);
  const bool has_row = row != std::end(kLatexForms);
  if (has_row && row->second.find('@') != std::string_view::npos) return std::string(row->second);
  const std::string name =
      has_row ? std::string(row->second) : fmt::format("\\operatorname{{{}}}", escapedForLatex(infoOf(op).name));
  constexpr std::string_view kOperands = "@x0, @y0, @z0";
  return fmt::format("3{}\\left({}\\right)", name, kOperands.substr(0, static_cast<std::size_t>(5 * arityOf(op) - 2)));
}

const std::string& latexFormOf(Op op) {
  static const std::array<std::string, kOpCount> forms = [] {
    std::array<std::string, kOpCount> made;
    for (std::size_t i = 0; i < kOpCount; ++i) made[i] = latexFormFor(static_cast<Op>(i));
    return made;
  }();
  return forms[static_cast<std::size_t>(op)];
}

/// All of a name upright. Math has no spaces, and makes a minus of a hyphen.
std::string uprightName(std::string_view name) {
  return fmt::format("{}{{{}}}", std::ranges::all_of(name, isWordPart) ? "\\mathrm" : "\\text",
                     escapedForLatex(printable(name)));
}

/// A name without an index.
std::string latexWord(std::string_view word) {
  const bool is_letter = word.size() == 1 && isWordPart(word[0]) && !isDigit(word[0]) && word[0] != '_';
  if (is_letter) return std::string(word);
  const bool is_plain = std::ranges::all_of(word, isWordPart);
  if (is_plain && kGreekLetters.find(fmt::format(" {} ", word)) != std::string_view::npos)
    return fmt::format("\\{}", word);
  return uprightName(word);
}

std::string latexConstant(double value) {
  if (std::abs(value) == std::numbers::pi) return value < 0 ? "-\\pi" : "\\pi";
  return latexNumber(numberText(value, Precision::kF64));
}

/// How tightly a subtree holds together, and the first character of its text.
struct LatexFacts {
  int level = kBaseOf;
  char lead = ' ';
};

LatexFacts factsOfNumber(const std::string& number) {
  const bool is_product = number[0] == '-' || number.find("\\cdot") != std::string::npos;
  return {is_product ? kProductOf : number.find('^') != std::string::npos ? kPowerOf : kBaseOf, number[0]};
}

class LatexWriter : TreeWalk {
 public:
  LatexWriter(const Expression& expression, const ColumnNames& columns)
      : TreeWalk(expression), names_(latexNames(columns, expression.variableCount())) {
    facts_.reserve(tokens_.size());
    for (std::uint32_t i = 0; i < tokens_.size(); ++i) facts_.push_back(factsOf(i));
  }

  std::string write() {
    return walk([this](const Item& item) { writeSubtree(item); }, [this](std::string_view piece) { append(piece); });
  }

 private:
  /// A level of an item: also, that it must not start with a minus.
  static constexpr int kNoMinus = 8;

  bool isNumber(std::uint32_t root) const { return tokens_[root].kind == Token::Kind::kConstant; }

  std::uint32_t operandOf(std::uint32_t root, char letter) const {
    const Operands operands = operandsOf(root);
    const auto at = [&](char which) { return operands.roots[which - 'x']; };
    const bool is_product = operands.count > 1 && latexFormOf(tokens_[root].op).find("@x2*") != std::string::npos;
    if (letter == 'z' || !is_product || isNumber(at('x')) || !isNumber(at('y'))) return at(letter);
    return at(letter == 'x' ? 'y' : 'x');  // the number first
  }

  /// Of a token whose operands have theirs.
  LatexFacts factsOf(std::uint32_t root) const {
    if (isNumber(root)) return factsOfNumber(latexConstant(tokens_[root].value));
    if (tokens_[root].kind != Token::Kind::kOp) return {};
    const std::string& form = latexFormOf(tokens_[root].op);
    const int level = form[0] - '0';
    if (form[1] != '@') return {level, form[1]};
    const LatexFacts& first = facts_[operandOf(root, form[2])];
    return {level, first.level < form[3] - '0' ? ' ' : first.lead};
  }

  bool endsWithSign() const { return out_.ends_with(" + ") || out_.ends_with(" - "); }

  void append(std::string_view piece) {
    if (piece[0] == '-' && endsWithSign()) {  // a + -2 b is a - 2 b
      char& sign = out_[out_.size() - 2];
      sign = sign == '+' ? '-' : '+';
      piece.remove_prefix(1);
    }
    out_ += piece;
  }

  void writeSubtree(const Item& item) {
    const LatexFacts& facts = facts_[item.root];
    const bool is_second_sign = facts.lead == '-' && item.level >= kNoMinus && !endsWithSign();
    if (facts.level < item.level % kNoMinus || is_second_sign) {
      out_ += "\\left(";
      return push({subtree(item.root, kAnything), piece("\\right)")});
    }
    const Token& token = tokens_[item.root];
    switch (token.kind) {
      case Token::Kind::kConstant:
        return append(latexConstant(token.value));
      case Token::Kind::kVariable:
        return append(names_[token.index]);
      case Token::Kind::kParameter:
        return append(fmt::format("p_{{{}}}", token.index));
      case Token::Kind::kOp:
        return writeOperation(item.root);
    }
  }

  void writeOperation(std::uint32_t root) {
    const std::string_view form = latexFormOf(tokens_[root].op);
    const std::size_t scheduled = pending_.size();
    const Token& operand = tokens_[root - 1];
    const std::string_view call = operand.kind == Token::Kind::kOp ? latexFormOf(operand.op) : std::string_view{};
    // The exponent is behind the name of a function: \sin^{2}\left(x\right).
    if (form.starts_with("3@x4^{") && tokens_[root].arity() == 1 && call.ends_with("\\left(@x0\\right)") &&
        operand.op != Op::kExp) {
      const std::size_t name = call.find("\\left(");
      schedule(root - 1, call.substr(1, name - 1));
      schedule(root, form.substr(form.find('^')));
      schedule(root - 1, call.substr(name));
    } else {
      schedule(root, form.substr(1));
    }
    std::reverse(pending_.begin() + static_cast<std::ptrdiff_t>(scheduled), pending_.end());
  }

  /// Appends the items of a form to those that are pending, the first one first.
  void schedule(std::uint32_t root, std::string_view form) {
    for (bool is_first = true; !form.empty(); is_first = false) {
      std::size_t length = form.starts_with("@c") ? 2 : form[0] == '@' ? 3 : 1;
      if (form.starts_with("@c")) {
        scheduleCondition(operandOf(root, 'x'));
      } else if (form[0] == '@') {
        const int level = form[2] - '0';
        pending_.push_back(
            subtree(operandOf(root, form[1]), is_first || level < kProductOf ? level : level + kNoMinus));
      } else if (form[0] == '*') {
        const LatexFacts& right = facts_[operandOf(root, form[2])];
        pending_.push_back(piece(isDigit(right.lead) && right.level >= kProductOf ? " \\cdot " : " \\, "));
      } else {
        length = std::min(form.find_first_of("@*"), form.size());
        pending_.push_back(piece(form.substr(0, length)));
      }
      form.remove_prefix(length);
    }
  }

  void scheduleCondition(std::uint32_t root) {
    constexpr std::string_view kOpen = "4\\left[", kClose = "\\right]";
    const Token& token = tokens_[root];
    std::string_view form = token.kind == Token::Kind::kOp ? latexFormOf(token.op) : std::string_view{};
    if (form.starts_with(kOpen))
      return schedule(root, form.substr(kOpen.size(), form.size() - kOpen.size() - kClose.size()));
    pending_.push_back(subtree(root, kSumOf));
    pending_.push_back(piece(" > 0"));
  }

  std::vector<std::string> names_;  ///< by variable
  std::vector<LatexFacts> facts_;   ///< by token
};

}  // namespace

std::string latexText(const Expression& expression, const ColumnNames& columns) {
  return LatexWriter(expression, columns).write();
}

std::string latexName(std::string_view name) {
  std::size_t digits = name.size();
  while (digits > 0 && isDigit(name[digits - 1])) --digits;
  const std::size_t end = digits > 0 && name[digits - 1] == '_' ? digits - 1 : digits;
  if (digits == name.size() || end == 0) return latexWord(name);
  return fmt::format("{}_{{{}}}", latexWord(name.substr(0, end)), name.substr(digits));
}

std::vector<std::string> latexNames(const ColumnNames& columns, std::size_t count) {
  std::vector<std::string> names(std::max(count, columns.size()));
  std::unordered_map<std::string, std::size_t> uses;
  const auto isNamed = [&](std::size_t i) {
    return i < columns.size() && !columns[i].empty() && columns.find(columns[i]) == i;
  };
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = isNamed(i) ? latexName(columns[i]) : fmt::format("x_{{{}}}", i);
    ++uses[names[i]];
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (isNamed(i) && uses[names[i]] > 1) names[i] = uprightName(columns[i]);
  }
  return names;
}

std::string latexNumber(std::string_view digits) {
  if (!digits.empty() && digits[0] == '-') return "-" + latexNumber(digits.substr(1));
  if (digits == "inf") return "\\infty";
  if (digits == "nan") return "\\mathrm{NaN}";
  const std::size_t letter = digits.find('e');
  if (letter == std::string_view::npos) return std::string(digits);
  const std::string_view factor = digits.substr(0, letter);
  std::string_view exponent = digits.substr(letter + 1);
  const std::string_view sign = exponent.starts_with('-') ? "-" : "";
  exponent.remove_prefix(std::min(exponent.find_first_not_of("+-0"), exponent.size()));
  const std::string power = fmt::format("10^{{{}{}}}", sign, exponent);
  return factor == "1" ? power : fmt::format("{} \\cdot {}", factor, power);
}

}  // namespace srjit::text

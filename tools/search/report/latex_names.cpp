// Names and numbers.
#include <algorithm>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "tools/search/report/latex.h"

namespace srjit::search {
namespace {

/// The Greek letters that LaTeX has, but for pi.
constexpr std::string_view kGreekLetters[] = {
    "alpha", "beta",  "gamma", "delta",  "epsilon", "zeta",  "eta",     "theta", "iota", "kappa", "lambda",
    "mu",    "nu",    "xi",    "rho",    "sigma",   "tau",   "upsilon", "phi",   "chi",  "psi",   "omega",
    "Gamma", "Delta", "Theta", "Lambda", "Xi",      "Sigma", "Upsilon", "Phi",   "Psi",  "Omega"};

/// What stands for a character of text that means something else to LaTeX; empty for any other.
std::string_view escapeOf(char c) {
  switch (c) {
    case '_':
      return "\\_";
    case '%':
      return "\\%";
    case '&':
      return "\\&";
    case '#':
      return "\\#";
    case '$':
      return "\\$";
    case '{':
      return "\\{";
    case '}':
      return "\\}";
    case '~':
      return "\\textasciitilde{}";
    case '^':
      return "\\textasciicircum{}";
    case '\\':
      return "\\textbackslash{}";
    case '<':
      return "\\textless{}";
    case '>':
      return "\\textgreater{}";
    case '|':
      return "\\textbar{}";
    case '"':
      return "\\textquotedblright{}";
    default:
      return {};
  }
}

std::string escapedForLatex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const std::string_view escape = escapeOf(c);
    if (escape.empty()) {
      out += c;
    } else {
      out += escape;
    }
  }
  return out;
}

/// A name without an index.
std::string latexWord(std::string_view word) {
  const bool is_letter = word.size() == 1 && text::isWordPart(word[0]) && !text::isDigit(word[0]) && word[0] != '_';
  if (is_letter) return std::string(word);
  if (std::ranges::count(kGreekLetters, word) != 0) return "\\" + std::string(word);
  // Upright math has no spaces, and makes a minus of a hyphen.
  return fmt::format("{}{{{}}}", std::ranges::all_of(word, text::isWordPart) ? "\\mathrm" : "\\text",
                     escapedForLatex(text::printable(word)));
}

}  // namespace

std::string latexName(std::string_view name) {
  std::size_t digits = name.size();
  while (digits > 0 && text::isDigit(name[digits - 1])) --digits;
  const std::size_t end = digits > 0 && name[digits - 1] == '_' ? digits - 1 : digits;
  if (digits == name.size() || end == 0) return latexWord(name);
  return fmt::format("{}_{{{}}}", latexWord(name.substr(0, end)), name.substr(digits));
}

std::string latexNumber(std::string_view digits) {
  if (!digits.empty() && digits[0] == '-') return "-" + latexNumber(digits.substr(1));
  if (digits == "inf") return "\\infty";
  if (digits == "nan") return "\\mathrm{NaN}";
  const std::size_t letter = digits.find('e');
  if (letter == std::string_view::npos) return std::string(digits);
  const std::string_view factor = digits.substr(0, letter);
  std::string_view exponent = digits.substr(letter + 1);
  const bool is_negative = exponent.starts_with('-');
  exponent.remove_prefix(std::min(exponent.find_first_not_of("+-0"), exponent.size()));
  const std::string power = fmt::format("10^{{{}{}}}", is_negative ? "-" : "", exponent);
  return factor == "1" ? power : fmt::format("{} \\cdot {}", factor, power);
}

}  // namespace srjit::search

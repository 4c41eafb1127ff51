#include "tools/search/trees/look_alikes.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "ir/text.h"
#include "passes/shorten/normal_form.h"

namespace srjit::search {
namespace {

constexpr double kMostSmall = 0.5, kFirstShare = 1e-4;  // of v; and to begin a fit with
constexpr std::size_t kMostColumns = 5;                 // of a product

// 1 + v + ..., in which {0} is v, the root of -v, or the root of v.
constexpr const char* kOfSum[] = {"(1 + {0})",
                                  "1 / (1 - {0})",
                                  "exp({0})",
                                  "sqrt(1 + 2*{0})",
                                  "1 / sqrt(1 - 2*{0})",
                                  "1 / square(1 - {0}/2)",
                                  "2*{0} / (1 - exp(-2*{0}))",
                                  "(exp(2*{0}) - 1) / (2*{0})",
                                  "log(1 - 2*{0}) / (-2*{0})"};
constexpr const char* kOfFall[] = {"cos(sqrt(2)*{0})", "sin(sqrt(6)*{0}) / (sqrt(6)*{0})",
                                   "tanh(sqrt(3)*{0}) / (sqrt(3)*{0})", "atan(sqrt(3)*{0}) / (sqrt(3)*{0})"};
constexpr const char* kOfRise[] = {"1 / cos(sqrt(2)*{0})", "sqrt(6)*{0} / sin(sqrt(6)*{0})",
                                   "tan(sqrt(3)*{0}) / (sqrt(3)*{0})", "asin(sqrt(6)*{0}) / (sqrt(6)*{0})"};

Expression readInfix(const std::string& text) { return parse(text, Language::kInfix).value(); }

/// In parentheses.
std::string infixOf(std::span<const Token> tokens) {
  return "(" + print(Expression::create({tokens.begin(), tokens.end()}).value(), Language::kInfix) + ")";
}

/// Products of columns, with another one added, in which the exponents of some are larger by 1 or 2.
std::vector<Expression> completionsOf(const Expression& formula, std::span<const Interval> ranges) {
  std::vector<Expression> completions;
  NormalForms normal(ranges, false);
  const std::vector<Power> powers = normal.powersOf(normal.read(formula).term);
  const auto isColumn = [&](const Power& power) {
    return normal.term(power.base).kind == srjit::Term::Kind::kVariable;
  };
  if (normal.hasFailed() || powers.size() > kMostColumns || !std::ranges::all_of(powers, isColumn)) return completions;
  for (unsigned i = 2; i < 2U << powers.size(); ++i) {
    std::string term = "1";
    for (std::size_t k = 0; k < powers.size(); ++k) {
      const double more = std::copysign((i >> (k + 1) & 1) * (1 + i % 2), powers[k].exponent);
      term += fmt::format(" * x{}^({})", normal.term(powers[k].base).index, powers[k].exponent + more);
    }
    const double share =
        kFirstShare * evaluateInterval(formula, ranges).high / evaluateInterval(readInfix(term), ranges).high;
    if (!std::isnormal(share)) continue;
    completions.push_back(readInfix(fmt::format("{} + {} * {}", infixOf(formula.tokens()), share, term)));
  }
  return completions;
}

}  // namespace

std::vector<Expression> lookAlikesOf(const Expression& formula, std::span<const Interval> ranges,
                                     const Writing& writing) {
  const std::span<const Token> tokens = formula.tokens();
  const std::vector<std::uint32_t> begins = subtreeStarts(tokens);
  // An even function of a root needs no magnitude.
  const std::vector<Interval> positive(ranges.size(), {0, HUGE_VAL});
  std::vector<Expression> alikes = completionsOf(formula, ranges);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto add = [&](const std::string& lead, const std::string& small) {
      const Interval range = evaluateInterval(readInfix(small), ranges);
      if (!(range.low >= -kMostSmall && range.high <= kMostSmall) || range.may_be_nan) return;
      const auto addAll = [&](std::span<const char* const> texts, const std::string& by) {
        for (const char* const text : texts) {
          std::vector<Token> whole(tokens.begin(), tokens.begin() + begins[i]);
          const Expression function = shortest(readInfix(fmt::format(fmt::runtime(text), by)), positive, writing);
          const Expression part = readInfix(lead + " * " + infixOf(function.tokens()));
          whole.insert(whole.end(), part.tokens().begin(), part.tokens().end());
          whole.insert(whole.end(), tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1, tokens.end());
          alikes.push_back(Expression::create(std::move(whole)).value());
        }
      };
      addAll(kOfSum, small);
      if (range.high <= 0) addAll(kOfFall, "sqrt(-" + small + ")");
      if (range.low >= 0) addAll(kOfRise, "sqrt" + small);
    };
    if (tokens[i] == Token::operation(Op::kExp)) add("1", infixOf(tokens.subspan(begins[i], i - begins[i])));
    if (tokens[i] != Token::operation(Op::kAdd) && tokens[i] != Token::operation(Op::kSub)) continue;
    const std::string left = infixOf(tokens.subspan(begins[i], begins[i - 1] - begins[i]));
    const std::string right = infixOf(tokens.subspan(begins[i - 1], i - begins[i - 1]));
    const std::string addend = tokens[i].op == Op::kSub ? "(-" + right + ")" : right;
    add(left, "(" + addend + " / " + left + ")");
    add(addend, "(" + left + " / " + addend + ")");
  }
  return alikes;
}

}  // namespace srjit::search

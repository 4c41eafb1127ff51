#include "tools/search/trees/look_alikes.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "ir/text.h"
#include "passes/shorten/ranges.h"

namespace srjit::search {
namespace {

constexpr double kMostSmall = 0.5, kFirstShare = 1e-4;  // of v; and to begin a fit with
constexpr double kMostSplits = 64;                      // of a product

// 1 + v + ..., in which {0} is v, the root of -v, or the root of v.
constexpr const char* kOfSum[] = {"(1 + {0})",
                                  "1 / (1 - {0})",
                                  "exp({0})",
                                  "sqrt(1 + 2*{0})",
                                  "1 / sqrt(1 - 2*{0})",
                                  "square(1 + {0}/2)",
                                  "1 / square(1 - {0}/2)",
                                  "2*{0} / (1 - exp(-2*{0}))",
                                  "(exp(2*{0}) - 1) / (2*{0})",
                                  "log(1 + 2*{0}) / (2*{0})"};
constexpr const char* kOfFall[] = {"cos(sqrt(2)*{0})", "sin(sqrt(6)*{0}) / (sqrt(6)*{0})",
                                   "tanh(sqrt(3)*{0}) / (sqrt(3)*{0})", "atan(sqrt(3)*{0}) / (sqrt(3)*{0})"};
constexpr const char* kOfRise[] = {"1 / cos(sqrt(2)*{0})",
                                   "sqrt(6)*{0} / sin(sqrt(6)*{0})",
                                   "cosh(sqrt(2)*{0})",
                                   "tan(sqrt(3)*{0}) / (sqrt(3)*{0})",
                                   "asin(sqrt(6)*{0}) / (sqrt(6)*{0})",
                                   "sinh(sqrt(6)*{0}) / (sqrt(6)*{0})"};

Expression readInfix(const std::string& text) { return parse(text, Language::kInfix).value(); }

/// In parentheses.
std::string infixOf(std::span<const Token> tokens) {
  return "(" + print(Expression::create({tokens.begin(), tokens.end()}).value(), Language::kInfix) + ")";
}

/// Products of columns, with another one added whose exponents are larger by up to once or twice themselves.
std::vector<Expression> completionsOf(const Expression& formula, std::span<const Interval> ranges) {
  NormalForms normal(ranges, false);
  const srjit::Value value = normal.read(formula);
  const std::vector<Power> powers = normal.hasFailed() ? std::vector<Power>() : normal.powersOf(value.term);
  const auto splitsOf = [](const Power& power) { return std::fabs(std::trunc(power.exponent)) + 1; };
  double count = 1;
  for (const Power& power : powers) {
    count *= normal.term(power.base).kind == srjit::Term::Kind::kVariable ? splitsOf(power) : HUGE_VAL;
  }
  std::vector<Expression> completions;
  for (double i = 2; i < 2 * count && count <= kMostSplits; ++i) {
    const double times = std::fmod(i, 2) + 1;
    double rest = std::floor(i / 2);
    std::string term = "1";
    for (const Power& power : powers) {
      const double more = std::copysign(times * std::fmod(rest, splitsOf(power)), power.exponent);
      term += fmt::format(" * x{}^({})", normal.term(power.base).index, power.exponent + more);
      rest = std::floor(rest / splitsOf(power));
    }
    const double share =
        kFirstShare * evaluateInterval(formula, ranges).high / evaluateInterval(readInfix(term), ranges).high;
    if (std::isnormal(share))
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
          const Expression part = readInfix(lead + " * " + fmt::format(fmt::runtime(text), by));
          whole.insert(whole.end(), part.tokens().begin(), part.tokens().end());
          whole.insert(whole.end(), tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1, tokens.end());
          alikes.push_back(shortest(Expression::create(std::move(whole)).value(), positive, writing));
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

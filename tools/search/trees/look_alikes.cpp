#include "tools/search/trees/look_alikes.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ir/text.h"
#include "passes/shorten/ranges.h"
#include "tools/search/trees/arrays.h"

namespace srjit::search {
namespace {

using Tokens = std::vector<Token>;

constexpr double kMostSmall = 0.5, kFirstShare = 1e-4;  // of v; and to begin a fit with
constexpr std::size_t kMostSplits = 64;                 // of a product

/// 1 + v + ..., in which x0 is v, or the root of v or of -v.
struct LookAlike {
  int sign;  ///< of the square; 0: x0 is v itself
  const char* text;
};
constexpr LookAlike kLookAlikes[] = {{0, "1 + x0"},
                                     {0, "1 / (1 - x0)"},
                                     {0, "exp(x0)"},
                                     {0, "sqrt(1 + 2 * x0)"},
                                     {0, "1 / sqrt(1 - 2 * x0)"},
                                     {0, "square(1 + x0 / 2)"},
                                     {0, "1 / square(1 - x0 / 2)"},
                                     {0, "2 * x0 / (1 - exp(-2 * x0))"},
                                     {0, "(exp(2 * x0) - 1) / (2 * x0)"},
                                     {0, "log(1 + 2 * x0) / (2 * x0)"},
                                     {-1, "cos(sqrt(2) * x0)"},
                                     {-1, "sin(sqrt(6) * x0) / (sqrt(6) * x0)"},
                                     {-1, "tanh(sqrt(3) * x0) / (sqrt(3) * x0)"},
                                     {-1, "atan(sqrt(3) * x0) / (sqrt(3) * x0)"},
                                     {1, "1 / cos(sqrt(2) * x0)"},
                                     {1, "sqrt(6) * x0 / sin(sqrt(6) * x0)"},
                                     {1, "tan(sqrt(3) * x0) / (sqrt(3) * x0)"},
                                     {1, "asin(sqrt(6) * x0) / (sqrt(6) * x0)"},
                                     {1, "cosh(sqrt(2) * x0)"},
                                     {1, "sinh(sqrt(6) * x0) / (sqrt(6) * x0)"}};

/// f(u) is u^power (1 + square u^2 + ...).
struct Series {
  Op op;
  int power;
  double square;
};
constexpr Series kSeries[] = {{Op::kSin, 1, -1.0 / 6},  {Op::kTan, 1, 1.0 / 3},   {Op::kAsin, 1, 1.0 / 6},
                              {Op::kAtan, 1, -1.0 / 3}, {Op::kTanh, 1, -1.0 / 3}, {Op::kSinh, 1, 1.0 / 6},
                              {Op::kCos, 0, -1.0 / 2},  {Op::kCosh, 0, 1.0 / 2}};

/// A part u (1 + v) of a formula.
struct NearlyPart {
  std::size_t begin, end;
  Tokens lead, small;
};

Tokens joined(std::initializer_list<std::span<const Token>> parts) {
  Tokens all;
  for (const std::span<const Token> part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Tokens number(double value) { return {Token::constant(value)}; }
Tokens single(Op one) { return {Token::operation(one)}; }

std::vector<NearlyPart> partsOf(std::span<const Token> tokens) {
  const std::vector<std::uint32_t> begins = subtreeStarts(tokens);
  std::vector<NearlyPart> parts;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].kind != Token::Kind::kOp) continue;
    const std::size_t begin = begins[i], middle = begins[i - 1];
    const std::span<const Token> right = tokens.subspan(middle, i - middle),
                                 left = tokens.subspan(begin, middle - begin);
    if (tokens[i].op == Op::kAdd || tokens[i].op == Op::kSub) {
      const Tokens sign = number(tokens[i].op == Op::kAdd ? 1 : -1),
                   signed_right = joined({sign, right, single(Op::kMul)});
      parts.push_back({begin, i + 1, joined({left}), joined({signed_right, left, single(Op::kDiv)})});
      parts.push_back({begin, i + 1, signed_right, joined({left, signed_right, single(Op::kDiv)})});
    }
    if (tokens[i].op == Op::kExp) parts.push_back({begin, i + 1, number(1), joined({right})});
    for (const auto& [function, power, square] : kSeries) {
      if (tokens[i].op != function) continue;
      parts.push_back({begin, i + 1, power == 0 ? number(1) : joined({right}),
                       joined({right, single(Op::kSquare), number(square), single(Op::kMul)})});
    }
  }
  return parts;
}

Expression expressionOf(Tokens tokens) { return Expression::create(std::move(tokens)).value(); }

/// The largest magnitude.
double sizeOf(const Expression& expression, std::span<const Interval> ranges) {
  const Interval range = evaluateInterval(expression, ranges);
  return std::max(std::fabs(range.low), std::fabs(range.high));
}

/// A product of columns and another one, whose exponents are larger by up to once or twice themselves.
void addCompletions(const Expression& formula, std::span<const Interval> ranges, std::vector<Tokens>& all) {
  NormalForms normal(ranges, false);
  const srjit::Value value = normal.read(formula);
  if (normal.hasFailed()) return;
  const std::vector<Power> powers = normal.powersOf(value.term);
  const auto splitsOf = [](const Power& power) { return std::min(std::fabs(std::trunc(power.exponent)), 9.0) + 1; };
  double count = 1;
  for (const Power& power : powers) {
    if (normal.term(power.base).kind != srjit::Term::Kind::kVariable) return;
    count *= splitsOf(power);
  }
  if (count > kMostSplits) return;
  for (const double times : {1, 2}) {
    for (double i = 1; i < count; ++i) {
      Tokens part = number(1);
      double rest = i;
      for (const Power& power : powers) {
        const double more = std::copysign(times * std::fmod(rest, splitsOf(power)), power.exponent);
        rest = std::floor(rest / splitsOf(power));
        part = joined({part, Tokens{Token::variable(normal.term(power.base).index)}, number(power.exponent + more),
                       single(Op::kPow), single(Op::kMul)});
      }
      const double share = kFirstShare * sizeOf(formula, ranges) / sizeOf(expressionOf(part), ranges);
      if (!std::isnormal(share)) continue;
      all.push_back(joined({formula.tokens(), part, number(share), single(Op::kMul), single(Op::kAdd)}));
    }
  }
}

}  // namespace

std::vector<Expression> lookAlikesOf(const Expression& formula, std::span<const Interval> ranges,
                                     const Writing& writing) {
  static const std::vector<Expression> texts = [] {
    std::vector<Expression> parsed;
    for (const LookAlike& one : kLookAlikes) parsed.push_back(parse(one.text, Language::kInfix).value());
    return parsed;
  }();
  const std::span<const Token> tokens = formula.tokens();
  std::vector<Tokens> all;
  for (const auto& [begin, end, lead, small] : partsOf(tokens)) {
    const Interval range = evaluateInterval(expressionOf(small), ranges);
    if (!(range.low >= -kMostSmall && range.high <= kMostSmall) || range.may_be_nan) continue;
    for (std::size_t k = 0; k < texts.size(); ++k) {
      const int sign = kLookAlikes[k].sign;
      if (sign != 0 && (sign < 0 ? range.high > 0 : range.low < 0)) continue;
      const Tokens root = joined({small, number(sign), single(Op::kMul), single(Op::kSqrt)});
      Tokens whole = joined({tokens.first(begin), lead});
      for (const Token& token : texts[k].tokens()) {
        const bool is_small = token.kind == Token::Kind::kVariable;
        const std::span<const Token> own = is_small ? (sign == 0 ? small : root) : std::span(&token, 1);
        whole.insert(whole.end(), own.begin(), own.end());
      }
      all.push_back(joined({whole, single(Op::kMul), tokens.subspan(end)}));
    }
  }
  // An even function of a root needs no magnitude.
  const std::vector<Interval> positive(ranges.size(), {0, HUGE_VAL});
  std::vector<Expression> alikes;
  std::vector<Tokens> completions;
  addCompletions(formula, ranges, completions);
  for (Tokens& one : completions) alikes.push_back(expressionOf(std::move(one)));
  for (Tokens& one : all) {
    Expression alike = shortest(expressionOf(std::move(one)), positive, writing);
    if (alike != formula && std::ranges::find(alikes, alike) == alikes.end()) alikes.push_back(std::move(alike));
  }
  return alikes;
}

}  // namespace srjit::search

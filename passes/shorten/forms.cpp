#include "passes/shorten/forms.h"

#include <algorithm>
#include <utility>

#include "passes/shorten/writer.h"

namespace srjit {
namespace {

/// The cost, as if powers of exponentials were written exp(2 * u).
std::size_t costOf(const Expression& expression, const Writing& writing) {
  std::size_t cost = 0;
  const auto costOfOp = [&](Op op) { return writing.costs[static_cast<std::size_t>(op)]; };
  bool follows_exp = false;
  for (const Token& token : expression.tokens()) {
    const bool is_op = token.kind == Token::Kind::kOp;
    const bool is_power = is_op && (token.op == Op::kSquare || token.op == Op::kCube || token.op == Op::kSqrt);
    cost += is_power && follows_exp                ? costOfOp(Op::kMul) + writing.constant_cost
            : is_op                                ? costOfOp(token.op)
            : token.kind == Token::Kind::kVariable ? writing.variable_cost
                                                   : writing.constant_cost;
    follows_exp = is_op && token.op == Op::kExp;
  }
  return cost;
}

/// Writings of `expression` in all tastes, also multiplied out if that is possible, or in one; none if it cannot be
/// read.
std::vector<Written> writingsOf(const Expression& expression, std::span<const Interval> ranges, const Writing& writing,
                                bool has_one) {
  std::vector<Written> written;
  if (expression.size() > kMostShortened) return {};
  Writing allowed = writing;
  for (const Token& token : expression.tokens()) {
    if (token.kind == Token::Kind::kOp) allowed.operators.set(static_cast<std::size_t>(token.op));
  }
  for (const bool expands : {false, true}) {
    NormalForms normal(ranges, expands);
    const Value value = normal.read(expression);
    if (normal.hasFailed()) return {};
    if (expands && !normal.hasExpanded()) break;
    for (const Taste taste : {Taste::kEasy, Taste::kInside, Taste::kOutside}) {
      written.push_back(Writer(normal, allowed, taste).write(value));
      if (has_one) return written;
    }
  }
  return written;
}

}  // namespace

Writing Writing::withAll() {
  Writing writing;
  writing.operators.set();
  writing.costs.fill(1);
  return writing;
}

std::vector<Expression> shorten(const Expression& expression, std::span<const Interval> ranges,
                                const Writing& writing) {
  std::vector<Written> written = writingsOf(expression, ranges, writing, false);
  std::ranges::stable_sort(written, [](const Written& a, const Written& b) {
    return std::pair(a.cost, a.effort) < std::pair(b.cost, b.effort);
  });
  const std::size_t most = costOf(expression, writing);
  std::vector<Expression> forms;
  for (Written& one : written) {
    if (one.cost > most) continue;
    Expression form = Expression::create(std::move(one.tokens)).value();
    if (std::ranges::find(forms, form) == forms.end()) forms.push_back(std::move(form));
  }
  if (forms.empty()) forms.push_back(expression);
  return forms;
}

Expression shortest(const Expression& expression, std::span<const Interval> ranges, const Writing& writing) {
  std::vector<Written> written = writingsOf(expression, ranges, writing, true);
  if (written.empty() || written[0].cost > costOf(expression, writing)) return expression;
  return Expression::create(std::move(written[0].tokens)).value();
}

}  // namespace srjit

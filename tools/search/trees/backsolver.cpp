#include "tools/search/trees/backsolver.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "ir/rows.h"
#include "tools/search/formulas/scaling.h"

namespace srjit::search {
namespace {

constexpr std::size_t kSolvedRows = 64;
constexpr std::size_t kMostSummands = 3;
constexpr std::size_t kTermTokens[] = {1, 3, 100};           // columns, products and functions of columns, all
constexpr std::size_t kMostSubtrees = 60, kMostTokens = 12;  // of other trees
constexpr double kPlainTarget = 0.5;                         // trees that shall be y itself, not the best (y - a) / b
constexpr double kLinked = 0.5;                              // sums that a function is put above
constexpr double kMostLost = 0.25;                           // of the rows, those without a wanted value

constexpr double kSame = 1e-6;  // relative error within which an inverse is one
constexpr double kTurn = 2 * std::numbers::pi;

double nearest(double a, double period, double x) { return a + period * std::rint((x - a) / period); }

double nearer(double a, double b, double x) { return std::fabs(a - x) < std::fabs(b - x) ? a : b; }

/// An operand for which an operator may give y: `other` is the other operand, x the present value of this one.
struct Inverse {
  Op op;
  std::size_t operand;
  double (*of)(double y, double other, double x);
};

constexpr Inverse kInverses[] = {
    {Op::kAdd, 0, [](double y, double other, double) { return y - other; }},
    {Op::kAdd, 1, [](double y, double other, double) { return y - other; }},
    {Op::kSub, 0, [](double y, double other, double) { return y + other; }},
    {Op::kSub, 1, [](double y, double other, double) { return other - y; }},
    {Op::kMul, 0, [](double y, double other, double) { return y / other; }},
    {Op::kMul, 1, [](double y, double other, double) { return y / other; }},
    {Op::kDiv, 0, [](double y, double other, double) { return y * other; }},
    {Op::kDiv, 1, [](double y, double other, double) { return other / y; }},
    {Op::kPow, 0, [](double y, double n, double x) { return std::copysign(real::pow(std::fabs(y), 1 / n), x); }},
    {Op::kPow, 1, [](double y, double base, double) { return real::log(y) / real::log(base); }},
    {Op::kNeg, 0, [](double y, double, double) { return -y; }},
    {Op::kInv, 0, [](double y, double, double) { return 1 / y; }},
    {Op::kSquare, 0, [](double y, double, double x) { return std::copysign(std::sqrt(y), x); }},
    {Op::kCube, 0, [](double y, double, double) { return real::cbrt(y); }},
    {Op::kSqrt, 0, [](double y, double, double) { return y * y; }},
    {Op::kAbs, 0, [](double y, double, double x) { return std::copysign(y, x); }},
    {Op::kExp, 0, [](double y, double, double) { return real::log(y); }},
    {Op::kLog, 0, [](double y, double, double) { return real::exp(y); }},
    {Op::kSin, 0,
     [](double y, double, double x) {
       const double a = real::asin(y);
       return nearer(nearest(a, kTurn, x), nearest(std::numbers::pi - a, kTurn, x), x);
     }},
    {Op::kCos, 0,
     [](double y, double, double x) {
       const double a = real::acos(y);
       return nearer(nearest(a, kTurn, x), nearest(-a, kTurn, x), x);
     }},
    {Op::kTan, 0, [](double y, double, double x) { return nearest(real::atan(y), std::numbers::pi, x); }},
    {Op::kTanh, 0, [](double y, double, double) { return real::atanh(y); }},
    {Op::kAsin, 0, [](double y, double, double) { return real::sin(y); }},
    {Op::kAcos, 0, [](double y, double, double) { return real::cos(y); }},
    {Op::kAtan, 0, [](double y, double, double) { return real::tan(y); }},
};

/// The last tokens of the operands of an operator.
std::array<std::size_t, kMaxArity> operandsOf(const TreeView& tree, std::size_t at) {
  std::array<std::size_t, kMaxArity> ends{};
  std::size_t end = at;
  for (auto k = static_cast<std::size_t>(arityOf(tree.codes[at])); k-- > 0;) {
    ends[k] = end - 1;
    end = subtreeBegin(tree.codes, end - 1);
  }
  return ends;
}

}  // namespace

std::vector<double> subtreeValues(const TreeView& tree, std::span<const std::vector<double>> columns,
                                  std::size_t rows) {
  std::vector<double> values(tree.size() * rows);
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const std::span<double> own = std::span(values).subspan(i * rows, rows);
    const Token token = tree[i];
    if (token.kind == Token::Kind::kConstant) {
      std::ranges::fill(own, token.value);
    } else if (token.kind != Token::Kind::kOp) {
      std::ranges::copy(columns[token.index], own.begin());
    } else {
      const auto ends = operandsOf(tree, i);
      const double* x = &values[ends[0] * rows];
      const double* y = &values[ends[1] * rows];
      const double* z = &values[ends[2] * rows];
      for (std::size_t r = 0; r < rows; ++r) own[r] = applyRow(token.op, x[r], y[r], z[r]);
    }
  }
  return values;
}

std::optional<Wanted> wantedOf(const TreeView& tree, std::size_t last, std::span<const double> values,
                               std::span<const double> target) {
  const std::size_t rows = target.size();
  Wanted wanted{{target.begin(), target.end()}, std::vector<double>(rows, 1)};
  for (std::size_t at = tree.size() - 1; at != last;) {
    const Op op = tree[at].op;
    const auto ends = operandsOf(tree, at);
    const auto k =
        static_cast<std::size_t>(std::ranges::find_if(ends, [&](auto end) { return end >= last; }) - ends.begin());
    const auto inverse =
        std::ranges::find_if(kInverses, [&](const auto& one) { return one.op == op && one.operand == k; });
    if (inverse == std::end(kInverses)) return {};
    for (std::size_t r = 0; r < rows; ++r) {
      std::array<double, kMaxArity> x{};
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = values[ends[i] * rows + r];
      double& value = wanted.values[r];
      x[k] = inverse->of(value, x[1 - k], x[k]);
      const double made = applyRow(op, x[0], x[1], x[2]);
      const bool is_one = std::fabs(made - value) <= kSame * std::fabs(value);
      wanted.slopes[r] *= is_one ? derivativeRow(op, static_cast<int>(k), x[0], x[1], x[2], made) : 0;
      value = x[k];
    }
    at = ends[k];
  }
  for (std::size_t r = 0; r < rows; ++r) {
    if (!std::isfinite(wanted.values[r]) || !std::isfinite(wanted.slopes[r])) wanted.slopes[r] = 0;
  }
  return wanted;
}

Backsolver::Backsolver(const SearchSetup& setup, std::size_t frame)
    : grammar_(&setup.grammars[frame]), is_scaled_(setup.is_scaled), rows_(someRows(setup, frame, kSolvedRows)) {
  const bool is_possible = grammar_->has(Op::kAdd) && grammar_->has(Op::kMul) && grammar_->form() == nullptr;
  if (!is_possible) return;
  const TermTable library = libraryOf(setup, frame, rows_);
  for (const std::size_t tokens : kTermTokens) libraries_.push_back(shortTerms(library, tokens, rows_));
  for (const Link& link : allLinks()) {
    const auto isWritable = [&](Op op) { return grammar_->writable()[static_cast<std::size_t>(op)]; };
    if (std::ranges::all_of(link.inverse, isWritable)) links_.push_back(&link);
  }
}

std::vector<double> Backsolver::targetOf(std::span<const double> values, Random& random) const {
  std::vector<double> target = rows_.target;
  if (!is_scaled_ || random.chance(kPlainTarget)) return target;
  const Scaling scaling = bestScaling(values, standardise(target, rows_), rows_);
  if (!std::isfinite(scaling.rest) || scaling.slope == 0) return target;
  for (double& y : target) y = (y - scaling.offset) / scaling.slope;
  return target;
}

/// The wanted values under a link, and the weights of errors there.
std::optional<RowSet> Backsolver::linked(const Wanted& wanted, const Link& link, double sign) const {
  RowSet rows;
  rows.target.resize(rows_.size());
  rows.weights.resize(rows_.size());
  double lost = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double value = sign * wanted.values[r];
    double slope = wanted.slopes[r], at = link.forward(value);
    if (slope != 0 && link.admits(value) && std::isfinite(at)) {
      rows.target[r] = at;
      for (const Op op : link.inverse) {
        const double next = applyRow(op, at, 0.0, 0.0);
        slope *= derivativeRow(op, 0, at, 0.0, 0.0, next);
        at = next;
      }
      rows.weights[r] = rows_.weightOf(r) * slope * slope;
    }
    if (std::isfinite(rows.weights[r]) && rows.weights[r] > 0) continue;
    rows.target[r] = rows.weights[r] = 0;
    ++lost;
  }
  return lost > kMostLost * static_cast<double>(rows.size()) ? std::nullopt : std::optional(std::move(rows));
}

TermTable Backsolver::subtreesOf(std::span<const TreeView> trees) const {
  const std::size_t rows = rows_.size();
  TermTable table;
  std::vector<double> by_term;
  for (const TreeView& tree : trees) {
    const std::vector<double> values = subtreeValues(tree, rows_.columns, rows);
    for (std::size_t i = 0; i < tree.size() && table.terms.size() < kMostSubtrees; ++i) {
      const TreeView part = tree.part(subtreeBegin(tree.codes, i), i + 1);
      if (part.size() < 2 || part.size() > kMostTokens) continue;
      std::vector<Token>& tokens = table.terms.emplace_back().tokens;
      for (std::size_t k = 0; k < part.size(); ++k) tokens.push_back(part[k]);
      const std::span<const double> own = std::span(values).subspan(i * rows, rows);
      by_term.insert(by_term.end(), own.begin(), own.end());
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = r; i < by_term.size(); i += rows) table.values.push_back(by_term[i]);
  }
  return table;
}

std::optional<Edit> Backsolver::solve(const TreeView& tree, std::span<const TreeView> others, Random& random,
                                      Trees& memory) const {
  if (libraries_.empty()) return {};
  const std::size_t last = random.below(tree.size());
  const std::vector<double> values = subtreeValues(tree, rows_.columns, rows_.size());
  const auto wanted = wantedOf(tree, last, values, targetOf(std::span(values).last(rows_.size()), random));
  if (!wanted) return {};
  const Link& link = *(random.chance(kLinked) ? links_[random.below(links_.size())] : links_.front());
  const std::size_t most = 1 + random.below(kMostSummands);
  const auto negative = std::ranges::count_if(wanted->values, [](double value) { return value < 0; });
  const bool is_negated = !link.inverse.empty() && 2 * static_cast<std::size_t>(negative) > rows_.size();
  const std::optional<RowSet> rows = linked(*wanted, link, is_negated ? -1 : 1);
  if (!rows) return {};
  const TermTable& library = libraries_[random.below(libraries_.size())];
  const std::optional<Expression> sum = nearestSum(library, subtreesOf(others), *rows, most, *grammar_);
  if (!sum) return {};
  memory.drop();
  for (const Token& token : sum->tokens()) memory.put(codeOf(token), token.value);
  for (const Op op : link.inverse) memory.put(codeOf(op));
  if (is_negated) memory.put(codeOf(Op::kNeg));
  return Edit{subtreeBegin(tree.codes, last), last + 1, memory.open()};
}

}  // namespace srjit::search

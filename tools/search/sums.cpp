#include "tools/search/sums.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "tools/search/formulas/scaling.h"

namespace srjit::search {
namespace {

constexpr std::size_t kMostRows = 256, kMostTerms = 400, kMostInSum = 12;
constexpr double kDependent = 1e-10;  // the share of a term's square below which it is a sum of those before it
constexpr double kExact = 1e-26;      // the share of the target's square that is rounding
constexpr double kUnit = 1e-9;        // a factor is 1 or -1 within this
constexpr std::uint32_t kNoPower = 0;

using Tokens = std::vector<Token>;

void append(Tokens& to, std::span<const Token> tokens) { to.insert(to.end(), tokens.begin(), tokens.end()); }

/// A term: what it computes, and the power of one column that it is, if it is one.
struct Term {
  Tokens tokens;
  std::uint32_t column = 0, power = kNoPower;
  bool of_target = false;  ///< whether it is multiplied by the target
};

/// x^power, by squaring.
void appendPower(Tokens& to, std::span<const Token> x, std::uint32_t power) {
  if (power == 1) return append(to, x);
  appendPower(to, x, power % 2 == 0 ? power / 2 : power - 1);
  if (power % 2 == 0) return to.push_back(Token::operation(Op::kSquare));
  append(to, x);
  to.push_back(Token::operation(Op::kMul));
}

/// Columns, their powers, products and quotients, and functions of these, as far as the grammar has the operators.
class Library {
 public:
  Library(const Grammar& grammar, std::span<const Expression> parts) : grammar_(grammar) {
    const auto columns = static_cast<std::uint32_t>(grammar.variables());
    // Fewer of each kind the more columns there are, so that the number of terms stays.
    const std::uint32_t most_power = columns == 1 ? 10 : columns == 2 ? 6 : columns <= 4 ? 4 : columns <= 12 ? 2 : 1;
    for (const Expression& part : parts) add({{part.tokens().begin(), part.tokens().end()}});
    for (std::uint32_t x = 0; x < columns; ++x) addPowers(x, most_power);
    if (!parts.empty()) return;
    if (columns <= 12) addProducts(columns, most_power);
    for (const Op op : grammar.operatorsOf(1)) {
      for (std::uint32_t x = 0; x < columns; ++x) addFunctions(op, x, columns);
    }
  }

  std::vector<Term> take() { return std::move(terms_); }

 private:
  static Tokens power(std::uint32_t x, std::uint32_t power) {
    const Token column[] = {Token::variable(x)};
    Tokens tokens;
    appendPower(tokens, column, power);
    return tokens;
  }

  void add(Term term) {
    if (terms_.size() >= kMostTerms || !grammar_.admits(term.tokens)) return;
    terms_.push_back(std::move(term));
  }

  void addBinary(const Tokens& x, const Tokens& y, Op op) {
    Tokens tokens = x;
    append(tokens, y);
    tokens.push_back(Token::operation(op));
    add({std::move(tokens)});
  }

  void addPowers(std::uint32_t x, std::uint32_t most) {
    for (std::uint32_t k = 1; k <= most; ++k) add({.tokens = power(x, k), .column = x, .power = k});
  }

  void addProducts(std::uint32_t columns, std::uint32_t most_power) {
    for (std::uint32_t x = 0; x < columns; ++x) {
      for (std::uint32_t y = 0; y < columns; ++y) {
        if (x == y) continue;
        for (std::uint32_t k = 1; x < y && k < most_power; ++k) {
          for (std::uint32_t l = 1; k + l <= std::max(most_power, 2U); ++l) {
            addBinary(power(x, k), power(y, l), Op::kMul);
          }
        }
        addBinary(power(x, 1), power(y, 1), Op::kDiv);
      }
    }
  }

  void addFunctions(Op op, std::uint32_t x, std::uint32_t columns) {
    constexpr std::uint32_t kFewColumns = 4;
    const auto of = [&](Tokens tokens) {
      tokens.push_back(Token::operation(op));
      return tokens;
    };
    add({of(power(x, 1))});
    if (columns > kFewColumns) return;
    add({of(power(x, 2))});
    for (std::uint32_t y = 0; y < columns; ++y) {
      addBinary(of(power(x, 1)), power(y, 1), Op::kMul);
      if (y > x) addBinary(of(power(x, 1)), of(power(y, 1)), Op::kMul);
    }
  }

  const Grammar& grammar_;
  std::vector<Term> terms_;
};

/// Rows at equal distances, at most kMostRows of those that count, with the columns and the target of the frame. A
/// scaled target is near 1, but not centred: that of a ratio would be no ratio of few terms.
RowSet someOf(const SearchSetup& setup, const Frame& frame) {
  const RowSet& rows = setup.fitted;
  std::vector<std::size_t> counting, chosen;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows.weightOf(r) > 0) counting.push_back(r);
  }
  const std::size_t count = std::min(counting.size(), kMostRows);
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(counting[i * counting.size() / count]);
  RowSet some = gatherRows(rows.view(), chosen);
  some.target = frame.link->targetOf(some.target);
  const int exponent = setup.is_scaled ? standardise(some.target, some).exponent : 0;
  for (double& y : some.target) y = std::ldexp(y, -exponent);
  if (frame.in_units) some.columns = setup.units.divide(some.columns);
  return some;
}

/// Terms by rows, each less its mean and with the root of its row's weight, so that sums of products are those of
/// least squares with a constant.
class Columns {
 public:
  Columns(const RowSet& rows) : rows_(rows), total_(0) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      total_ += rows.weightOf(r);
      roots_.push_back(std::sqrt(rows.weightOf(r)));
    }
    target_ = centred(rows.target, target_mean_);
  }

  /// Whether the term varies and is finite; then it is added.
  bool add(std::span<const double> values) {
    double mean = 0;
    std::vector<double> column = centred(values, mean);
    const double square = dot(column, column);
    if (!std::isfinite(square) || !(square > kDependent * mean * mean * total_)) return false;
    columns_.push_back(std::move(column));
    means_.push_back(mean);
    squares_.push_back(square);
    return true;
  }

  std::size_t size() const noexcept { return columns_.size(); }
  std::span<const double> target() const noexcept { return target_; }
  std::span<const double> operator[](std::size_t term) const noexcept { return columns_[term]; }
  double square(std::size_t term) const noexcept { return squares_[term]; }
  double mean(std::size_t term) const noexcept { return means_[term]; }
  double targetMean() const noexcept { return target_mean_; }

  static double dot(std::span<const double> x, std::span<const double> y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  }

 private:
  std::vector<double> centred(std::span<const double> values, double& mean) const {
    mean = 0;
    for (std::size_t r = 0; r < values.size(); ++r) mean += rows_.weightOf(r) * values[r] / total_;
    std::vector<double> column(values.size());
    for (std::size_t r = 0; r < values.size(); ++r) column[r] = roots_[r] * (values[r] - mean);
    return column;
  }

  const RowSet& rows_;
  double total_, target_mean_ = 0;
  std::vector<double> roots_, target_;
  std::vector<std::vector<double>> columns_;
  std::vector<double> means_, squares_;
};

using Set = std::vector<std::size_t>;  // of terms, in any order

/// The set that grows by the term which explains most of the rest.
Set forward(const Columns& columns, std::size_t most) {
  std::vector<std::vector<double>> left(columns.size());
  for (std::size_t t = 0; t < columns.size(); ++t) left[t].assign(columns[t].begin(), columns[t].end());
  std::vector<double> rest(columns.target().begin(), columns.target().end());
  const double all = Columns::dot(rest, rest);
  Set set;
  while (set.size() < most && Columns::dot(rest, rest) > kExact * all) {
    std::optional<std::size_t> best;
    double most_gain = 0;
    for (std::size_t t = 0; t < columns.size(); ++t) {
      const double square = Columns::dot(left[t], left[t]), both = Columns::dot(left[t], rest);
      if (!(square > kDependent * columns.square(t)) || !(both * both / square > most_gain)) continue;
      most_gain = both * both / square;
      best = t;
    }
    if (!best) break;
    set.push_back(*best);
    const std::vector<double> basis = left[*best];
    const double square = Columns::dot(basis, basis);
    const auto removeFrom = [&](std::vector<double>& column) {
      const double factor = Columns::dot(basis, column) / square;
      for (std::size_t r = 0; r < column.size(); ++r) column[r] -= factor * basis[r];
    };
    removeFrom(rest);
    for (std::vector<double>& column : left) removeFrom(column);
  }
  return set;
}

/// Least squares over a set, by orthogonalising its columns and then their inverse. `factors` by place in the set, and
/// by how much the sum of squares grows without each.
struct Solution {
  std::vector<double> factors, losses;
};

Solution solve(const Columns& columns, const Set& set) {
  const std::size_t k = set.size();
  std::vector<std::vector<double>> q(k);
  std::vector<double> upper(k * k), inverse(k * k), rhs(k);
  for (std::size_t j = 0; j < k; ++j) {
    q[j].assign(columns[set[j]].begin(), columns[set[j]].end());
    // Twice is enough (W. Kahan, after B. N. Parlett, "The Symmetric Eigenvalue Problem", 1980, 6.9).
    for (int turn = 0; turn < 2; ++turn) {
      for (std::size_t i = 0; i < j; ++i) {
        const double part = Columns::dot(q[i], q[j]);
        upper[i * k + j] += part;
        for (std::size_t r = 0; r < q[j].size(); ++r) q[j][r] -= part * q[i][r];
      }
    }
    const double length = std::sqrt(Columns::dot(q[j], q[j]));
    upper[j * k + j] = length;
    for (double& value : q[j]) value /= length;
    rhs[j] = Columns::dot(q[j], columns.target());
  }
  for (std::size_t j = 0; j < k; ++j) {
    for (std::size_t i = j + 1; i-- > 0;) {
      double sum = i == j ? 1 : 0;
      for (std::size_t m = i + 1; m <= j; ++m) sum -= upper[i * k + m] * inverse[m * k + j];
      inverse[i * k + j] = sum / upper[i * k + i];
    }
  }
  Solution solution{std::vector<double>(k), std::vector<double>(k)};
  for (std::size_t i = 0; i < k; ++i) {
    double square = 0;
    for (std::size_t j = i; j < k; ++j) {
      solution.factors[i] += inverse[i * k + j] * rhs[j];
      square += inverse[i * k + j] * inverse[i * k + j];
    }
    solution.losses[i] = solution.factors[i] * solution.factors[i] / square;
  }
  return solution;
}

/// Trees of sets of terms.
class Writer {
 public:
  Writer(const Grammar& grammar, std::span<const Term> terms, const Columns& columns, bool is_scaled)
      : grammar_(grammar), terms_(terms), columns_(columns), is_scaled_(is_scaled) {}

  /// None if the grammar does not admit it.
  std::optional<Expression> tree(const Set& set) const {
    const Solution solution = solve(columns_, set);
    if (!std::ranges::all_of(solution.factors, [](double factor) { return std::isfinite(factor); })) return {};
    std::vector<Summand> above, below;
    double constant = columns_.targetMean();
    for (std::size_t i = 0; i < set.size(); ++i) {
      constant -= solution.factors[i] * columns_.mean(set[i]);
      const Term& term = terms_[set[i]];
      (term.of_target ? below : above).push_back({&term, term.of_target ? -solution.factors[i] : solution.factors[i]});
    }
    Tokens tokens;
    if (above.empty()) {
      tokens = {Token::constant(is_scaled_ ? 1 : constant)};
    } else {
      tokens = sum(above, is_scaled_ && below.empty() ? 0 : constant, is_scaled_);
    }
    if (!below.empty()) {
      append(tokens, sum(below, 1, false));
      tokens.push_back(Token::operation(Op::kDiv));
    }
    if (!grammar_.admits(tokens)) return {};
    return Expression::create(std::move(tokens)).value();
  }

 private:
  struct Summand {
    const Term* term;
    double factor;
  };

  /// The sum with a constant, unless it is 0; a multiple with the first factor 1 if `is_scaled`.
  static Tokens sum(std::vector<Summand> summands, double constant, bool is_scaled) {
    std::ranges::stable_sort(summands, std::greater(), [](const Summand& one) { return one.term->power; });
    const double unit = is_scaled ? summands.front().factor : 1;
    for (Summand& summand : summands) summand.factor /= unit;
    constant /= unit;
    Tokens tokens = isOfPowers(summands) ? horner(summands) : plain(summands);
    if (std::fabs(constant) > kUnit * std::fabs(summands.front().factor)) {
      tokens.insert(tokens.end(), {Token::constant(constant), Token::operation(Op::kAdd)});
    }
    return tokens;
  }

  static bool isOfPowers(std::span<const Summand> summands) {
    return summands.size() > 1 && std::ranges::all_of(summands, [&](const Summand& one) {
             return one.term->power != kNoPower && one.term->column == summands.front().term->column;
           });
  }

  static void multiply(Tokens& tokens, double factor) {
    if (std::fabs(factor - 1) < kUnit) return;
    tokens.insert(tokens.end(), {Token::constant(factor), Token::operation(Op::kMul)});
  }

  static Tokens plain(std::span<const Summand> summands) {
    Tokens tokens;
    for (const Summand& summand : summands) {
      const bool is_first = tokens.empty(), is_negative = !is_first && summand.factor < 0;
      append(tokens, summand.term->tokens);
      multiply(tokens, is_negative ? -summand.factor : summand.factor);
      if (!is_first) tokens.push_back(Token::operation(is_negative ? Op::kSub : Op::kAdd));
    }
    return tokens;
  }

  /// Of descending powers: ((c x^(k - l) + d) x^(l - m) + ...) x^n.
  static Tokens horner(std::span<const Summand> summands) {
    const Token x[] = {Token::variable(summands.front().term->column)};
    Tokens tokens;
    for (std::size_t i = 0; i < summands.size(); ++i) {
      if (i > 0) {
        tokens.insert(tokens.end(), {Token::constant(summands[i].factor), Token::operation(Op::kAdd)});
      }
      const std::uint32_t next = i + 1 < summands.size() ? summands[i + 1].term->power : 0;
      appendPower(tokens, x, summands[i].term->power - next);
      if (i > 0) {
        tokens.push_back(Token::operation(Op::kMul));
      } else {
        multiply(tokens, summands[i].factor);
      }
    }
    return tokens;
  }

  const Grammar& grammar_;
  std::span<const Term> terms_;
  const Columns& columns_;
  bool is_scaled_;
};

/// Sums over the terms of some rows, whose values are given by term and row.
class Sums {
 public:
  Sums(const RowSet& rows, const Grammar& grammar, bool is_scaled)
      : rows_(rows), grammar_(grammar), is_scaled_(is_scaled) {}

  void take(const Term& term, std::span<const double> values) {
    terms_.push_back(term);
    values_.push_back(values);
  }

  /// Adds the trees of the terms for which `admits` holds, and with `as_ratio` of their products with the target.
  template <class Admits>
  void addTo(std::vector<Expression>& trees, bool as_ratio, const Admits& admits) const {
    Columns columns(rows_);
    std::vector<Term> terms;
    std::vector<double> product(rows_.size());
    for (std::size_t t = 0; t < terms_.size(); ++t) {
      if (admits(terms_[t]) && columns.add(values_[t])) terms.push_back(terms_[t]);
    }
    for (std::size_t t = 0; as_ratio && t < terms_.size(); ++t) {
      std::ranges::transform(values_[t], rows_.target, product.begin(), std::multiplies());
      if (!admits(terms_[t]) || !columns.add(product)) continue;
      terms.push_back(terms_[t]);
      terms.back().of_target = true;
    }
    const Writer writer(grammar_, terms, columns, is_scaled_);
    const auto add = [&](const Set& set) {
      if (std::optional<Expression> tree = writer.tree(set); tree && std::ranges::find(trees, *tree) == trees.end()) {
        trees.push_back(*std::move(tree));
      }
    };
    Set set;
    // With as many terms as rows any target is met.
    const Set all = forward(columns, std::min(kMostInSum, (std::max<std::size_t>(rows_.size(), 4) - 2) / 2));
    for (const std::size_t term : all) {
      set.push_back(term);
      add(set);
    }
    while (set.size() > 1) {
      const std::vector<double> losses = solve(columns, set).losses;
      set.erase(set.begin() + (std::ranges::min_element(losses) - losses.begin()));
      add(set);
    }
  }

 private:
  const RowSet& rows_;
  const Grammar& grammar_;
  bool is_scaled_;
  std::vector<Term> terms_;
  std::vector<std::span<const double>> values_;
};

}  // namespace

std::vector<Expression> sparseSums(const SearchSetup& setup, std::size_t frame, std::span<const Expression> parts) {
  const Grammar& grammar = setup.grammars[frame];
  const RowSet some = someOf(setup, setup.frames[frame]);
  const std::vector<Term> terms = Library(grammar, parts).take();
  std::vector<Expression> trees;
  if (terms.empty() || !grammar.has(Op::kAdd) || !grammar.has(Op::kMul)) return trees;
  std::vector<Expression> expressions;
  for (const Term& term : terms) expressions.push_back(Expression::create(term.tokens).value());
  std::vector<double> values(terms.size() * some.size());
  const Engine& engine = setup.wide;
  engine.evaluate(engine.compile(expressions), engine.upload(some.view()).value(), {}, std::span(values)).value();
  Sums sums(some, grammar, setup.is_scaled);
  for (std::size_t t = 0; t < terms.size(); ++t) {
    sums.take(terms[t], std::span(values).subspan(t * some.size(), some.size()));
  }
  const auto isAny = [](const Term&) { return true; };
  const auto isPower = [](const Term& term) { return term.power != kNoPower; };
  const auto isColumn = [](const Term& term) { return term.power == 1; };
  // High powers take the place of functions.
  const auto isLow = [](const Term& term) { return term.power <= 3; };
  if (parts.empty()) {
    sums.addTo(trees, false, isColumn);
    sums.addTo(trees, false, isPower);
    sums.addTo(trees, false, isLow);
  }
  sums.addTo(trees, false, isAny);
  if (!grammar.has(Op::kDiv)) return trees;
  if (parts.empty()) sums.addTo(trees, true, isPower);
  sums.addTo(trees, true, isAny);
  return trees;
}

}  // namespace srjit::search

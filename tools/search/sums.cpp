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

constexpr std::size_t kMostRows = 256, kMostTerms = 400, kMostInSum = 12, kMoreInSum = 3;
constexpr double kDependent = 1e-10;  // the share of a term's square below which it is a sum of those before it
constexpr double kExact = 1e-26;      // the share of the target's square that is rounding
constexpr double kTie = 1e-9;   // of terms that explain as much to this share, the first is taken, which is simple
constexpr double kUnit = 1e-9;  // a factor is 1 or -1 within this
constexpr std::uint32_t kNoPower = 0;

using Tokens = std::vector<Token>;

void append(Tokens& to, std::span<const Token> tokens) { to.insert(to.end(), tokens.begin(), tokens.end()); }

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
    if ((terms_.size() >= kMostTerms && term.power != 1) || !grammar_.admits(term.tokens)) return;
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
        if (x < y) addSquareOfDifference(x, y);
      }
    }
  }

  void addSquareOfDifference(std::uint32_t x, std::uint32_t y) {
    add({{Token::variable(x), Token::variable(y), Token::operation(Op::kSub), Token::operation(Op::kSquare)}});
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
    if (op == Op::kExp) add({of({Token::variable(x), Token::operation(Op::kNeg)})});
    for (std::uint32_t y = 0; y < columns; ++y) {
      addBinary(of(power(x, 1)), power(y, 1), Op::kMul);
      if (y > x) addBinary(of(power(x, 1)), of(power(y, 1)), Op::kMul);
    }
  }

  const Grammar& grammar_;
  std::vector<Term> terms_;
};

/// Terms by rows, each less its mean and with the root of its row's weight, so that sums of products are those of
/// least squares with a constant.
class Columns {
 public:
  /// `values`: by row and term. Rows without weight may have any values.
  Columns(const RowSet& rows, std::vector<double> values)
      : values_(std::move(values)), means_(values_.size() / rows.size()), squares_(means_.size()) {
    double total = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) total += rows.weightOf(r);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      target_mean_ += rows.weightOf(r) * rows.target[r] / total;
      addTo(means_, row(r), rows.weightOf(r) / total);
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const double root = std::sqrt(rows.weightOf(r));
      target_.push_back(root * (rows.target[r] - target_mean_));
      const std::span<double> own = std::span(values_).subspan(r * size(), size());
      if (root == 0) std::ranges::fill(own, 0.0);
      for (std::size_t t = 0; t < size() && root != 0; ++t) {
        own[t] = root * (own[t] - means_[t]);
        squares_[t] += own[t] * own[t];
      }
    }
    for (std::size_t t = 0; t < size(); ++t) {
      const bool varies = squares_[t] > kDependent * means_[t] * means_[t] * total;
      if (!varies || !std::isfinite(squares_[t])) squares_[t] = 0;
    }
  }

  std::size_t size() const noexcept { return means_.size(); }
  std::span<const double> values() const noexcept { return values_; }
  std::span<const double> row(std::size_t r) const noexcept { return std::span(values_).subspan(r * size(), size()); }
  std::vector<double> column(std::size_t term) const { return columnOf(values_, term); }
  std::span<const double> target() const noexcept { return target_; }
  /// 0 for terms that are not finite or constant, which no set may have.
  std::span<const double> squares() const noexcept { return squares_; }
  double mean(std::size_t term) const noexcept { return means_[term]; }
  double targetMean() const noexcept { return target_mean_; }

  std::vector<double> columnOf(std::span<const double> values, std::size_t term) const {
    std::vector<double> column;
    for (std::size_t i = term; i < values.size(); i += size()) column.push_back(values[i]);
    return column;
  }

  static double dot(std::span<const double> x, std::span<const double> y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  }
  /// to += factor * row, in a loop that compilers vectorise.
  static void addTo(std::span<double> to, std::span<const double> row, double factor) {
    if (factor == 0) return;
    for (std::size_t t = 0; t < to.size(); ++t) to[t] += factor * row[t];
  }

 private:
  std::vector<double> values_, means_, squares_, target_;
  double target_mean_ = 0;
};

using Set = std::vector<std::size_t>;  // of terms, in any order

/// The set that grows by the term which explains most of the rest.
Set forward(const Columns& columns, std::size_t most) {
  const std::size_t count = columns.size();
  std::vector<double> left(columns.values().begin(), columns.values().end());  // of terms, without those of the set
  std::vector<double> rest(columns.target().begin(), columns.target().end()), both(count), along(count);
  std::vector<double> squares(columns.squares().begin(), columns.squares().end());
  const auto rowOf = [&](std::size_t r) { return std::span(left).subspan(r * count, count); };
  const double all = Columns::dot(rest, rest);
  Set set;
  while (set.size() < most && Columns::dot(rest, rest) > kExact * all) {
    std::ranges::fill(both, 0.0);
    for (std::size_t r = 0; r < rest.size(); ++r) Columns::addTo(both, rowOf(r), rest[r]);
    std::optional<std::size_t> best;
    double most_gain = 0;
    for (std::size_t t = 0; t < count; ++t) {
      const double all_of_it = columns.squares()[t], gain = both[t] * both[t] / squares[t];
      if (all_of_it == 0 || !(squares[t] > kDependent * all_of_it) || !(gain > most_gain * (1 + kTie))) continue;
      most_gain = gain;
      best = t;
    }
    if (!best) break;
    set.push_back(*best);
    if (set.size() == most) break;
    const std::vector<double> basis = columns.columnOf(left, *best);
    const double square = Columns::dot(basis, basis);
    const double factor = Columns::dot(basis, rest) / square;
    std::ranges::fill(along, 0.0);
    for (std::size_t r = 0; r < rest.size(); ++r) Columns::addTo(along, rowOf(r), basis[r]);
    for (double& part : along) part /= square;
    std::ranges::fill(squares, 0.0);
    for (std::size_t r = 0; r < rest.size(); ++r) {
      const std::span<double> row = rowOf(r);
      Columns::addTo(row, along, -basis[r]);
      for (std::size_t t = 0; t < count; ++t) squares[t] += row[t] * row[t];
      rest[r] -= factor * basis[r];
    }
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
    q[j] = columns.column(set[j]);
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

/// Leaves out the term whose loss raises the sum of squares least.
void dropLeast(const Columns& columns, Set& set) {
  const std::vector<double> losses = solve(columns, set).losses;
  set.erase(set.begin() + (std::ranges::min_element(losses) - losses.begin()));
}

/// Trees of sets of terms.
class Writer {
 public:
  /// The columns are those of `terms`, then those of `more`.
  Writer(const Grammar& grammar, const Columns& columns, bool is_scaled, std::span<const Term> terms,
         std::span<const Term> more = {})
      : grammar_(grammar), columns_(columns), is_scaled_(is_scaled), terms_(terms), more_(more) {}

  /// None if the grammar does not admit it.
  std::optional<Expression> tree(const Set& set) const {
    const Solution solution = solve(columns_, set);
    if (!std::ranges::all_of(solution.factors, [](double factor) { return std::isfinite(factor); })) return {};
    std::vector<Summand> above, below;
    double constant = columns_.targetMean();
    for (std::size_t i = 0; i < set.size(); ++i) {
      constant -= solution.factors[i] * columns_.mean(set[i]);
      const Term& term = set[i] < terms_.size() ? terms_[set[i]] : more_[set[i] - terms_.size()];
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
  const Columns& columns_;
  bool is_scaled_;
  std::span<const Term> terms_, more_;
};

/// The terms of these numbers, and with `as_ratio` their products with the target.
TermTable partOf(const TermTable& library, const Set& numbers, const RowSet& rows, bool as_ratio) {
  TermTable part;
  for (const std::size_t t : numbers) part.terms.push_back(library.terms[t]);
  for (std::size_t i = 0; as_ratio && i < numbers.size(); ++i) {
    part.terms.push_back(part.terms[i]);
    part.terms.back().of_target = true;
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double* row = library.values.data() + r * library.terms.size();
    for (const std::size_t t : numbers) part.values.push_back(row[t]);
    for (std::size_t i = 0; as_ratio && i < numbers.size(); ++i) {
      part.values.push_back(row[numbers[i]] * rows.target[r]);
    }
  }
  return part;
}

/// The terms that each by itself explain most of the target, at most kMostTerms (J. Fan, J. Lv, "Sure independence
/// screening for ultrahigh dimensional feature space", Journal of the Royal Statistical Society B 70, 2008).
TermTable screened(TermTable library, const RowSet& rows) {
  Set numbers(library.terms.size());
  if (numbers.size() <= kMostTerms) return library;
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  const Columns columns(rows, library.values);
  std::vector<double> gains(numbers.size());
  for (std::size_t r = 0; r < rows.size(); ++r) Columns::addTo(gains, columns.row(r), columns.target()[r]);
  for (std::size_t t = 0; t < gains.size(); ++t) {
    gains[t] = columns.squares()[t] > 0 ? gains[t] * gains[t] / columns.squares()[t] : 0;
  }
  std::ranges::stable_sort(numbers, std::greater(), [&](std::size_t t) { return gains[t]; });
  numbers.resize(kMostTerms);
  return partOf(library, numbers, rows, false);
}

/// Adds the trees of all sets that are met.
void addSums(std::vector<Expression>& trees, const RowSet& rows, TermTable table, const Grammar& grammar,
             bool is_scaled) {
  const Columns columns(rows, std::move(table.values));
  const Writer writer(grammar, columns, is_scaled, table.terms);
  const auto add = [&](const Set& set) {
    if (std::optional<Expression> tree = writer.tree(set); tree && std::ranges::find(trees, *tree) == trees.end()) {
      trees.push_back(*std::move(tree));
    }
  };
  Set set;
  // With as many terms as rows any target is met.
  const Set all = forward(columns, std::min(kMostInSum, (std::max<std::size_t>(rows.size(), 4) - 2) / 2));
  for (const std::size_t term : all) {
    set.push_back(term);
    add(set);
  }
  while (set.size() > 1) {
    dropLeast(columns, set);
    add(set);
  }
}

}  // namespace

RowSet someRows(const SearchSetup& setup, std::size_t number, std::size_t most_rows) {
  const Frame& frame = setup.frames[number];
  const RowSet& rows = setup.fitted;
  std::vector<std::size_t> counting, chosen;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows.weightOf(r) > 0) counting.push_back(r);
  }
  const std::size_t count = std::min(counting.size(), most_rows);
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(counting[i * counting.size() / count]);
  RowSet some = gatherRows(rows.view(), chosen);
  some.target = frame.link->targetOf(some.target);
  const int exponent = setup.is_scaled ? standardise(some.target, some).exponent : 0;
  for (double& y : some.target) y = std::ldexp(y, -exponent);
  if (frame.in_units) some.columns = setup.units.divide(some.columns);
  return some;
}

TermTable libraryOf(const SearchSetup& setup, std::size_t frame, const RowSet& rows,
                    std::span<const Expression> parts) {
  TermTable library{.terms = Library(setup.grammars[frame], parts).take()};
  if (library.terms.empty()) return library;
  std::vector<Expression> expressions;
  for (const Term& term : library.terms) expressions.push_back(Expression::create(term.tokens).value());
  std::vector<double> values(library.terms.size() * rows.size());
  const Engine& engine = setup.wide;
  engine.evaluate(engine.compile(expressions), engine.upload(rows.view()).value(), {}, std::span(values)).value();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = r; i < values.size(); i += rows.size()) library.values.push_back(values[i]);
  }
  return screened(std::move(library), rows);
}

TermTable shortTerms(const TermTable& table, std::size_t tokens, const RowSet& rows) {
  Set numbers;
  for (std::size_t t = 0; t < table.terms.size(); ++t) {
    if (table.terms[t].tokens.size() <= tokens) numbers.push_back(t);
  }
  return partOf(table, numbers, rows, false);
}

std::optional<Expression> nearestSum(const TermTable& table, const TermTable& more, const RowSet& wanted,
                                     std::size_t most, const Grammar& grammar) {
  const std::size_t count = table.terms.size(), others = more.terms.size();
  std::vector<double> values;
  values.reserve((count + others) * wanted.size());
  for (std::size_t r = 0; r < wanted.size(); ++r) {
    values.insert(values.end(), table.values.data() + r * count, table.values.data() + (r + 1) * count);
    values.insert(values.end(), more.values.data() + r * others, more.values.data() + (r + 1) * others);
  }
  const Columns columns(wanted, std::move(values));
  Set set = forward(columns, most + kMoreInSum);
  while (set.size() > most) dropLeast(columns, set);
  return set.empty() ? std::nullopt : Writer(grammar, columns, false, table.terms, more.terms).tree(set);
}

std::vector<Expression> sparseSums(const SearchSetup& setup, std::size_t frame, std::span<const Expression> parts) {
  const Grammar& grammar = setup.grammars[frame];
  if (!grammar.has(Op::kAdd) || !grammar.has(Op::kMul)) return {};
  const RowSet rows = someRows(setup, frame, kMostRows);
  const TermTable library = libraryOf(setup, frame, rows, parts);
  std::vector<Expression> trees;
  if (library.terms.empty()) return trees;
  const auto add = [&](bool as_ratio, const auto& admits) {
    Set numbers;
    for (std::size_t t = 0; t < library.terms.size(); ++t) {
      if (admits(library.terms[t])) numbers.push_back(t);
    }
    addSums(trees, rows, partOf(library, numbers, rows, as_ratio), grammar, setup.is_scaled);
  };
  const auto isAny = [](const Term&) { return true; };
  const auto isPower = [](const Term& term) { return term.power != kNoPower; };
  const auto isColumn = [](const Term& term) { return term.power == 1; };
  // High powers take the place of functions.
  const auto isLow = [](const Term& term) { return term.power <= 3; };
  if (parts.empty()) {
    add(false, isColumn);
    add(false, isPower);
    add(false, isLow);
  }
  add(false, isAny);
  if (!grammar.has(Op::kDiv)) return trees;
  if (parts.empty()) add(true, isPower);
  add(true, isAny);
  return trees;
}

}  // namespace srjit::search

#include "tools/search/closing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace srjit::search {
namespace {

constexpr double kLeastGain = 0.05;  // of the archived loss, by which a tree must be below it to take its place

bool isGain(double loss, double than) {
  return std::isinf(than) ? loss < than : loss < than - kLeastGain * std::fabs(than);
}

constexpr std::size_t kMostPolished = 60;
constexpr std::size_t kMostAtOnce = 12;  // finalists of a slice, and columns of linear formulas

/// Sizes of slices: 1, 2, 4, ... The first ones are done even if there is little time, and few calls do all.
class Slices {
 public:
  explicit Slices(std::size_t most) : most_(most) {}
  /// The next one, of `left` items.
  std::size_t next(std::size_t left) {
    const std::size_t size = std::min(size_, left);
    size_ = std::min(2 * size_, most_);
    return size;
  }

 private:
  std::size_t most_, size_ = 1;
};

/// The square of the correlation of a column with a standardised target; 0 if one of them is constant.
double correlationSquared(std::span<const double> column, std::span<const double> target, const RowSet& rows) {
  const std::vector<double> deviations = standardise(column, rows).deviations;
  double xx = 0, xy = 0, yy = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double x = deviations[r], y = target[r], w = rows.weightOf(r);
    xx += w * x * x;
    xy += w * x * y;
    yy += w * y * y;
  }
  const double squared = xy * xy / (xx * yy);
  return std::isfinite(squared) ? squared : 0;
}

/// The columns with the largest correlations.
std::vector<std::uint32_t> bestColumns(const RowSet& rows) {
  std::vector<std::uint32_t> columns(rows.columns.size());
  std::iota(columns.begin(), columns.end(), 0U);
  std::vector<double> correlations;
  const std::vector<double> target = standardise(rows.target, rows).deviations;
  for (const auto& column : rows.columns) correlations.push_back(correlationSquared(column, target, rows));
  std::ranges::stable_sort(columns, std::greater(), [&](std::uint32_t column) { return correlations[column]; });
  columns.resize(std::min(columns.size(), kMostAtOnce));
  return columns;
}

/// p0 a + p1 b + ... + p2; of a scaled loss, whose polishing scales and shifts, a + p0 b + ...
Expression sumOf(std::span<const std::uint32_t> columns, bool is_scaled, const Grammar& grammar) {
  const bool has_factors = grammar.has(Op::kMul), has_sums = grammar.has(Op::kAdd);
  std::vector<Token> tree;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    tree.push_back(Token::variable(columns[i]));
    if (has_factors && (i > 0 || !is_scaled)) {
      tree.insert(tree.end(), {Token::constant(1), Token::operation(Op::kMul)});
    }
    if (i > 0) tree.push_back(Token::operation(Op::kAdd));
  }
  if (has_sums && !is_scaled) tree.insert(tree.end(), {Token::constant(0), Token::operation(Op::kAdd)});
  return Expression::create(std::move(tree)).value();
}

/// Formulas of one column each, and of as many as the grammar admits.
std::vector<Finalist> linearFinalists(const SearchSetup& setup) {
  const std::vector<std::uint32_t> columns = bestColumns(setup.fitted);
  std::vector<Finalist> finalists;
  const auto add = [&](std::span<const std::uint32_t> some) {
    const Expression tree = sumOf(some, isOfSquares(setup.loss), setup.grammar);
    const bool is_admitted = setup.grammar.admits(tree.tokens());
    if (is_admitted) finalists.push_back({tree, 0});
    return is_admitted;
  };
  for (const std::uint32_t& column : columns) add(std::span(&column, 1));
  std::size_t most = setup.grammar.has(Op::kAdd) ? columns.size() : 0;
  while (most > 1 && !add(std::span(columns).first(most))) --most;
  return finalists;
}

void addLinear(Front& front, const SearchSetup& setup, const Polisher& polisher, const std::stop_token& closed) {
  const std::vector<Finalist> finalists = linearFinalists(setup);
  Slices slices(kMostAtOnce);
  for (std::size_t done = 0; done < finalists.size() && !closed.stop_requested();) {
    const std::size_t size = slices.next(finalists.size() - done);
    polisher.polish(std::span(finalists).subspan(done, size), front);
    done += size;
  }
}

void polishArchives(SearchState& state, const Polisher& polisher, const std::stop_token& closed) {
  Slices slices(kMostAtOnce);
  for (std::size_t left = kMostPolished; left > 0 && !closed.stop_requested();) {
    const std::vector<Candidate> candidates = unpolished(state.archives);
    if (candidates.empty()) break;
    const std::size_t size = slices.next(std::min(left, candidates.size()));
    polishCandidates(std::span(candidates).first(size), polisher, state.front);
    left -= size;
  }
}

/// The chosen formula first, then from the most exact one on.
std::vector<const Formula*> byImportance(const Front& front) {
  std::vector<const Formula*> formulas;
  if (front.chosen() != nullptr) formulas.push_back(front.chosen());
  for (auto formula = front.formulas().rbegin(); formula != front.formulas().rend(); ++formula) {
    if (&*formula != front.chosen()) formulas.push_back(&*formula);
  }
  return formulas;
}

/// Formulas that there is no time for stay as they are.
Front roundInSlices(const Front& front, const Polisher& polisher, const std::stop_token& closed) {
  const std::vector<const Formula*> formulas = byImportance(front);
  std::vector<Formula> rounded;
  Slices slices(formulas.size());
  std::size_t done = 0;
  while (done < formulas.size() && !closed.stop_requested()) {
    const std::size_t size = slices.next(formulas.size() - done);
    Front some(front.floor());
    for (const Formula* formula : std::span(formulas).subspan(done, size)) some.add(*formula);
    untilStopped(closed, [&] { some = polisher.round(some); });
    if (closed.stop_requested()) break;
    rounded.insert(rounded.end(), some.formulas().begin(), some.formulas().end());
    done += size;
  }
  for (const Formula* formula : std::span(formulas).subspan(done)) rounded.push_back(*formula);
  std::ranges::stable_sort(rounded, {}, [](const Formula& one) { return std::tuple(one.complexity, one.loss); });
  Front all(front.floor());
  for (Formula& formula : rounded) all.add(std::move(formula));
  return all;
}

}  // namespace

void archive(std::vector<Archived>& archive, const Individuals& individuals) {
  for (std::size_t i = 0; i < individuals.size(); ++i) {
    const Traits& traits = individuals.traits[i];
    if (!std::isfinite(traits.loss)) continue;
    const auto place = std::ranges::lower_bound(archive, traits.complexity, {}, &Archived::complexity);
    const bool is_new = place == archive.end() || place->complexity != traits.complexity;
    if (!is_new && !isGain(traits.loss, place->loss)) continue;
    Archived best{expressionOf(individuals.trees[i]), traits.complexity, traits.loss};
    if (is_new) {
      archive.insert(place, std::move(best));
    } else {
      *place = std::move(best);
    }
  }
}

std::vector<Candidate> unpolished(std::vector<std::vector<Archived>>& archives) {
  std::vector<Candidate> candidates;
  for (std::size_t link = 0; link < archives.size(); ++link) {
    double least = std::numeric_limits<double>::infinity();
    for (Archived& archived : archives[link]) {
      if (!isGain(archived.loss, least)) archived.is_polished = true;
      least = std::min(least, archived.loss);
      if (!archived.is_polished) candidates.push_back({&archived, link});
    }
  }
  std::ranges::stable_sort(candidates, {}, [](const Candidate& one) { return one.archived->loss; });
  return candidates;
}

void polishCandidates(std::span<const Candidate> candidates, const Polisher& polisher, Front& front) {
  std::vector<Finalist> finalists;
  for (const Candidate& candidate : candidates) {
    finalists.push_back({candidate.archived->tree, candidate.link});
  }
  polisher.polish(finalists, front);
  for (const Candidate& candidate : candidates) candidate.archived->is_polished = true;
}

std::optional<std::string> closeSearch(SearchState& state, SearchEnd end, const SearchSetup& setup,
                                       const Polisher& polisher, const std::stop_token& closed) {
  const bool is_first = state.generations == 0 && end != SearchEnd::kEnough;
  untilStopped(closed, [&] {
    if (is_first) addLinear(state.front, setup, polisher, closed);
    if (end != SearchEnd::kEnough) polishArchives(state, polisher, closed);
  });
  state.front = roundInSlices(state.front, polisher, closed);
  const bool is_late = end == SearchEnd::kTime;
  if (is_first) {
    return std::string("the search ended within its first generation, so it has few formulas, most of them linear") +
           (is_late ? "; it needs more seconds, or fewer islands, offspring or rows" : "");
  }
  if (!closed.stop_requested()) return {};
  return std::string(
             "the search ended before all formulas were fitted and rounded, so some have more digits than they "
             "need") +
         (is_late ? "; it needs more seconds" : "");
}

}  // namespace srjit::search

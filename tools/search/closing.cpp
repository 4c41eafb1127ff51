#include "tools/search/closing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tools/search/sums.h"

namespace srjit::search {
namespace {

bool isGain(double loss, double than, double gain) {
  return std::isinf(than) ? loss < than : loss < than - gain * std::fabs(than);
}

constexpr std::size_t kMostPolished = 60;
constexpr std::size_t kMostAtOnce = 12;  // finalists of a slice

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

/// Where there was no time for more: the sums of the first frame.
void addSums(Front& front, const SearchSetup& setup, const Polisher& polisher, const std::stop_token& fitted) {
  std::vector<Finalist> finalists;
  for (Expression& sum : sparseSums(setup, 0)) finalists.push_back({std::move(sum), 0});
  Slices slices(kMostAtOnce);
  for (std::size_t done = 0; done < finalists.size() && !fitted.stop_requested();) {
    const std::size_t size = slices.next(finalists.size() - done);
    polisher.polish(std::span(finalists).subspan(done, size), front);
    done += size;
  }
}

void polishArchives(SearchState& state, double gain, const Polisher& polisher, const std::stop_token& fitted) {
  Slices slices(kMostAtOnce);
  for (std::size_t left = kMostPolished; left > 0 && !fitted.stop_requested();) {
    const std::vector<Candidate> candidates = unpolished(state.archives, gain);
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
    Front some = front.emptied();
    for (const Formula* formula : std::span(formulas).subspan(done, size)) some.add(*formula);
    untilStopped(closed, [&] { some = polisher.round(some); });
    if (closed.stop_requested()) break;
    rounded.insert(rounded.end(), some.formulas().begin(), some.formulas().end());
    done += size;
  }
  for (const Formula* formula : std::span(formulas).subspan(done)) rounded.push_back(*formula);
  std::ranges::stable_sort(rounded, {}, [](const Formula& one) { return std::tuple(one.complexity, one.loss); });
  Front all = front.emptied();
  for (Formula& formula : rounded) all.add(std::move(formula));
  return all;
}

/// Gives a sentence about the rows of the losses.
std::string fitToAllRows(Front& front, const SearchSetup& setup, const std::stop_token& closed) {
  const std::size_t searched = setup.searched.size(), held = setup.held_out.size();
  std::optional<Front> refitted;
  untilStopped(closed, [&] {
    const RowSet all = joinRows(setup.searched, setup.held_out);
    const DataView view = all.view();
    const RowSet fitted = rowsToFit(all);
    const PolishRules rules{setup.grammar, setup.loss, setup.is_scaled, setup.units};
    refitted = Polisher::create(setup.wide, {view, fitted}, setup.frames, rules).withStop(closed).refit(front);
  });
  if (!refitted || closed.stop_requested()) {
    return fmt::format(
        "constants are fitted to the {} rows that were searched, and losses are over them; there was no "
        "time to fit to the {} rows held out, too",
        searched, held);
  }
  if (!refitted->empty()) front = *std::move(refitted);
  return fmt::format(
      "constants are fitted to all {} rows, and losses are over them; held_out is over {} rows, before "
      "constants were fitted to them",
      searched + held, held);
}

}  // namespace

void archive(std::vector<Archived>& archive, const Individuals& individuals, double gain) {
  for (std::size_t i = 0; i < individuals.size(); ++i) {
    const Traits& traits = individuals.traits[i];
    if (!std::isfinite(traits.loss)) continue;
    const auto place = std::ranges::lower_bound(archive, traits.complexity, {}, &Archived::complexity);
    const bool is_new = place == archive.end() || place->complexity != traits.complexity;
    if (!is_new && !isGain(traits.loss, place->loss, gain)) continue;
    Archived best{expressionOf(individuals.trees[i]), traits.complexity, traits.loss};
    if (is_new) {
      archive.insert(place, std::move(best));
    } else {
      *place = std::move(best);
    }
  }
}

std::vector<Candidate> unpolished(std::vector<std::vector<Archived>>& archives, double gain) {
  std::vector<Candidate> candidates;
  for (std::size_t frame = 0; frame < archives.size(); ++frame) {
    double least = std::numeric_limits<double>::infinity();
    for (Archived& archived : archives[frame]) {
      if (!isGain(archived.loss, least, gain)) archived.is_polished = true;
      least = std::min(least, archived.loss);
      if (!archived.is_polished) candidates.push_back({&archived, frame});
    }
  }
  std::ranges::stable_sort(candidates, {}, [](const Candidate& one) { return one.archived->loss; });
  return candidates;
}

void polishCandidates(std::span<const Candidate> candidates, const Polisher& polisher, Front& front) {
  std::vector<Finalist> finalists;
  for (const Candidate& candidate : candidates) {
    finalists.push_back({candidate.archived->tree, candidate.frame});
  }
  polisher.polish(finalists, front);
  for (const Candidate& candidate : candidates) candidate.archived->is_polished = true;
}

std::vector<std::string> closeSearch(SearchState& state, SearchEnd end, const SearchSetup& setup,
                                     const Polisher& polisher, const Timekeeper& time) {
  const std::stop_token fitted = time.fitted(), closed = time.closed();
  const Polisher fitting = polisher.withStop(fitted), rounding = polisher.withStop(closed);
  const bool is_first = state.generations == 0 && end != SearchEnd::kEnough;
  untilStopped(fitted, [&] {
    const bool is_empty = std::ranges::all_of(state.archives, &std::vector<Archived>::empty);
    if (is_first && is_empty) addSums(state.front, setup, fitting, fitted);
    if (end != SearchEnd::kEnough) polishArchives(state, setup.gain, fitting, fitted);
  });
  const bool is_cut = fitted.stop_requested();
  state.front = roundInSlices(state.front, rounding, closed);
  const bool is_late = end == SearchEnd::kTime;
  std::vector<std::string> notices;
  if (setup.held_out.size() > 0) notices.push_back(fitToAllRows(state.front, setup, closed));
  if (is_first) {
    notices.push_back(
        std::string("the search ended within its first generation, so it has few formulas, most of them sums") +
        (is_late ? "; it needs more seconds, or fewer islands, offspring or rows" : ""));
  } else if (is_cut || closed.stop_requested()) {
    notices.push_back(
        std::string("the search ended before all formulas were fitted and rounded, so some are missing or "
                    "have more digits than they need") +
        (is_late ? "; it needs more seconds" : ""));
  }
  return notices;
}

}  // namespace srjit::search

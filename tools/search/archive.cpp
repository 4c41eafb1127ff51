#include "tools/search/archive.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace srjit::search {
namespace {

constexpr double kLeastGain = 0.05;  // of the archived loss, by which a tree must be below it to take its place

bool isGain(double loss, double than) {
  return std::isinf(than) ? loss < than : loss < than - kLeastGain * std::fabs(than);
}

}  // namespace

void archive(std::vector<Archived>& archive, std::span<const Individual> individuals) {
  for (const Individual& individual : individuals) {
    if (!std::isfinite(individual.loss)) continue;
    const auto place = std::ranges::lower_bound(archive, individual.complexity, {},
                                                [](const Archived& entry) { return entry.individual.complexity; });
    if (place == archive.end() || place->individual.complexity != individual.complexity) {
      archive.insert(place, {individual, false});
    } else if (isGain(individual.loss, place->individual.loss)) {
      *place = {individual, false};
    }
  }
}

std::vector<Candidate> unpolished(std::vector<std::vector<Archived>>& archives) {
  std::vector<Candidate> candidates;
  for (std::size_t link = 0; link < archives.size(); ++link) {
    double least = std::numeric_limits<double>::infinity();
    for (Archived& archived : archives[link]) {
      if (!isGain(archived.individual.loss, least)) archived.is_polished = true;
      least = std::min(least, archived.individual.loss);
      if (!archived.is_polished) candidates.push_back({&archived, link});
    }
  }
  std::ranges::stable_sort(candidates, {}, [](const Candidate& one) { return one.archived->individual.loss; });
  return candidates;
}

void polishCandidates(std::span<const Candidate> candidates, const Polisher& polisher, Front& front) {
  std::vector<Finalist> finalists;
  for (const Candidate& candidate : candidates) {
    finalists.push_back({candidate.archived->individual.tree, candidate.link});
  }
  polisher.polish(finalists, front);
  for (const Candidate& candidate : candidates) candidate.archived->is_polished = true;
}

}  // namespace srjit::search

// The best trees of every complexity and link, from which formulas are made.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tools/search/evolution.h"
#include "tools/search/formulas/polish.h"

namespace srjit::search {

/// Takes trees that are the best of their complexity, by more than is worth a tree's polishing, to the archive of their
/// link, whose complexities ascend. Losses that are not finite are left out.
void archive(std::vector<Archived>& archive, std::span<const Individual> individuals);

/// An archived tree that was not polished. Borrowed from the archives.
struct Candidate {
  Archived* archived;
  std::size_t link;
};

/// The best first. Trees that a simpler one is as good as are marked as polished, and left out.
std::vector<Candidate> unpolished(std::vector<std::vector<Archived>>& archives);

/// Adds to `front` what `polisher` makes of the candidates, and marks them. Throws as Polisher::polish(), and then
/// changes nothing.
void polishCandidates(std::span<const Candidate> candidates, const Polisher& polisher, Front& front);

}  // namespace srjit::search

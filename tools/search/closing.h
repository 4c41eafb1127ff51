// The best trees of every complexity and frame, from which formulas are made, and the end of a search: what it has
// found becomes the front that it gives, as far as the time allows.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tools/search/evolution.h"
#include "tools/search/formulas/polish.h"
#include "tools/search/setup.h"
#include "tools/search/timekeeper.h"

namespace srjit::search {

/// Takes trees that are the best of their complexity, by a share `gain` of the loss (SearchSetup), to the archive of
/// their frame, whose complexities ascend. Losses that are not finite are left out.
void archive(std::vector<Archived>& archive, const Individuals& individuals, double gain);

/// An archived tree that was not polished. Borrowed from the archives.
struct Candidate {
  Archived* archived;
  std::size_t frame;
};

/// The best first. Trees that are not better than a simpler one by a share `gain` are marked as polished, and left out.
std::vector<Candidate> unpolished(std::vector<std::vector<Archived>>& archives, double gain);

/// Adds to `front` what `polisher` makes of the candidates, and marks them. Throws as Polisher::polish(), and then
/// marks none.
void polishCandidates(std::span<const Candidate> candidates, const Polisher& polisher, Front& front);

/// Fits and rounds the formulas of `state` in slices, the most important first, as long as `time` allows; then the rest
/// stays as it is. Archived trees become formulas, unless the search ended with `kEnough`. If no generation was
/// completed, formulas that are linear in the best columns are added. If rows were held out, the constants are fitted
/// to all rows at last: of every formula, or, if there is no time, of none. Gives sentences for the user: what there
/// was no time for, and which rows losses are over. Without a request the result depends on `state` only. Throws what
/// the polisher throws.
std::vector<std::string> closeSearch(SearchState& state, SearchEnd end, const SearchSetup& setup,
                                     const Polisher& polisher, const Timekeeper& time);

}  // namespace srjit::search

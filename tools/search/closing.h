// The end of a search: what it has found becomes the front that it gives, as far as the time allows.
#pragma once

#include <optional>
#include <string>

#include "tools/search/formulas/polish.h"
#include "tools/search/setup.h"
#include "tools/search/timekeeper.h"

namespace srjit::search {

/// Fits and rounds the formulas of `state` in slices, the most important first, until `closed` is requested; then the
/// rest stays as it is. `polisher` must end its calls when `closed` is requested. Archived trees become formulas,
/// unless the search ended with `kEnough`. If no generation was completed, formulas that are linear in the best columns
/// are added. Gives a sentence for the user about what there was no time for, or none. Without a request the result
/// depends on `state` only. Throws what the polisher throws.
std::optional<std::string> closeSearch(SearchState& state, SearchEnd end, const SearchSetup& setup,
                                       const Polisher& polisher, const std::stop_token& closed);

}  // namespace srjit::search

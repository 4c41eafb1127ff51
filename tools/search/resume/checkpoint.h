// The state of a search as text, from which it goes on.
#pragma once

#include <string>
#include <string_view>

#include "tools/search/evolution.h"

namespace srjit::search {

/// JSON, in which trees are postfix text, and numbers read back exactly.
std::string checkpointText(const SearchState& state);

/// The state that `text` was made of. Errors (kInvalid): text that is no checkpoint of this version, or is damaged.
Result<SearchState> readCheckpoint(std::string_view text);

}  // namespace srjit::search

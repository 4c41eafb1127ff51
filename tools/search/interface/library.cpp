#include "tools/search/library.h"

#include "runtime/platform/guarded.h"
#include "tools/search/interface/options.h"
#include "tools/search/resume/checkpoint.h"

namespace srjit::search {
namespace {

Found foundOf(const SearchState& state) {
  return {.front = state.front,
          .seconds = state.seconds,
          .generations = state.generations,
          .candidates = state.candidates,
          .fits = state.fits};
}

}  // namespace

Result<Found> search(const DataView& data, std::string_view options, const SearchCalls& calls) {
  return guarded([&]() -> Result<Found> {
    SearchOptions parsed = parseSearchOptions(options).value();
    parsed.stop = calls.stop;
    if (calls.progress) parsed.progress = [&](const SearchState& state) { calls.progress(foundOf(state)); };
    std::string last;
    parsed.checkpoint = [&](const SearchState& state, bool is_last) {
      if (is_last) last = checkpointText(state);
    };
    std::optional<SearchState> resumed;
    if (!calls.state.empty()) resumed = readCheckpoint(calls.state).value();
    SearchResult result = search(data, parsed, std::move(resumed)).value();
    Found found = foundOf(result.state);
    found.end = nameOf(result.end);
    found.device = result.device;
    found.notices = std::move(result.notices);
    found.state = std::move(last);
    return found;
  });
}

}  // namespace srjit::search

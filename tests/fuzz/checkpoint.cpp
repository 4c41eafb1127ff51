// Reads any bytes as the checkpoint of a search, and goes on with that search for one generation. Invariants: a state
// that is read is written and reads back the same; it is refused by the search, or the search's state reads back.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/harness/bytes.h"
#include "tools/search/resume/checkpoint.h"

namespace {

using namespace srjit;
using fuzz::require;

struct Table {
  std::vector<double> x = {1, 2, 3, 4, 5, 6}, z = {2, 1, 3, 0.5, 7, 4}, y = {3, 5, 7, 9.5, 11, 13};

  DataView view() const { return {.columns = {x, z}, .target = y, .weights = {}, .names = {}}; }
};

search::SearchOptions optionsOf() {
  search::SearchOptions options;
  options.engine = {
      .device = "cpu", .precision = Precision::kF64, .tier = Tier::kInterpret, .threads = 1, .cache_directory = ""};
  options.selecting_engine = Engine::create(options.engine).value();
  options.links = {"identity", "log"};
  options.islands = 2;
  options.island = {.population = 4, .offspring = 8};
  options.held_out = 0.25;
  options.stop = [] { return true; };
  return options;
}

void checkRoundTrip(const search::SearchState& state) {
  const std::string text = search::checkpointText(state);
  const auto back = search::readCheckpoint(text);
  require(back.ok() && search::checkpointText(*back) == text, "a state that is written reads back", text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Table kTable;
  static const search::SearchOptions kOptions = optionsOf();
  static const std::uint64_t kFingerprint = search::fingerprintOf(kTable.view(), kOptions);
  const std::string_view text = fuzz::textOf({data, size});
  auto state = search::readCheckpoint(text);
  if (!state) {
    require(state.error().code == Errc::kInvalid && !state.error().message.empty(), "an error says why", text);
    return 0;
  }
  checkRoundTrip(*state);
  state->fingerprint = kFingerprint;
  const auto found = search::search(kTable.view(), kOptions, *std::move(state));
  if (!found) {
    require(found.error().code == Errc::kInvalid, "only a damaged state is refused", found.error().message);
    return 0;
  }
  checkRoundTrip(found->state);
  return 0;
}

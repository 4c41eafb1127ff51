// Reads any bytes as the checkpoint of a search. Invariant: a state that is read is written and reads back the same.
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/harness/bytes.h"
#include "tools/search/resume/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace srjit;
  using fuzz::require;
  const std::string_view text = fuzz::textOf({data, size});
  const auto state = search::readCheckpoint(text);
  if (!state) {
    require(state.error().code == Errc::kInvalid && !state.error().message.empty(), "an error says why", text);
    return 0;
  }
  const std::string written = search::checkpointText(*state);
  const auto back = search::readCheckpoint(written);
  require(back.ok(), "what is written is read", written);
  require(search::checkpointText(*back) == written, "with the same text", written);
  return 0;
}

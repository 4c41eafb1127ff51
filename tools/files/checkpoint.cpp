#include "tools/files/checkpoint.h"

#include <filesystem>

#include <fmt/format.h>

#include "tools/files/output.h"
#include "tools/files/read.h"
#include "tools/search/checkpoint.h"

namespace srjit {
namespace {

constexpr std::chrono::seconds kBetweenCheckpoints{5};

Status writeFile(const std::string& path, std::string_view text) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  file->write(text);
  return file->publish();
}

}  // namespace

Result<std::optional<search::SearchState>> CheckpointFile::read(std::uint64_t fingerprint) const {
  if (path_.empty()) return std::optional<search::SearchState>();
  if (std::error_code ignored; !std::filesystem::exists(path_, ignored)) {
    const Result<OutputFile> file = OutputFile::create(path_);
    if (!file) return file.error();
    return std::optional<search::SearchState>();
  }
  const Result<std::string> text = readFile(path_);
  if (!text) return text.error();
  Result<search::SearchState> state = search::readCheckpoint(*text);
  const auto invalid = [&](const std::string& message) {
    return Error{Errc::kInvalid, fmt::format("{}: {}", displayName(path_), message), {}};
  };
  if (!state) return invalid(state.error().message);
  if (state->fingerprint != fingerprint) return invalid("it is the checkpoint of a search with other data or options");
  return std::optional(*std::move(state));
}

void CheckpointFile::take(const search::SearchState& state, bool is_last) {
  if (path_.empty() || (!is_last && std::chrono::steady_clock::now() < next_)) return;
  status_ = writeFile(path_, search::checkpointText(state));
  next_ = std::chrono::steady_clock::now() + kBetweenCheckpoints;
}

}  // namespace srjit

#include "tools/files/checkpoint.h"

#include <filesystem>

#include <fmt/format.h>

#include "tools/files/output.h"
#include "tools/files/read.h"
#include "tools/search/resume/checkpoint.h"

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

Result<std::optional<search::SearchState>> CheckpointFile::read(std::uint64_t fingerprint) {
  if (!path_) return std::optional<search::SearchState>();
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(*path_, ignored))
    *path_ = (fs::path(*path_) / fmt::format("{:016x}.json", fingerprint)).string();
  const std::string name = displayName(*path_);
  const fs::file_status file = fs::status(*path_, ignored);
  if (!fs::exists(file)) {
    const Result<OutputFile> writable = OutputFile::create(*path_);
    if (!writable) return writable.error();
    return std::optional<search::SearchState>();
  }
  if (!fs::is_regular_file(file)) {
    return Error{Errc::kIo, fmt::format("{}: a checkpoint is a file or in a folder, not a device or pipe", name), {}};
  }
  const Result<std::string> text = readFile(*path_);
  if (!text) return text.error();
  Result<search::SearchState> state = search::readCheckpoint(*text);
  if (!state) {
    const std::optional<Span>& where = state.error().where;
    const std::string place = where ? fmt::format("{}:{}:{}", name, where->line, where->column) : name;
    return Error{Errc::kInvalid, fmt::format("{}: {}", place, state.error().message), {}};
  }
  if (state->fingerprint != fingerprint) {
    return Error{Errc::kInvalid,
                 fmt::format("{}: it is the checkpoint of a search with other data or options; give another file, or a "
                             "folder, where each search has its own",
                             name),
                 {}};
  }
  return std::optional(*std::move(state));
}

void CheckpointFile::take(const search::SearchState& state, bool is_last) {
  if (!path_ || (!is_last && std::chrono::steady_clock::now() < next_)) return;
  status_ = writeFile(*path_, search::checkpointText(state));
  next_ = std::chrono::steady_clock::now() + kBetweenCheckpoints;
}

}  // namespace srjit

// The file from which a search goes on after its process has ended.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "tools/search/evolution.h"

namespace srjit {

/// Writes states of a search to a file, every few seconds and at the end. Not thread-safe.
class CheckpointFile {
 public:
  /// An empty path: no file; nothing is read or written.
  explicit CheckpointFile(std::string path) : path_(std::move(path)) {}

  /// The state in the file; none if there is no file. Errors: kIo for a file that cannot be read, or not be written
  /// later; kInvalid for one that is no checkpoint, or of a search with another fingerprint.
  Result<std::optional<search::SearchState>> read(std::uint64_t fingerprint) const;

  /// For SearchOptions::checkpoint. A state that cannot be written costs no search: the next one is tried again.
  void take(const search::SearchState& state, bool is_last);

  /// Of the last write.
  const Status& status() const noexcept { return status_; }

 private:
  std::string path_;
  Status status_ = okStatus();
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now();
};

}  // namespace srjit

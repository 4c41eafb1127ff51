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
  /// Without a path, nothing is read or written. If the path is that of a folder, the file is one in that folder, named
  /// after the fingerprint: every search of other data or options has a file of its own there.
  explicit CheckpointFile(std::optional<std::string> path) : path_(std::move(path)) {}

  /// The state in the file; none if there is no file. To be called once, before take(). Errors: kIo for a file that
  /// cannot be read, or not be written later, and for a device or pipe; kInvalid for a file that is no checkpoint, or
  /// that of a search with another fingerprint.
  Result<std::optional<search::SearchState>> read(std::uint64_t fingerprint);

  /// For SearchOptions::checkpoint. A state that cannot be written costs no search: the next one is tried again.
  void take(const search::SearchState& state, bool is_last);

  /// Of the last write.
  const Status& status() const noexcept { return status_; }

 private:
  std::optional<std::string> path_;
  Status status_ = okStatus();
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now();
};

}  // namespace srjit

// Files that appear complete or not at all.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ir/error.h"

namespace srjit {

/// A file being written. Its bytes go to an unnamed (or, where the file system has none, temporary) file in the same
/// directory, and get their name only in publish(), after they have reached the disk: whatever fails or dies before,
/// `path` stays as it was. "-" is standard output; it and existing devices and pipes are written directly.
/// Not thread-safe.
class OutputFile {
 public:
  /// Opens `path` for writing. Errors are kIo.
  static Result<OutputFile> create(const std::string& path);

  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept;
  ~OutputFile();  ///< drops everything that was not published

  /// Appends; buffered. After a failure does nothing, and publish() tells.
  void write(std::string_view bytes);

  /// Writes out the rest and gives the file its name. Nothing may be written afterwards. Errors are kIo.
  Status publish();

  /// Removes the temporary files of all objects, for a process that ends without destructors: takes no locks, allocates
  /// nothing. No thread may be in a call of an object, and none may be used afterwards.
  static void removeTemporaries() noexcept;

 private:
  struct State;
  explicit OutputFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace srjit

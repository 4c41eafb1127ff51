// Files that appear complete or not at all.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ir/error.h"

namespace srjit {

/// A file being written. Its bytes go to an unnamed (or, where the file system has none or /proc is missing, temporary)
/// file in the same directory, and get their name only in publish(), after they have reached the disk: `path` is
/// unchanged if writing fails or the process ends before. A temporary name is removed when the process is ended by a
/// signal, except SIGKILL. Not thread-safe.
///
/// - "-" is standard output. It, /dev/stdout, /dev/fd/N, devices and pipes are written
///   directly: the first bytes may be there before the last.
/// - A symbolic link stays: the file that it points to is written, also where that is not there yet.
/// - An existing file that cannot be replaced without losing something is overwritten in publish(): one of another
///   owner, a mount point, one in a directory that may not be written. It stays as it was until then; what fails from
///   then on may damage it. The other names (hard links) of a file that is replaced keep the old content.
class OutputFile {
 public:
  /// Opens `path` for writing, and checks what can be known now: that directory and file may be written, that the name
  /// is not too long. Errors are kIo.
  static Result<OutputFile> create(const std::string& path);

  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept;
  ~OutputFile();  ///< drops everything that was not published

  /// Appends; buffered. After a failure does nothing, and publish() tells.
  void write(std::string_view bytes);

  /// Writes out the rest and gives the file its name. Nothing may be written afterwards. Errors are kIo. Where standard
  /// output or a pipe has lost its reader, the process ends as SIGPIPE ends it.
  Status publish();

 private:
  struct State;
  explicit OutputFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace srjit

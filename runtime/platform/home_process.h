// Whether this process is still the one that made something.
#pragma once

#include <unistd.h>

namespace srjit {

/// The process that this was made in. A child of fork() has the memory of its parent, but not its threads, its locks or
/// its device; "Forks and crashes" in docs/architecture.md says what is done there.
class HomeProcess {
 public:
  bool isForked() const noexcept { return getpid() != id_; }

 private:
  pid_t id_ = getpid();
};

}  // namespace srjit

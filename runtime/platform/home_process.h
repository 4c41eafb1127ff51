// Detects the child of a fork().
#pragma once

#include <unistd.h>

namespace srjit {

/// Remembers the process that constructed it. A child of fork() has the memory of its parent, but not its threads,
/// locks and device ("Forks and crashes" in docs/internals/reliability.md).
class HomeProcess {
 public:
  bool isForked() const noexcept { return getpid() != id_; }

 private:
  pid_t id_ = getpid();
};

}  // namespace srjit

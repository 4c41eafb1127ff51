// Whether a process still is the one that made something.
#pragma once

#include <unistd.h>

namespace srjit {

/// The process that the object which holds it was made in: a child of fork() has the memory of its parent, but neither
/// its threads nor its locks nor its device.
class HomeProcess {
 public:
  bool isForked() const noexcept { return getpid() != id_; }

 private:
  pid_t id_ = getpid();
};

}  // namespace srjit

// What belongs to one process: file descriptors with an owner, and its forks.
#pragma once

#include <unistd.h>

#include <utility>

namespace srjit {

/// Owns a descriptor, or none (a negative number). Movable; the destructor closes it.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (isOpen()) ::close(number_);
  }

  bool isOpen() const noexcept { return number_ >= 0; }
  int get() const noexcept { return number_; }
  /// The caller becomes the owner.
  int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_;
};

/// Remembers the process that constructed it. A child of fork() has the memory of its parent, but not its threads,
/// locks and device ("Forks and crashes" in docs/internals/reliability.md).
class HomeProcess {
 public:
  bool isForked() const noexcept { return getpid() != id_; }

 private:
  pid_t id_ = getpid();
};

}  // namespace srjit

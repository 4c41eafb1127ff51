// What faults that tests inject spare.
#pragma once

#include <utility>

namespace srjit {

/// While one exists, what runs on this thread is not the library's: it is a model of a machine, or a test. Faults of
/// memory and of the system (tests/faults) spare it. Scopes may be nested.
class SparedScope {
 public:
  SparedScope() noexcept { ++depth_; }
  ~SparedScope() { --depth_; }
  SparedScope(const SparedScope&) = delete;
  SparedScope& operator=(const SparedScope&) = delete;

  static bool here() noexcept { return depth_ != 0; }

 private:
  friend class LibraryScope;
  static inline constinit thread_local unsigned depth_ = 0;
};

/// While one exists, what runs on this thread is the library's again: the call of a test.
class LibraryScope {
 public:
  LibraryScope() noexcept : before_(std::exchange(SparedScope::depth_, 0)) {}
  ~LibraryScope() { SparedScope::depth_ = before_; }
  LibraryScope(const LibraryScope&) = delete;
  LibraryScope& operator=(const LibraryScope&) = delete;

 private:
  unsigned before_;
};

}  // namespace srjit

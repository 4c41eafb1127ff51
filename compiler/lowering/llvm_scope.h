// Which threads are inside LLVM.
#pragma once

namespace srjit {

/// Marks its thread as inside LLVM (llvm_failures.h) for as long as it exists: every function that calls LLVM has one
/// around whatever may allocate there, destructors of LLVM's objects included. Scopes may be nested. An object is
/// constructed and destroyed on one thread.
class LlvmScope {
 public:
  LlvmScope() noexcept { ++depth_; }
  ~LlvmScope() { --depth_; }
  LlvmScope(const LlvmScope&) = delete;
  LlvmScope& operator=(const LlvmScope&) = delete;

  /// Whether the calling thread has one.
  static bool here() noexcept { return depth_ != 0; }

 private:
  static inline constinit thread_local unsigned depth_ = 0;
};

}  // namespace srjit

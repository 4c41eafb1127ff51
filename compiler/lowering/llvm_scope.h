// Which threads are in LLVM.
#pragma once

namespace srjit {

/// While one lives, its thread counts as being in LLVM (llvm_failures.h): every function that calls LLVM has one around
/// whatever may allocate there, destructors of LLVM's objects included. Scopes may be nested. An object lives and dies
/// on one thread.
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

// Object files to executable memory, by LLVM's JITLink.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ir/error.h"

namespace srjit {

/// A relocatable object file with one function of global linkage, which is called kHostFunction. Immutable, and shared
/// with whoever keeps it.
using HostObject = std::shared_ptr<const std::vector<std::byte>>;
inline constexpr const char* kHostFunction = "srjit_function";

/// Code that can be called, for as long as `memory` lives.
struct LinkedCode {
  std::vector<void*> functions;  ///< of each object, in order
  std::shared_ptr<const void> memory;
};

/// The functions lie side by side: on pages of their own they would begin in the same sets of the processor's caches.
/// They may call functions of libm and libc. Errors: kCompile with LLVM's or the system's reason.
Result<LinkedCode> linkObjects(std::span<const HostObject> objects);

}  // namespace srjit

// Memory that is read soon.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/platform/aligned_buffer.h"

namespace srjit {

/// Has the lines of these bytes brought into the cache of this core.
inline void prefetch(const void* address, std::size_t bytes) noexcept {
  const auto* const begin = static_cast<const std::byte*>(address);
  const std::size_t before = reinterpret_cast<std::uintptr_t>(begin) % kCacheLine;
  for (const std::byte* line = begin - before; line < begin + bytes; line += kCacheLine) __builtin_prefetch(line);
}

}  // namespace srjit

// Memory that is read soon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/platform/aligned_buffer.h"

namespace srjit {

/// Has the lines of these bytes brought into the cache of this core.
inline void prefetch(std::span<const std::byte> bytes) noexcept {
  const std::byte* const begin = bytes.data();
  const std::size_t before = reinterpret_cast<std::uintptr_t>(begin) % kCacheLine;
  for (const std::byte* line = begin - before; line < begin + bytes.size(); line += kCacheLine)
    __builtin_prefetch(line);
}

}  // namespace srjit

// `operator new` in all forms, with failures on demand (points.h).
#include <cstdlib>
#include <new>

#include "tests/faults/points.h"

namespace {

std::atomic<std::ptrdiff_t> live = 0;

void* take(std::size_t bytes, std::size_t alignment) noexcept {
  if (srjit::failsHere(srjit::PointKind::kAllocation)) return nullptr;
  void* const memory = alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__
                           ? std::malloc(bytes == 0 ? 1 : bytes)
                           : std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory != nullptr) live.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void* takeOrThrow(std::size_t bytes, std::size_t alignment) {
  if (void* const memory = take(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

void give(void* memory) noexcept {
  if (memory != nullptr) live.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

constexpr std::size_t kPlain = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

std::size_t numberOf(std::align_val_t alignment) noexcept { return static_cast<std::size_t>(alignment); }

}  // namespace

// Replaced as [new.delete] allows.
void* operator new(std::size_t n) { return takeOrThrow(n, kPlain); }
void* operator new[](std::size_t n) { return takeOrThrow(n, kPlain); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return take(n, kPlain); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return take(n, kPlain); }
void* operator new(std::size_t n, std::align_val_t a) { return takeOrThrow(n, numberOf(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return takeOrThrow(n, numberOf(a)); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return take(n, numberOf(a)); }
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return take(n, numberOf(a)); }
void operator delete(void* p) noexcept { give(p); }
void operator delete[](void* p) noexcept { give(p); }
void operator delete(void* p, std::size_t) noexcept { give(p); }
void operator delete[](void* p, std::size_t) noexcept { give(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { give(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { give(p); }
void operator delete(void* p, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { give(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { give(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { give(p); }

namespace srjit {

std::ptrdiff_t liveAllocations() noexcept { return live.load(std::memory_order_relaxed); }

}  // namespace srjit

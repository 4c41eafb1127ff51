#include "tests/runtime/gpu/failing_memory.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> failing_bytes = 0;
std::atomic<int> calls_left = 0;

}  // namespace

#ifndef SRJIT_SANITIZED
// Replaced as [new.delete.single] allows; the array forms call these.
void* operator new(std::size_t bytes) {
  if (bytes != 0 && bytes == failing_bytes.load() && --calls_left == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace srjit {

FailingMemory::FailingMemory(std::size_t bytes, int n) {
  calls_left = n;
  failing_bytes = bytes;
}
FailingMemory::~FailingMemory() { failing_bytes = 0; }
bool FailingMemory::failed() const { return calls_left <= 0; }

}  // namespace srjit

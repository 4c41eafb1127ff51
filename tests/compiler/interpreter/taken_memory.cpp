#include "tests/compiler/interpreter/taken_memory.h"

#include <cstdlib>
#include <new>

#include "compiler/interpreter/front_end/arguments.h"
#include "ir/numbers/rounding.h"

namespace {

thread_local bool counts = false;
thread_local std::size_t taken = 0;

}  // namespace

#ifndef SRJIT_SANITIZED
// Replaced as [new.delete.single] allows; the array forms call these.
void* operator new(std::size_t bytes) {
  if (counts) taken += srjit::roundUp(bytes, srjit::kWorkerAlignment);
  for (;;) {
    if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace srjit {

TakenMemory::TakenMemory() {
  taken = 0;
  counts = true;
}
TakenMemory::~TakenMemory() { counts = false; }
std::size_t TakenMemory::bytes() const { return taken; }
bool TakenMemory::isCounted() {
#ifdef SRJIT_SANITIZED
  return false;
#else
  return true;
#endif
}

}  // namespace srjit

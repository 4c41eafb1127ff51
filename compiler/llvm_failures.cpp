#include "compiler/llvm_failures.h"

#include <cstdio>
#include <cstdlib>
#include <new>

#include <llvm/Support/ErrorHandling.h>

#include "compiler/lowering/llvm_scope.h"

namespace srjit {
namespace {

constexpr const char* kNoMemory = "out of memory";

LlvmFailureHandler chosen_handler = nullptr;
std::new_handler previous = nullptr;

[[noreturn]] void end(const char* reason) {
  chosen_handler(reason);
  std::abort();
}

void onFatalError(void*, const char* reason, bool) {
  char text[512];
  std::snprintf(text, sizeof text, "LLVM failed: %s", reason);
  end(text);
}

// LLVM's reason names the allocator that failed.
void onBadAlloc(void*, const char*, bool) { end(kNoMemory); }

// Nothing may unwind through LLVM, so this is the last place where its operator new can be stopped.
void onNoMemory() {
  if (LlvmScope::here()) end(kNoMemory);
  if (previous == nullptr) throw std::bad_alloc();
  previous();
}

}  // namespace

void endWhereLlvmFails(LlvmFailureHandler handler) {
  chosen_handler = handler;
  llvm::install_fatal_error_handler(onFatalError);
  llvm::install_bad_alloc_error_handler(onBadAlloc);
  previous = std::set_new_handler(onNoMemory);
}

}  // namespace srjit

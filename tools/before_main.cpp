// Libraries allocate while they are initialised, before main(): std::bad_alloc would end in std::terminate() there, and
// LLVM's allocators in abort(). The loader calls the functions in .preinit_array before it initialises any library.
// Only the command has this; main() puts the usual handling back.
#include <new>

#include <llvm/Support/ErrorHandling.h>

#include "tools/report.h"

namespace {

void endWithoutMemory() { srjit::reportAndExit("out of memory"); }

void beforeLibraries() {
  std::set_new_handler(endWithoutMemory);
  llvm::install_bad_alloc_error_handler([](void*, const char*, bool) { endWithoutMemory(); });
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)() = beforeLibraries;

}  // namespace

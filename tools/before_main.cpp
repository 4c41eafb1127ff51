// Libraries allocate while they are initialised, before main(), where std::bad_alloc would end in std::terminate(). The
// loader calls what is in .preinit_array before it initialises any library. Part of the command alone; main() puts the
// usual handling back.
#include <new>

#include "tools/report.h"

namespace {

void endWithoutMemory() { srjit::reportAndExit("out of memory"); }

void beforeLibraries() { std::set_new_handler(endWithoutMemory); }

[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)() = beforeLibraries;

}  // namespace

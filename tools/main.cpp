// sr-jit: the command. Its contract is docs/command.md; the exit statuses are in tools/report.h.
#include <llvm/Support/ErrorHandling.h>

#include <new>

#include "tools/command_line.h"

int main(int argc, char** argv) {
  // Both were set in before_main.cpp.
  std::set_new_handler(nullptr);
  llvm::remove_bad_alloc_error_handler();
  return srjit::runCommandLine(argc, argv);
}

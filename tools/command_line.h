// The command as a function, for the program sr-jit and for the Python package, which has it as a console script.
#pragma once

namespace srjit {

/// Does what `sr-jit` with these words does, and gives its exit status. Call once per process, and nothing of the
/// library before it: LLVM's fatal errors end the process from then on.
int runCommandLine(int argc, const char* const* argv);

}  // namespace srjit

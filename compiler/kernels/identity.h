// The versions of everything that makes kernels.
#pragma once

#include <string>

namespace srjit {

/// Everything besides the arguments that decides the bits of an image: a hash of this library's sources and tables up
/// to the compiler, its version, LLVM's version, and the assembler with its file's size and time.
/// Made at the first call; later ones copy it. Thread-safe.
std::string compilerIdentity();

}  // namespace srjit

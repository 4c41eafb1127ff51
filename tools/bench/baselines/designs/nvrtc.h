// NVIDIA's run-time compiler of CUDA C++, loaded at first use.
#pragma once

#include <string>

#include "compiler/kernels/image_maker.h"

namespace srjit {

/// Compiles `source` with approximate arithmetic for `arch` ("sm_90"), to machine code or to PTX. Errors: kMachine
/// without libnvrtc (or one that lacks an entry), kCompile with its log. Thread-safe.
Result<KernelImage> compileCuda(const std::string& source, const std::string& arch, bool to_ptx);

/// Whether compileCuda() finds the library.
bool hasNvrtc();

}  // namespace srjit

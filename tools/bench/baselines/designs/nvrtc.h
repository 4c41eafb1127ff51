// NVIDIA's run-time compiler of CUDA C++, loaded at first use.
#pragma once

#include <string>

#include "compiler/kernels/image_maker.h"
#include "ir/numeric.h"

namespace srjit {

/// Compiles `source` for `arch` ("sm_90"), to machine code or to PTX; in `fast` with approximate arithmetic. Errors:
/// kMachine without libnvrtc (or one that lacks an entry), kCompile with its log. Thread-safe.
Result<KernelImage> compileCuda(const std::string& source, const std::string& arch, bool to_ptx, Math math);

/// Whether compileCuda() finds the library.
bool hasNvrtc();

}  // namespace srjit

// Names of straight-line kernels, on GPUs and on the host.
#pragma once

#include <cstddef>
#include <string>

namespace srjit {

/// The name of the kernel of graph `index` of a module.
inline std::string rowsKernelName(std::size_t index) { return "srjit_rows_" + std::to_string(index); }

}  // namespace srjit

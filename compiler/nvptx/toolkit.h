// Locates parts of the CUDA toolkit on this machine. None is needed to build; each is used where it is found.
#pragma once

#include <string>

namespace srjit {

/// Paths found; empty where a part is missing.
struct Toolkit {
  std::string nvjitlink;  ///< libnvJitLink.so: assembles PTX in this process
  std::string ptxas;      ///< assembles PTX in a process of its own
  std::string nvdisasm;   ///< disassembles cubins
  std::string nvrtc;      ///< libnvrtc.so: compiles CUDA C++, which only benchmarks do
};

/// Searches $SRJIT_CUDA_HOME, $CUDA_HOME, $CUDA_PATH, $SRJIT_PYTHON_PACKAGES, /usr/local/cuda, /opt/cuda, Debian's
/// nvidia-cuda-toolkit and $PATH, in this order; the first hit of each part counts. SRJIT_PYTHON_PACKAGES has folders
/// that pip installs packages into, with colons between them: nvidia/cu13 there, or nvidia/nvjitlink and
/// nvidia/cuda_nvrtc, hold libraries. Searched once per process.
const Toolkit& findToolkit();

}  // namespace srjit

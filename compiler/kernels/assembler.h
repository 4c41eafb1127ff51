// PTX to machine code without a GPU: nvJitLink in this process, or ptxas in one of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/error.h"

namespace srjit {

/// The assembler's report on one kernel.
struct KernelFacts {
  std::string name;
  unsigned registers = 0;
  unsigned stack_bytes = 0;  ///< stack frame
  unsigned spill_store_bytes = 0;
  unsigned spill_load_bytes = 0;
};

/// Of code: a cubin; PTX with a final 0, for the driver to assemble; or an object file for the CPU.
enum class ImageForm : std::uint8_t { kCubin, kPtx, kObject };

/// A loadable module.
struct KernelImage {
  std::vector<std::byte> code;
  ImageForm form = ImageForm::kCubin;
  std::vector<KernelFacts> kernels;  ///< in the order of the report; empty where the assembler has none, as with PTX
  double seconds = 0;                ///< of one core, to make it; assemble() does not count
};

/// Which assembler assemble() uses, e.g. "nvJitLink 13.0" or "/usr/local/cuda/bin/ptxas"; empty if there is none.
/// nvJitLink is preferred, since it starts no process. Its output may differ between versions. Thread-safe.
std::string_view assemblerName();

/// The path and version of the nvJitLink that was loaded. Errors: kMachine with dlerror()'s text for each place.
Result<std::string> describeNvJitLink();

/// `path`, of a program of the toolkit, if it starts. Errors: why it does not.
Result<std::string> describeProgram(const std::string& path);

/// Assembles `ptx` for `arch` ("sm_90"). `keeps_lines`: the cubin has the lines that `.loc` in the PTX names, which
/// change no instruction. Errors: kMachine without an assembler, kCompile with the assembler's log.
/// Thread-safe and parallel.
Result<KernelImage> assemble(std::string_view ptx, std::string_view arch, bool keeps_lines = false);

/// The disassembly of a cubin by nvdisasm. Errors: kMachine without nvdisasm, kCompile with its log.
Result<std::string> disassemble(std::span<const std::byte> cubin);

/// Kills the programs that calls above have started in any thread, and then removes their temporary files: for a
/// process that ends right after it, without waiting for its threads. They start no further program and make no further
/// file: a call that would do so never returns. Call it once.
void abandonPrograms();

/// Parts of the CUDA toolkit on this machine. None is needed to build; each is used where it is found. Empty where a
/// part is missing.
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

// Writes cubins, the ELF images that the CUDA driver loads, without an assembler; and reads them, those of the assembler
// included.
//
// NVIDIA does not document the format; this is what ptxas of CUDA 13.0 writes (ELF ABI version 8), less what only
// debuggers need. docs/internals/direct-code.md lists sections and attributes. Thread-safe: no state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/sass/instruction.h"
#include "ir/error.h"

namespace srjit {

/// The content of a kernel.
struct KernelDescription {
  std::string name;
  /// Pieces of code that follow one another; all must live until the image is written.
  std::vector<std::span<const sass::Word>> code;
  unsigned registers = 0;                      ///< per thread, at most 255
  std::vector<std::uint16_t> parameter_bytes;  ///< of each parameter in order; aligned to its size, structs to 8 bytes
  std::array<std::uint32_t, 3> max_threads = {};  ///< of a block; all 0: not said
  std::vector<std::uint32_t> exits;               ///< offsets of EXIT in bytes from the first piece; at most 16,000
};

/// One image of all kernels, which have different names and no static shared memory. `architecture` is one of
/// directArchitectures(). A branch to itself and at least eight NOPs, up to a multiple of 128 bytes, follow the code of
/// each kernel, as instructions are fetched ahead. Every byte of code is copied once, in parallel on the thread's
/// arena.
std::vector<std::byte> writeCubin(std::span<const KernelDescription> kernels, unsigned architecture);
/// The same into `image`, whose memory is used again: fresh memory costs more than the copy.
void writeCubin(std::span<const KernelDescription> kernels, unsigned architecture, std::vector<std::byte>& image);

/// A kernel of an image, of ours or of an assembler's.
struct CubinKernel {
  std::string name;
  std::vector<sass::Word> code;  ///< all of .text
  unsigned registers = 0;
  std::vector<std::uint16_t> parameter_bytes;
  std::uint32_t parameter_base = 0;      ///< where parameters begin in constant bank 0
  std::span<const std::byte> constants;  ///< initial contents of constant bank 0, in the image
  std::array<std::uint32_t, 3> max_threads = {};
  std::vector<std::uint32_t> exits;

  /// The code without the final branch to itself and the NOPs behind it.
  std::span<const sass::Word> body() const;
};

struct CubinContents {
  unsigned architecture = 0;
  std::vector<CubinKernel> kernels;  ///< in the order of their sections
};

/// Reads all kernels of an image; `image` must outlive the result. Errors: kCompile if it is not a cubin, or truncated.
Result<CubinContents> readCubin(std::span<const std::byte> image);

}  // namespace srjit

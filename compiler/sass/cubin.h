// Writes cubins, the ELF images that the CUDA driver loads, without an assembler; reads them, those of the assembler
// included; and lists machine code, without nvdisasm.
//
// NVIDIA does not document the format; this is what ptxas of CUDA 13.0 writes (ELF ABI version 8), less what only
// debuggers need. docs/internals/direct-code.md lists sections and attributes. Thread-safe: no state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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

namespace srjit::sass {

/// An instruction as nvdisasm writes it, e.g. "@!P0 FADD R5, |R4|, -R7"; `with_control` appends what Control says. A
/// `target` is written in place of a branch's offset. The text of each form is in columns of instructions.def.
std::string print(const Instruction& instruction, bool with_control = false, const std::string* target = nullptr);

/// Every word, decoded; nothing for one that is not in the table.
std::vector<std::optional<Instruction>> decodeAll(std::span<const Word> words, unsigned architecture);

/// A kernel: its facts, then one instruction per line, as "  0x0040  FADD R5, R0, R7 ; wait 2 write - ...". Branch
/// targets have labels ".L1:", `indirect_targets` (in instructions) ".T0:". A word that is not in the table is printed
/// in hex.
std::string listing(const CubinKernel& kernel, unsigned architecture,
                    std::span<const std::uint32_t> indirect_targets = {}, bool with_control = true);

/// All kernels of an image. Errors: as readCubin().
Result<std::string> listing(std::span<const std::byte> image, bool with_control = true);

}  // namespace srjit::sass

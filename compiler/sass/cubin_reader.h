// Reads cubins, those of the assembler included. Thread-safe: no state.
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

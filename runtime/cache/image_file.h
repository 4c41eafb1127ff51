// The form of a file of the cache: a header with checksums, a text, and code.
//
//   magic, version | XXH3 of all that follows, but for the code | key | XXH3 of the code | sizes of text and code
//   text: JSON [title, seconds, is PTX, [name, registers, stack, spill stores, spill loads] for each kernel]
//   code
//
// Numbers have the byte order of the machine. XXH3 (Y. Collet; LLVM's xxhash.h) finds damage, not forgery: whether a
// file is trusted is decided before it is read (runtime/cache/file_trust.h).
#pragma once

#include <cstdint>
#include <string>

#include "compiler/kernels/image_maker.h"
#include "compiler/kernels/key.h"

namespace srjit {

/// An image with the facts of its file. In lists it has no code.
struct StoredImage : KernelImage {
  KernelKey key;
  std::uint64_t bytes = 0;  ///< size of the file
  std::int64_t used = 0;    ///< last use or write by any process, accurate to ten minutes: seconds since 1970, UTC
};

enum class FileState : std::uint8_t {
  kAbsent,
  kSound,
  kOtherVersion,  ///< written by another version of sr-jit
  kDamaged,
  kForeign  ///< another program's: it begins neither with our magic nor with the zeros that a power failure may leave
};

/// All bytes of a file before the code.
std::string headOf(const KernelKey& key, const KernelImage& image);

/// Reads an open file of image.bytes bytes from its beginning, with its code only if `with_code`. The memory of
/// image.code is reused. A read that fails counts as damage; a damaged file may leave parts of `image` set.
FileState readImage(int file, bool with_code, StoredImage& image);

}  // namespace srjit

// Reading whole files, compressed or not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ir/error.h"

namespace srjit {

/// The content of the file `path`; "-" is standard input. A name that ends in .gz or .xz must be such an archive and is
/// decompressed; standard input is decompressed if it starts like one. Errors are kIo: a file that cannot be read, a
/// device that has no end, and an archive that is damaged, cut short, or of another format; and kLimit for more than
/// `max_bytes`, packed or unpacked, unless that is 0. No more are read then, but by a block of 1 MiB or the end of a
/// buffer that grows: memory is at most a few times `max_bytes`, and some MiB.
Result<std::string> readFile(const std::string& path, std::uint64_t max_bytes = 0);

/// The name by which messages call `path`: itself with unprintable bytes escaped, '' if it is empty, or "standard
/// input".
std::string displayName(std::string_view path);

/// `text` without the UTF-8 byte order mark that it may start with.
std::string_view withoutByteOrderMark(std::string_view text) noexcept;

}  // namespace srjit

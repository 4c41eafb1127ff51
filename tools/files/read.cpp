#include "tools/files/read.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/iostreams/device/array.hpp>
#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filter/lzma.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <cerrno>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "ir/text/lexer.h"

namespace srjit {
namespace {

namespace io = boost::iostreams;

enum class Packing { kNone, kGzip, kXz };

constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kXzMagic(
    "\xFD"
    "7zXZ\0",
    6);

Packing packingOf(std::string_view path, std::string_view content) {
  if (path.ends_with(".gz")) return Packing::kGzip;
  if (path.ends_with(".xz")) return Packing::kXz;
  if (path != "-") return Packing::kNone;
  if (content.starts_with(kGzipMagic)) return Packing::kGzip;
  if (content.starts_with(kXzMagic)) return Packing::kXz;
  return Packing::kNone;
}

Error cannotRead(const std::string& path, int number) {
  return {Errc::kIo, fmt::format("cannot read {}: {}", displayName(path), std::strerror(number)), {}};
}

/// Bytes that are read at once.
constexpr std::size_t kReadBytes = 1 << 20;

Error tooManyBytes(const std::string& path, std::uint64_t max_bytes, const char* when = "") {
  return {Errc::kLimit,
          fmt::format("{}: more than {} bytes{}; a larger --max-bytes allows it", displayName(path), max_bytes, when),
          {}};
}

bool isTooLarge(std::size_t size, std::uint64_t max_bytes) { return max_bytes != 0 && size > max_bytes; }

Result<std::string> readBytes(const std::string& path, std::uint64_t max_bytes) {
  const int file = path == "-" ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return cannotRead(path, errno);
  struct stat facts{};
  const bool is_device = fstat(file, &facts) == 0 && S_ISCHR(facts.st_mode) && isatty(file) == 0;
  std::string content;
  std::size_t size = 0;
  int failure = 0;
  bool is_endless = false;
  for (;;) {
    if (content.size() - size < kReadBytes) content.resize(content.size() * 2 + kReadBytes);
    const ssize_t got = read(file, content.data() + size, content.size() - size);
    if (got == 0) break;
    is_endless = got > 0 && is_device;  // as /dev/zero and /dev/full are
    if (is_endless) break;
    if (got > 0) {
      size += static_cast<std::size_t>(got);
      if (isTooLarge(size, max_bytes)) break;
    } else if (errno != EINTR) {
      failure = errno;
      break;
    }
  }
  close(file);
  if (is_endless) {
    return Error{Errc::kIo, fmt::format("cannot read {}: a device without an end", displayName(path)), {}};
  }
  if (failure != 0) return cannotRead(path, failure);
  if (isTooLarge(size, max_bytes)) return tooManyBytes(path, max_bytes);
  content.resize(size);
  return content;
}

Result<std::string> unpack(const std::string& path, const std::string& content, Packing packing,
                           std::uint64_t max_bytes) {
  const char* name = packing == Packing::kGzip ? "gzip" : "xz";
  if (!std::string_view(content).starts_with(packing == Packing::kGzip ? kGzipMagic : kXzMagic)) {
    return Error{Errc::kIo,
                 fmt::format("{}: not {} {} archive", displayName(path), packing == Packing::kGzip ? "a" : "an", name),
                 {}};
  }
  std::string plain;
  try {
    io::filtering_istream stream;
    if (packing == Packing::kGzip) {
      stream.push(io::gzip_decompressor());
    } else {
      stream.push(io::lzma_decompressor());
    }
    stream.push(io::array_source(content.data(), content.size()));
    stream.exceptions(std::ios::badbit);
    std::string block(kReadBytes, '\0');
    while (stream.read(block.data(), static_cast<std::streamsize>(kReadBytes)) || stream.gcount() > 0) {
      plain.append(block, 0, static_cast<std::size_t>(stream.gcount()));
      if (isTooLarge(plain.size(), max_bytes)) return tooManyBytes(path, max_bytes, " when unpacked");
    }
  } catch (const std::ios_base::failure&) {  // gzip_error and lzma_error are failures; their texts hold only a number
    return Error{Errc::kIo,
                 fmt::format("{}: the {} archive is damaged or cut short, after {} good bytes of content",
                             displayName(path), name, plain.size()),
                 {}};
  }
  return plain;
}

}  // namespace

std::string displayName(std::string_view path) {
  return path == "-" ? "standard input" : path.empty() ? "''" : text::printable(path);
}

std::string_view withoutByteOrderMark(std::string_view text) noexcept {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

Result<std::string> readFile(const std::string& path, std::uint64_t max_bytes) try {
  Result<std::string> content = readBytes(path, max_bytes);
  if (!content) return content;
  const Packing packing = packingOf(path, *content);
  return packing == Packing::kNone ? content : unpack(path, *content, packing, max_bytes);
} catch (const std::bad_alloc&) {
  return Error{Errc::kMachine, fmt::format("{}: not enough memory to hold it", displayName(path)), {}};
}

}  // namespace srjit

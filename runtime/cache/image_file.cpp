#include "runtime/cache/image_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <llvm/Support/xxhash.h>

#include "runtime/platform/json_text.h"

namespace srjit {
namespace {

using Sum = std::array<std::uint64_t, 2>;

constexpr std::array kMagic = {'s', 'r', '-', 'j', 'i', 't', ' ', 'i', 'm', 'a', 'g', 'e'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  std::array<char, 12> magic = kMagic;
  std::uint32_t version = kVersion;
  Sum head_sum{};
  Digest key{};
  Sum code_sum{};
  std::uint64_t text_bytes = 0, code_bytes = 0;
};
static_assert(std::has_unique_object_representations_v<Header>);
constexpr std::size_t kSummedFrom = offsetof(Header, key);

Sum checksumOf(std::span<const std::byte> bytes) {
  const llvm::XXH128_hash_t sum =
      llvm::xxh3_128bits(llvm::ArrayRef(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
  return {sum.low64, sum.high64};
}

Sum checksumOfHead(std::string_view head) { return checksumOf(std::as_bytes(std::span(head.substr(kSummedFrom)))); }

std::string textOf(const std::string& title, const KernelImage& image) {
  std::string text = fmt::format("[{},{},{:d}", quotedJson(title), numberOfJson(image.seconds), image.is_ptx);
  for (const KernelFacts& facts : image.kernels) {
    text += fmt::format(",[{},{},{},{},{}]", quotedJson(facts.name), facts.registers, facts.stack_bytes,
                        facts.spill_store_bytes, facts.spill_load_bytes);
  }
  return text + "]";
}

/// Reads textOf(); false if the text is malformed.
bool readText(std::string_view text, StoredImage& image) {
  using Kind = JsonEvent::Kind;
  constexpr std::array kRow = {Kind::kBeginArray, Kind::kText,  Kind::kWhole, Kind::kWhole,
                               Kind::kWhole,      Kind::kWhole, Kind::kEnd};
  constexpr std::size_t kFirstRow = 4;
  const std::optional<std::vector<JsonEvent>> events = readJson(text);
  if (!events || events->size() < kFirstRow + 1 || (events->size() - kFirstRow - 1) % kRow.size() != 0) return false;
  const JsonEvent &title = (*events)[1], &seconds = (*events)[2], &is_ptx = (*events)[3];
  if (title.kind != Kind::kText || is_ptx.kind != Kind::kWhole ||
      (seconds.kind != Kind::kWhole && seconds.kind != Kind::kNumber)) {
    return false;
  }
  image.key.title = title.text;
  image.seconds = seconds.number;
  image.is_ptx = is_ptx.whole != 0;
  image.kernels.clear();
  for (auto rows = std::span(*events).subspan(kFirstRow); rows.size() > 1; rows = rows.subspan(kRow.size())) {
    if (!std::ranges::equal(rows.first(kRow.size()), kRow, {}, &JsonEvent::kind)) return false;
    const auto number = [&](std::size_t i) { return static_cast<unsigned>(rows[i].whole); };
    image.kernels.push_back({rows[1].text, number(2), number(3), number(4), number(5)});
  }
  return true;
}

/// Fills `to`; false if the file ends before, or cannot be read.
bool readAll(int file, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t done = ::read(file, to.data(), to.size());
    if (done == 0 || (done < 0 && errno != EINTR)) return false;
    if (done > 0) to = to.subspan(static_cast<std::size_t>(done));
  }
  return true;
}

/// Resizes `bytes`. Where the kernel supports it (Linux 5.14), populates pages of new memory in one call: page faults
/// at first touch would take most of the time of reading a large image.
void resizeAtOnce(std::vector<std::byte>& bytes, std::size_t size) {
  if (size > bytes.capacity()) {
    bytes.clear();
    bytes.reserve(size);
#ifdef MADV_POPULATE_WRITE
    constexpr std::size_t kPage = 4096;
    const std::size_t before = (kPage - reinterpret_cast<std::uintptr_t>(bytes.data()) % kPage) % kPage;
    if (before + kPage <= size) madvise(bytes.data() + before, (size - before) / kPage * kPage, MADV_POPULATE_WRITE);
#endif
  }
  bytes.resize(size);
}

/// Whether a file that begins with `head` is one of ours, sound or not.
bool isOurs(std::string_view head) {
  const std::string_view magic = head.substr(0, kMagic.size());
  return std::ranges::equal(magic, std::span(kMagic).first(magic.size())) ||
         magic.find_first_not_of('\0') == std::string_view::npos;
}

}  // namespace

std::string headOf(const KernelKey& key, const KernelImage& image) {
  const std::string text = textOf(key.title, image);
  Header header;
  header.key = key.digest;
  header.code_sum = checksumOf(image.code);
  header.text_bytes = text.size();
  header.code_bytes = image.code.size();
  std::string head(sizeof header, '\0');
  std::memcpy(head.data(), &header, sizeof header);
  head += text;
  header.head_sum = checksumOfHead(head);
  std::memcpy(head.data(), &header, sizeof header);
  return head;
}

FileState readImage(int file, bool with_code, StoredImage& image) {
  Header header;
  std::string head(std::min<std::uint64_t>(image.bytes, sizeof header), '\0');
  if (!readAll(file, std::as_writable_bytes(std::span(head)))) return FileState::kDamaged;
  if (!isOurs(head)) return FileState::kForeign;
  if (head.size() < sizeof header) return FileState::kDamaged;
  std::memcpy(&header, head.data(), sizeof header);
  if (header.magic != kMagic) return FileState::kDamaged;
  if (header.version != kVersion) return FileState::kOtherVersion;
  const std::uint64_t rest = image.bytes - sizeof header;
  if (header.text_bytes > rest || header.code_bytes != rest - header.text_bytes) return FileState::kDamaged;
  head.resize(sizeof header + header.text_bytes);
  if (!readAll(file, std::as_writable_bytes(std::span(head).subspan(sizeof header))) ||
      checksumOfHead(head) != header.head_sum || !readText(std::string_view(head).substr(sizeof header), image)) {
    return FileState::kDamaged;
  }
  image.key.digest = header.key;
  if (!with_code) return FileState::kSound;
  resizeAtOnce(image.code, header.code_bytes);
  const bool is_sound = readAll(file, image.code) && checksumOf(image.code) == header.code_sum;
  return is_sound ? FileState::kSound : FileState::kDamaged;
}

}  // namespace srjit

#include "runtime/cache/disk_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/Support/xxhash.h>

#include "runtime/cache/files.h"

namespace srjit {

enum class FileState : std::uint8_t {
  kAbsent,
  kSound,
  kOtherVersion,  ///< written by another version of sr-jit
  kDamaged,
  kForeign  ///< another program's: it begins neither with our magic nor with the zeros that a power failure may leave
};

namespace {

// The form of a file:
//
//   magic, version | XXH3 of all that follows, but for the code | key | XXH3 of the code | sizes of facts and code
//   facts: title, seconds, form, then name, registers, stack, spill stores, spill loads of each kernel
//   code
//
// Numbers have the byte order of the machine; texts have their length before them. XXH3 (Y. Collet; LLVM's xxhash.h)
// finds damage, not forgery: whether a file is trusted is decided before it is read.
using Sum = std::array<std::uint64_t, 2>;

constexpr std::array kMagic = {'s', 'r', '-', 'j', 'i', 't', ' ', 'i', 'm', 'a', 'g', 'e'};
constexpr std::uint32_t kVersion = 2;

struct Header {
  std::array<char, 12> magic = kMagic;
  std::uint32_t version = kVersion;
  Sum head_sum{};
  Digest key{};
  Sum code_sum{};
  std::uint64_t fact_bytes = 0, code_bytes = 0;
};
static_assert(std::has_unique_object_representations_v<Header>);
constexpr std::size_t kSummedFrom = offsetof(Header, key);

Sum checksumOf(std::span<const std::byte> bytes) {
  const llvm::XXH128_hash_t sum =
      llvm::xxh3_128bits(llvm::ArrayRef(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
  return {sum.low64, sum.high64};
}

Sum checksumOfHead(std::string_view head) { return checksumOf(std::as_bytes(std::span(head.substr(kSummedFrom)))); }

/// The facts of a file, as above.
std::string factsOf(const std::string& title, const KernelImage& image) {
  std::string bytes;
  const auto add = [&](auto... values) { (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...); };
  const auto addText = [&](const std::string& text) {
    add(std::uint64_t{text.size()});
    bytes += text;
  };
  addText(title);
  add(image.seconds, image.form);
  for (const KernelFacts& facts : image.kernels) {
    addText(facts.name);
    add(facts.registers, facts.stack_bytes, facts.spill_store_bytes, facts.spill_load_bytes);
  }
  return bytes;
}

/// Reads factsOf(); false if the bytes are malformed.
bool readFacts(std::string_view bytes, StoredImage& image) {
  const auto take = [&](auto&... values) {
    if (bytes.size() < (sizeof values + ...)) return false;
    ((std::memcpy(&values, bytes.data(), sizeof values), bytes.remove_prefix(sizeof values)), ...);
    return true;
  };
  const auto takeText = [&](std::string& text) {
    std::uint64_t size = 0;
    if (!take(size) || bytes.size() < size) return false;
    text = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return true;
  };
  if (!takeText(image.key.title) || !take(image.seconds, image.form)) return false;
  image.kernels.clear();
  while (!bytes.empty()) {
    KernelFacts& facts = image.kernels.emplace_back();
    if (!takeText(facts.name) ||
        !take(facts.registers, facts.stack_bytes, facts.spill_store_bytes, facts.spill_load_bytes)) {
      return false;
    }
  }
  return true;
}

/// Whether a file that begins with `head` is one of ours, sound or not.
bool isOurs(std::string_view head) {
  const std::string_view magic = head.substr(0, kMagic.size());
  return std::ranges::equal(magic, std::span(kMagic).first(magic.size())) ||
         magic.find_first_not_of('\0') == std::string_view::npos;
}

/// All bytes of a file before the code.
std::string headOf(const KernelKey& key, const KernelImage& image) {
  const std::string text = factsOf(key.title, image);
  Header header;
  header.key = key.digest;
  header.code_sum = checksumOf(image.code);
  header.fact_bytes = text.size();
  header.code_bytes = image.code.size();
  std::string head(sizeof header, '\0');
  std::memcpy(head.data(), &header, sizeof header);
  head += text;
  header.head_sum = checksumOfHead(head);
  std::memcpy(head.data(), &header, sizeof header);
  return head;
}

/// Reads an open file of image.bytes bytes from its beginning, with its code only if `with_code`. The memory of
/// image.code is reused. A read that fails counts as damage; a damaged file may leave parts of `image` set.
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
  if (header.fact_bytes > rest || header.code_bytes != rest - header.fact_bytes) return FileState::kDamaged;
  head.resize(sizeof header + header.fact_bytes);
  if (!readAll(file, std::as_writable_bytes(std::span(head).subspan(sizeof header))) ||
      checksumOfHead(head) != header.head_sum || !readFacts(std::string_view(head).substr(sizeof header), image)) {
    return FileState::kDamaged;
  }
  image.key.digest = header.key;
  if (!with_code) return FileState::kSound;
  resizeAtOnce(image.code, header.code_bytes);
  const bool is_sound = readAll(file, image.code) && checksumOf(image.code) == header.code_sum;
  return is_sound ? FileState::kSound : FileState::kDamaged;
}

constexpr std::string_view kImage = ".kernel", kFact = ".fact", kPart = ".part";
// Uses are recorded at this granularity, so that a program that runs repeatedly only reads.
constexpr std::int64_t kUseSeconds = 600;
constexpr std::int64_t kStaleSeconds = 3600;  // no write takes as long, so its process has ended

constexpr int kReading = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;  // opening a FIFO must not block
constexpr int kWriting = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
constexpr int kListing = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

/// Seconds between a time and now, in either direction: the clock may have been set back.
std::int64_t secondsFrom(std::int64_t time) {
  using namespace std::chrono;
  return std::abs(duration_cast<seconds>(system_clock::now().time_since_epoch()).count() - time);
}

std::string fileNameOf(const Digest& digest, std::string_view extension) {
  return fmt::format("{:02x}{}", fmt::join(digest, ""), extension);
}

KernelKey keyOfFact(const std::string& name) { return {DigestBuilder().add(name).finish(), name}; }

/// Whether a name is one of images, facts or their temporary files.
bool isFileName(std::string_view name) {
  constexpr std::size_t kDigits = 2 * sizeof(Digest);
  if (name.find_first_not_of("0123456789abcdef") != kDigits) return false;
  const std::string_view extension = name.substr(kDigits);
  return std::ranges::any_of(std::array{kImage, kFact}, [&](std::string_view known) {
    return extension == known || (extension.starts_with(known) && extension.ends_with(kPart));
  });
}

/// The canonical name of a trusted directory, created if `access` allows it; `directory` itself if it does not exist.
/// Symbolic links in the given name are allowed: the trust check applies to the canonical name.
Result<std::filesystem::path> placeOf(const std::filesystem::path& directory, StoreAccess access) {
  const auto refused = [&](const std::string& why) {
    return Error{Errc::kMachine, fmt::format("cannot use the cache directory {}: {}", directory.string(), why), {}};
  };
  std::error_code making, failure;
  if (access == StoreAccess::kUse) making = makePrivateDirectories(directory);
  const std::filesystem::file_status status = std::filesystem::status(directory, failure);
  if (status.type() == std::filesystem::file_type::not_found) {
    if (access == StoreAccess::kUse) return refused(making.message());
    return directory;
  }
  if (failure) return refused(failure.message());
  if (!std::filesystem::is_directory(status)) return refused("it is no directory");
  std::filesystem::path place = std::filesystem::canonical(directory, failure);
  if (failure) return refused(failure.message());
  if (Status trust = checkTrustOfDirectory(place); !trust) return std::move(trust).error();
  return place;
}

}  // namespace

/// A file of the directory.
struct DiskStore::Found {
  std::string name;
  struct stat facts;
  bool is(std::string_view extension) const { return name.ends_with(extension); }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(facts.st_size); }
};

struct DiskStore::Loaded {
  FileState state;
  StoredImage image;
};

Result<std::unique_ptr<DiskStore>> DiskStore::open(const std::filesystem::path& directory, std::uint64_t bound,
                                                   StoreAccess access) {
  auto place = placeOf(directory, access);
  if (!place) return place.error();
  Descriptor folder(::open(place->c_str(), kListing | O_NOFOLLOW));
  const int number = errno;
  std::unique_ptr<DiskStore> store(new DiskStore(std::move(*place), std::move(folder), bound, access));
  const bool may_miss = access != StoreAccess::kUse && number == ENOENT;
  if (!store->folder_.isOpen() && !may_miss) return store->failure("open", "", number);
  return store;
}

Error DiskStore::failure(const char* doing, const std::string& name, int number) const {
  const std::filesystem::path file = name.empty() ? path_ : path_ / name;
  return {Errc::kMachine, fmt::format("cannot {} {}: {}", doing, file.string(), std::strerror(number)), {}};
}

/// The facts of a file by its name, or of an open `file`; false if it does not exist. An error if it is not trusted.
Result<bool> DiskStore::inspect(const std::string& name, struct stat& facts, int file) const {
  const int failed =
      file >= 0 ? fstat(file, &facts) : fstatat(folder_.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW);
  if (!folder_.isOpen() || (failed != 0 && errno == ENOENT)) return false;
  if (failed != 0) return failure("inspect", name, errno);
  if (Status trust = checkTrustOfFile(path_ / name, facts); !trust) return std::move(trust).error();
  return true;
}

/// Reads a file; every file whose content is used passes here.
Result<DiskStore::Loaded> DiskStore::load(const std::string& name, bool with_code, std::vector<std::byte> space) {
  const Descriptor file(openat(folder_.get(), name.c_str(), kReading));
  const int number = errno;
  Loaded loaded{FileState::kAbsent, {}};
  if (!file.isOpen() && number == ENOENT) return loaded;  // another process may write it by now
  struct stat facts{};
  const auto is_there = inspect(name, facts, file.get());
  if (!is_there) return is_there.error();
  if (!*is_there) return loaded;
  if (!file.isOpen()) return failure("open", name, number);
  loaded.image.code = std::move(space);
  loaded.image.bytes = static_cast<std::uint64_t>(facts.st_size);
  loaded.image.used = facts.st_mtim.tv_sec;
  loaded.state = readImage(file.get(), with_code, loaded.image);
  if (loaded.state == FileState::kSound && !name.starts_with(fileNameOf(loaded.image.key.digest, "."))) {
    loaded.state = FileState::kDamaged;
  }
  if (Status rejected = reject(name, loaded.state, facts); !rejected) return std::move(rejected).error();
  const bool is_use = with_code && access_ == StoreAccess::kUse && loaded.state == FileState::kSound;
  if (is_use && secondsFrom(loaded.image.used) > kUseSeconds) futimens(file.get(), nullptr);  // best effort
  return loaded;
}

/// Handles a trusted file that is not sound: counts and removes damage; another program's file is an error. Another
/// process may have replaced the judged file by a sound one, which stays.
Status DiskStore::reject(const std::string& name, FileState state, const struct stat& judged) {
  if (state == FileState::kDamaged) {
    ++damaged_;
    struct stat now{};
    const bool is_there = fstatat(folder_.get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0;
    const bool is_same = is_there && now.st_dev == judged.st_dev && now.st_ino == judged.st_ino;
    if (access_ != StoreAccess::kLook && is_same) remove(name);
  }
  if (state != FileState::kForeign) return okStatus();
  return Error{
      Errc::kMachine,
      fmt::format("{} is not a kernel image of sr-jit, so it is neither used nor changed; delete it, or choose "
                  "another directory (--cache-dir, SRJIT_CACHE_DIR)",
                  (path_ / name).string()),
      {}};
}

Result<std::optional<KernelImage>> DiskStore::read(const KernelKey& key, std::vector<std::byte> space) {
  auto loaded = load(fileNameOf(key.digest, kImage), true, std::move(space));
  if (!loaded) return std::move(loaded).error();
  if (loaded->state != FileState::kSound) return std::optional<KernelImage>();
  return std::optional<KernelImage>(std::move(loaded->image));
}

Result<std::optional<std::string>> DiskStore::readFact(const std::string& name) {
  const auto loaded = load(fileNameOf(keyOfFact(name).digest, kFact), true);
  if (!loaded) return loaded.error();
  if (loaded->state != FileState::kSound) return std::optional<std::string>();
  const std::vector<std::byte>& value = loaded->image.code;
  return std::optional(std::string(reinterpret_cast<const char*>(value.data()), value.size()));
}

Status DiskStore::write(const KernelKey& key, const KernelImage& image) {
  return put(fileNameOf(key.digest, kImage), key, image);
}

Status DiskStore::writeFact(const std::string& name, const std::string& value) {
  const KernelKey key = keyOfFact(name);
  const auto bytes = std::as_bytes(std::span(value));
  KernelImage image;
  image.code.assign(bytes.begin(), bytes.end());
  return put(fileNameOf(key.digest, kFact), key, image);
}

Status DiskStore::put(const std::string& name, const KernelKey& key, const KernelImage& image) {
  if (access_ != StoreAccess::kUse) return failure("write", name, EPERM);
  const bool is_image = name.ends_with(kImage);
  const std::string head = headOf(key, image);
  const std::uint64_t bytes = head.size() + image.code.size();
  if (is_image && bytes > bound_) return okStatus();
  const auto there = load(name, false);
  if (!there) return there.error();
  if (is_image) {
    if (there->state == FileState::kSound) return okStatus();
    if (Status made = makeRoom(bytes); !made) return made;
  }
  return writeNew(name, head, {reinterpret_cast<const char*>(image.code.data()), image.code.size()});
}

Status DiskStore::writeNew(const std::string& name, std::string_view head, std::string_view code) const {
  // Starts at the time, since a process that was killed may have had the same id.
  static std::atomic<std::uint64_t> next =
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const std::string part = fmt::format("{}.{}-{}{}", name, getpid(), next++, kPart);
  Descriptor file(openat(folder_.get(), part.c_str(), kWriting, S_IRUSR | S_IWUSR));
  if (!file.isOpen()) return failure("write", name, errno);
  int number = writeAll(file.get(), head);
  if (number == 0) number = writeAll(file.get(), code);
  if (::close(file.release()) != 0 && number == 0) number = errno;
  if (number == 0 && renameat(folder_.get(), part.c_str(), folder_.get(), name.c_str()) != 0) number = errno;
  if (number == 0) return okStatus();
  remove(part);
  return failure("write", name, number);
}

/// Removes a name; false if it is still there.
bool DiskStore::remove(const std::string& name) const noexcept {
  return unlinkat(folder_.get(), name.c_str(), 0) == 0 || errno == ENOENT;
}

/// All files, or those of one extension.
Result<std::vector<DiskStore::Found>> DiskStore::scan(std::string_view extension) const {
  std::vector<Found> files;
  if (!folder_.isOpen()) return files;
  Descriptor again(openat(folder_.get(), ".", kListing));
  if (!again.isOpen()) return failure("list", "", errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(again.get()), closedir);
  if (folder == nullptr) return failure("list", "", errno);
  again.release();
  while (const dirent* const entry = readdir(folder.get())) {
    Found found{entry->d_name, {}};
    if (!isFileName(found.name) || !found.is(extension)) continue;
    const auto is_there = inspect(found.name, found.facts);
    if (!is_there) return is_there.error();
    if (*is_there) files.push_back(std::move(found));
  }
  return files;
}

/// The sweep: makes room for a file of that size, and for others, so that most writes need not look at the directory.
Status DiskStore::makeRoom(std::uint64_t bytes) {
  const std::scoped_lock lock(room_mutex_);
  if (bytes <= room_) return room_ -= bytes, okStatus();
  // A lock on the directory itself. Where it cannot be locked, two processes may sweep at once, which does no harm.
  const Descriptor folder(openat(folder_.get(), ".", kListing));
  if (flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return okStatus();
  const auto files = scan();
  if (!files) return files.error();
  removeLeftovers(*files);
  std::vector<const Found*> images;
  std::uint64_t total = 0;
  for (const Found& file : *files) {
    if (!file.is(kImage)) continue;
    images.push_back(&file);
    total += file.bytes();
  }
  if (total + bytes > bound_) {
    std::ranges::sort(images, {}, [](const Found* file) {
      return std::tuple(file->facts.st_mtim.tv_sec, file->facts.st_mtim.tv_nsec, std::string_view(file->name));
    });
    for (auto oldest = images.begin(); oldest != images.end() && total + bytes > bound_ - bound_ / 8; ++oldest) {
      if (!remove((*oldest)->name)) continue;
      total -= (*oldest)->bytes();
      ++evictions_;
    }
  }
  const std::uint64_t free = bound_ - std::min(bound_, total);
  room_ = std::min(free, std::max(bytes, bound_ / 16)) - std::min(free, bytes);
  flock(folder.get(), LOCK_UN);  // a process forked meanwhile has the descriptor, too
  return okStatus();
}

/// Removes temporary files of killed processes.
void DiskStore::removeLeftovers(const std::vector<Found>& files) const {
  for (const Found& file : files) {
    if (file.is(kPart) && secondsFrom(file.facts.st_mtim.tv_sec) > kStaleSeconds) remove(file.name);
  }
}

Result<CacheStats> DiskStore::totals() const {
  const auto files = scan(kImage);
  if (!files) return files.error();
  CacheStats totals;
  totals.disk_images = files->size();
  for (const Found& file : *files) totals.disk_bytes += file.bytes();
  return totals;
}

Result<std::vector<StoredImage>> DiskStore::list() {
  const auto files = scan(kImage);
  if (!files) return files.error();
  std::vector<StoredImage> images;
  for (const Found& file : *files) {
    auto loaded = load(file.name, false);
    if (!loaded) return std::move(loaded).error();
    if (loaded->state == FileState::kSound) images.push_back(std::move(loaded->image));
  }
  std::ranges::sort(images, std::ranges::greater(),
                    [](const StoredImage& image) { return std::tuple(image.used, image.key.digest); });
  return images;
}

Result<StoreCheck> DiskStore::verify() {
  const auto files = scan(kImage);
  if (!files) return files.error();
  StoreCheck found;
  std::vector<std::byte> space;
  for (const Found& file : *files) {
    auto loaded = load(file.name, true, std::move(space));
    if (!loaded) return std::move(loaded).error();
    const bool is_damaged = loaded->state == FileState::kDamaged;
    if (is_damaged) found.bad.push_back(loaded->image.key.title.empty() ? file.name : loaded->image.key.title);
    if (is_damaged || loaded->state == FileState::kSound) ++found.images;
    space = std::move(loaded->image.code);
  }
  return found;
}

Result<std::uint64_t> DiskStore::clear() {
  if (access_ == StoreAccess::kLook) return failure("clear", "", EPERM);
  const auto files = scan();
  if (!files) return files.error();
  std::uint64_t bytes = 0;
  for (const Found& file : *files) {
    if (file.is(kImage)) bytes += file.bytes();
    if (file.is(kPart)) continue;
    if (const auto loaded = load(file.name, false); !loaded) return loaded.error();
  }
  if (folder_.isOpen()) removeLeftovers(*files);
  for (const Found& file : *files) {
    if (!file.is(kPart) && !remove(file.name)) return failure("remove", file.name, errno);
  }
  return bytes;
}

}  // namespace srjit

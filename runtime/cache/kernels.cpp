#include "runtime/cache/kernels.h"

#include <dirent.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/ScopeExit.h>
#include <tbb/task_arena.h>

#include "runtime/platform/trace.h"

namespace srjit {
namespace {

using Image = std::shared_ptr<const KernelImage>;

/// The image, after the trace was told where it was found. Not called under a lock.
Image traced(std::string_view where, Image image) {
  if (!isTracing()) return image;
  const TraceNumber bytes{"bytes", image == nullptr ? 0.0 : static_cast<double>(image->code.size())};
  trace({.kind = TraceKind::kCache, .what = where, .device = {}, .numbers = {&bytes, 1}});
  return image;
}

/// A digest is uniformly distributed, so it needs no further hashing.
struct DigestHash {
  std::size_t operator()(const Digest& digest) const noexcept {
    std::size_t hash;
    std::memcpy(&hash, digest.data(), sizeof hash);
    return hash;
  }
};

/// Images by key; evicts the least recently used. Not thread-safe.
class MemoryImages {
 public:
  explicit MemoryImages(std::uint64_t bound) : bound_(bound) {}

  Image find(const Digest& digest) {
    const auto found = places_.find(digest);
    if (found == places_.end()) return nullptr;
    images_.splice(images_.begin(), images_, found->second);
    return found->second->image;
  }

  /// Returns the number of evictions.
  std::uint64_t add(const Digest& digest, const Image& image) {
    std::uint64_t bytes = sizeof *image + image->code.size(), removed = 0;
    for (const KernelFacts& facts : image->kernels) bytes += sizeof facts + facts.name.size();
    if (bytes > bound_ || places_.contains(digest)) return 0;
    for (; bytes_ + bytes > bound_; ++removed) {
      bytes_ -= images_.back().bytes;
      places_.erase(images_.back().digest);
      images_.pop_back();
    }
    std::list<Kept> added = {{digest, image, bytes}};
    places_.emplace(digest, added.begin());
    images_.splice(images_.begin(), added);
    bytes_ += bytes;
    return removed;
  }

  void clear() {
    places_.clear();
    images_.clear();
    bytes_ = 0;
  }

  std::uint64_t count() const { return images_.size(); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Kept {
    Digest digest;
    Image image;
    std::uint64_t bytes;
  };
  std::uint64_t bound_, bytes_ = 0;
  std::list<Kept> images_;  ///< the most recently used first
  std::unordered_map<Digest, std::list<Kept>::iterator, DigestHash> places_;
};

/// A get() in progress; other callers of the same key wait for it.
struct PendingImage {
  std::condition_variable ended;
  bool done = false;
  Image image;  ///< null if it failed
};

std::filesystem::path absoluteVariable(const char* name) {
  const char* const value = std::getenv(name);
  const std::filesystem::path path = value == nullptr ? "" : value;
  return path.is_absolute() ? path : "";
}

/// Maps all names of a directory to one.
std::filesystem::path canonicalDirectory(const std::filesystem::path& directory) {
  std::error_code failure;
  const std::filesystem::path path = std::filesystem::absolute(directory, failure);
  if (failure) return directory;
  std::filesystem::path canonical = std::filesystem::weakly_canonical(path, failure);
  if (failure) canonical = path.lexically_normal();
  return canonical.has_filename() ? canonical : canonical.parent_path();
}

constexpr std::string_view kLockExtension = ".lock";
constexpr std::size_t kLockBytes = 8;  ///< bytes of the name's digest in the name of a lock file

bool isLockFileName(std::string_view name) {
  return name.size() == 2 * kLockBytes + kLockExtension.size() && name.ends_with(kLockExtension) &&
         name.find_first_not_of("0123456789abcdef") == 2 * kLockBytes;
}

}  // namespace

std::filesystem::path cacheDirectory() {
  if (const char* const value = std::getenv("SRJIT_CACHE_DIR"); value != nullptr && *value != '\0') return value;
  if (const auto path = absoluteVariable("XDG_CACHE_HOME"); !path.empty()) return path / "sr-jit";
  if (const auto path = absoluteVariable("HOME"); !path.empty()) return path / ".cache" / "sr-jit";
  return {};
}

struct KernelCache::State {
  explicit State(const CacheOptions& options)
      : access(options.access), directory(*options.directory), memory(options.memory_bytes) {
    auto opened = directory.empty() ? Result<std::unique_ptr<DiskStore>>(disk_error)
                                    : DiskStore::open(directory, options.disk_bytes, access);
    if (opened) {
      store = std::move(*opened);
    } else if (!directory.empty()) {
      disk_error = opened.error();
      read_fault = disk_error.message;
    }
  }

  /// Calls `ask` with the disk store and records its failure in `fault`.
  template <class Ask>
  auto onDisk(std::string State::* fault, const Ask& ask) -> decltype(ask(std::declval<DiskStore&>())) {
    if (!store) return disk_error;
    auto answer = ask(*store);
    const std::scoped_lock lock(mutex);
    this->*fault = answer ? std::string() : answer.error().message;
    return answer;
  }

  /// The image in memory. Precondition: `mutex` is locked.
  Image hit(const Digest& digest) {
    Image image = memory.find(digest);
    if (image) {
      ++stats.memory_hits;
      stats.saved_seconds += image->seconds;
    }
    return image;
  }

  /// Reads an image into `image`, and tells the trace; null if it is not on the disk.
  Image fromDisk(const KernelKey& key, std::shared_ptr<KernelImage> image) {
    auto stored = onDisk(&State::read_fault, [&](DiskStore& disk) { return disk.read(key, std::move(image->code)); });
    if (stored && *stored) {
      *image = std::move(**stored);
      const std::scoped_lock lock(mutex);
      ++stats.disk_hits;
      stats.saved_seconds += image->seconds;
    } else {
      image = nullptr;
    }
    return traced(image ? "on disk" : "missing", image);
  }

  /// The image of `key` that is in memory, or that another caller gets meanwhile; null if this caller is to end()
  /// `own`.
  Image wait(const KernelKey& key, const std::shared_ptr<PendingImage>& own) {
    std::unique_lock lock(mutex);
    for (bool waited = false;; waited = true) {
      if (Image image = hit(key.digest)) return image;
      const auto [place, is_first] = pending.emplace(key.digest, own);
      if (is_first) return nullptr;
      const std::shared_ptr<PendingImage> other = place->second;
      stats.waits += waited ? 0 : 1;
      other->ended.wait(lock, [&] { return other->done; });
      if (other->image) return other->image;
    }
  }

  /// Wakes the waiting callers, with the image or null.
  void end(const KernelKey& key, PendingImage& flight, Image image) {
    const std::scoped_lock lock(mutex);
    flight.done = true;
    flight.image = std::move(image);
    pending.erase(key.digest);
    flight.ended.notify_all();
  }

  void unmarkLocks() const;

  const StoreAccess access;
  const std::filesystem::path directory;
  std::unique_ptr<DiskStore> store;                                           ///< null: memory only
  Error disk_error{Errc::kMachine, "the kernel cache has no directory", {}};  ///< why there is no store
  std::mutex mutex;                                                           ///< guards all members below
  MemoryImages memory;
  std::unordered_map<Digest, std::shared_ptr<PendingImage>, DigestHash> pending;
  std::map<std::string, std::string> facts;
  CacheStats stats;  ///< the counters of this object
  std::string read_fault, write_fault;
};

// Only locks without a holder. The directory may change or vanish meanwhile. (std::filesystem's iterator takes memory
// in functions that must not throw.)
void KernelCache::State::unmarkLocks() const {
  if (!store || access == StoreAccess::kLook) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(directory.c_str()), closedir);
  if (folder == nullptr) return;
  while (const dirent* const entry = readdir(folder.get())) {
    if (!isLockFileName(entry->d_name)) continue;
    if (auto lock = FileLock::take(directory / entry->d_name, [] { return true; })) lock->unmark();
  }
}

KernelCache::KernelCache(const CacheOptions& options) : state_(std::make_unique<State>(options)) {}
KernelCache::~KernelCache() = default;

std::shared_ptr<KernelCache> KernelCache::open(const CacheOptions& options) {
  CacheOptions resolved = options;
  resolved.directory = options.directory ? *options.directory : cacheDirectory();
  if (!resolved.directory->empty()) resolved.directory = canonicalDirectory(*resolved.directory);
  if (resolved.directory->empty() || options.access != StoreAccess::kUse) {
    return std::shared_ptr<KernelCache>(new KernelCache(resolved));
  }
  static std::mutex mutex;
  static std::map<std::filesystem::path, std::weak_ptr<KernelCache>> caches;
  const std::scoped_lock lock(mutex);
  std::weak_ptr<KernelCache>& known = caches[*resolved.directory];
  if (auto cache = known.lock()) return cache;
  std::shared_ptr<KernelCache> cache(new KernelCache(resolved));
  known = cache;
  return cache;
}

Result<Image> KernelCache::get(const KernelKey& key, const Make& make) {
  State& state = *state_;
  const auto flight = std::make_shared<PendingImage>();
  if (Image image = state.wait(key, flight)) return traced("in memory", std::move(image));
  Image image;
  // Wakes waiting callers on every path, exceptions included.
  auto ending = llvm::make_scope_exit([&] { state.end(key, *flight, image); });
  image = state.fromDisk(key, std::make_shared<KernelImage>());
  {
    const std::scoped_lock lock(state.mutex);
    if (image) {
      state.stats.evictions += state.memory.add(key.digest, image);
      return Image(image);  // a copy, since `ending` gives the image to waiting callers
    }
    ++state.stats.misses;
  }
  Result<KernelImage> made = [&] {
    const TraceSpan span(TraceKind::kCompile, "kernel", {});
    return tbb::this_task_arena::isolate([&] { return make(); });
  }();
  if (!made) return std::move(made).error();
  image = std::make_shared<const KernelImage>(std::move(*made));
  {
    const std::scoped_lock lock(state.mutex);
    state.stats.compile_seconds += image->seconds;
    state.stats.evictions += state.memory.add(key.digest, image);
  }
  state.end(key, *flight, image);
  ending.release();
  static_cast<void>(state.onDisk(&State::write_fault, [&](DiskStore& disk) { return disk.write(key, *image); }));
  return image;
}

Image KernelCache::find(const KernelKey& key, const std::shared_ptr<KernelImage>& space) {
  Image in_memory = [&] {
    const std::scoped_lock lock(state_->mutex);
    return state_->hit(key.digest);
  }();
  if (in_memory) return traced("in memory", std::move(in_memory));
  return state_->fromDisk(key, space == nullptr ? std::make_shared<KernelImage>() : space);
}

std::optional<std::string> KernelCache::readFact(const std::string& name) {
  const auto stored = state_->onDisk(&State::read_fault, [&](DiskStore& disk) { return disk.readFact(name); });
  if (stored && *stored) return *stored;
  const std::scoped_lock lock(state_->mutex);
  const auto found = state_->facts.find(name);
  return found == state_->facts.end() ? std::nullopt : std::optional(found->second);
}

void KernelCache::writeFact(const std::string& name, const std::string& value) {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->facts[name] = value;
  }
  static_cast<void>(state_->onDisk(&State::write_fault, [&](DiskStore& disk) { return disk.writeFact(name, value); }));
}

std::optional<FileLock> KernelCache::lock(const std::string& name, const std::function<bool()>& gives_up) const {
  if (!state_->store || state_->access != StoreAccess::kUse) return FileLock();
  const Digest digest = DigestBuilder().add(name).finish();
  const std::string file = fmt::format("{:02x}{}", fmt::join(std::span(digest).first(kLockBytes), ""), kLockExtension);
  return FileLock::take(state_->directory / file, gives_up);
}

CacheStats KernelCache::stats() const {
  const auto totals = state_->onDisk(&State::read_fault, [](DiskStore& disk) { return disk.totals(); });
  const std::scoped_lock lock(state_->mutex);
  CacheStats stats = state_->stats;
  stats.memory_images = state_->memory.count();
  stats.memory_bytes = state_->memory.bytes();
  stats.disk_images = totals ? totals->disk_images : 0;
  stats.disk_bytes = totals ? totals->disk_bytes : 0;
  stats.evictions += state_->store ? state_->store->evictions() : 0;
  stats.damaged += state_->store ? state_->store->damaged() : 0;
  stats.disk_fault = state_->read_fault.empty() ? state_->write_fault : state_->read_fault;
  return stats;
}

Result<std::vector<StoredImage>> KernelCache::list() {
  return state_->onDisk(&State::read_fault, [](DiskStore& disk) { return disk.list(); });
}

Result<StoreCheck> KernelCache::verify() {
  return state_->onDisk(&State::write_fault, [](DiskStore& disk) { return disk.verify(); });
}

Result<std::uint64_t> KernelCache::clear() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->memory.clear();
    state_->facts.clear();
  }
  state_->unmarkLocks();
  return state_->onDisk(&State::write_fault, [](DiskStore& disk) { return disk.clear(); });
}

}  // namespace srjit

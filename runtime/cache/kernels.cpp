#include "runtime/cache/kernels.h"

#include <dirent.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tbb/task_arena.h>

#include "runtime/platform/trace.h"

namespace srjit {
namespace {

using Image = std::shared_ptr<const KernelImage>;

/// Tells the trace where a kernel was found.
void traceLookup(std::string_view where, const Image& image) {
  if (!isTracing()) return;
  const TraceNumber bytes{"bytes", image == nullptr ? 0.0 : static_cast<double>(image->code.size())};
  trace({.kind = TraceKind::kCache, .what = where, .device = {}, .numbers = {&bytes, 1}});
}

/// An image that was in memory, told without the lock.
Image told(std::unique_lock<std::mutex>& lock, Image image) {
  lock.unlock();
  traceLookup("in memory", image);
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

std::uint64_t bytesOf(const KernelImage& image) {
  std::uint64_t bytes = sizeof image + image.code.size();
  for (const KernelFacts& facts : image.kernels) bytes += sizeof facts + facts.name.size();
  return bytes;
}

/// Images by key, with LRU eviction. Not thread-safe.
class MemoryImages {
 public:
  explicit MemoryImages(std::uint64_t bound) : bound_(bound) {}

  Image find(const Digest& digest) {
    const auto found = places_.find(digest);
    if (found == places_.end()) return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return order_.front().image;
  }

  bool has(const Digest& digest) const { return places_.contains(digest); }

  /// Returns the number of evictions.
  std::uint64_t add(const Digest& digest, Image image) {
    const std::uint64_t bytes = bytesOf(*image);
    if (bytes > bound_ || places_.contains(digest)) return 0;
    std::uint64_t removed = 0;
    for (; bytes_ + bytes > bound_; ++removed) {
      bytes_ -= order_.back().bytes;
      places_.erase(order_.back().digest);
      order_.pop_back();
    }
    order_.push_front({digest, std::move(image), bytes});
    try {
      places_.emplace(digest, order_.begin());
    } catch (...) {
      order_.pop_front();
      throw;
    }
    bytes_ += bytes;
    return removed;
  }

  void clear() {
    places_.clear();
    order_.clear();
    bytes_ = 0;
  }

  std::uint64_t count() const { return order_.size(); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Digest digest;
    Image image;
    std::uint64_t bytes;
  };
  std::uint64_t bound_, bytes_ = 0;
  std::list<Entry> order_;  ///< the most recently used first
  std::unordered_map<Digest, std::list<Entry>::iterator, DigestHash> places_;
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

}  // namespace

std::filesystem::path cacheDirectory() {
  if (const char* const value = std::getenv("SRJIT_CACHE_DIR"); value != nullptr && *value != '\0') return value;
  if (const auto path = absoluteVariable("XDG_CACHE_HOME"); !path.empty()) return path / "sr-jit";
  if (const auto path = absoluteVariable("HOME"); !path.empty()) return path / ".cache" / "sr-jit";
  return {};
}

namespace {

constexpr std::string_view kLockExtension = ".lock";
constexpr std::size_t kLockBytes = 8;  ///< bytes of the name's digest in the name of a lock file

std::string lockFileName(const std::string& name) {
  const Digest digest = DigestBuilder().add(name).finish();
  return fmt::format("{:02x}{}", fmt::join(std::span(digest).first(kLockBytes), ""), kLockExtension);
}

bool isLockFileName(std::string_view name) {
  return name.size() == 2 * kLockBytes + kLockExtension.size() && name.ends_with(kLockExtension) &&
         name.find_first_not_of("0123456789abcdef") == 2 * kLockBytes;
}

}  // namespace

class KernelCache::State {
 public:
  explicit State(const CacheOptions& options) : access_(options.access), memory_(options.memory_bytes) {
    if (!options.directory || options.directory->empty()) {
      disk_error_ = {Errc::kMachine, "the kernel cache has no directory", {}};
      return;
    }
    auto store = DiskStore::open(*options.directory, options.disk_bytes, access_);
    if (store) {
      store_ = std::move(*store);
      directory_ = *options.directory;
    } else {
      disk_error_ = store.error();
      read_fault_ = disk_error_.message;
    }
  }

  Result<Image> get(const KernelKey& key, const Make& make);
  bool has(const KernelKey& key);
  Image find(const KernelKey& key, const std::shared_ptr<KernelImage>& space);
  std::optional<std::string> readFact(const std::string& name);
  void writeFact(const std::string& name, const std::string& value);
  std::optional<FileLock> lock(const std::string& name, const std::function<bool()>& gives_up) const;
  CacheStats stats();
  void clearMemory();
  void unmarkLocks();

  /// Calls `ask` with the disk store and records its failure, separately for reads and writes.
  enum class Access { kRead, kWrite };
  template <class Ask>
  auto onDisk(Access access, const Ask& ask) -> decltype(ask(std::declval<DiskStore&>()));

 private:
  Image hit(const Digest& digest);
  Image fromDisk(const KernelKey& key, std::shared_ptr<KernelImage> image);
  void keep(const KernelKey& key, const Image& image);
  void end(const KernelKey& key, const std::shared_ptr<PendingImage>& pending, Image image);

  const StoreAccess access_;
  std::unique_ptr<DiskStore> store_;  ///< null: memory only
  Error disk_error_;                  ///< why there is no store
  std::filesystem::path directory_;   ///< directory of the store
  std::mutex mutex_;                  ///< guards all members below
  MemoryImages memory_;
  std::unordered_map<Digest, std::shared_ptr<PendingImage>, DigestHash> pending_;
  std::map<std::string, std::string> facts_;
  CacheStats stats_;  ///< the counters of this object
  std::string read_fault_, write_fault_;
};

template <class Ask>
auto KernelCache::State::onDisk(Access access, const Ask& ask) -> decltype(ask(std::declval<DiskStore&>())) {
  if (!store_) return disk_error_;
  auto answer = ask(*store_);
  const std::scoped_lock lock(mutex_);
  (access == Access::kRead ? read_fault_ : write_fault_) = answer ? std::string() : answer.error().message;
  return answer;
}

/// The image in memory. Precondition: mutex_ is locked.
Image KernelCache::State::hit(const Digest& digest) {
  Image image = memory_.find(digest);
  if (image) {
    ++stats_.memory_hits;
    stats_.saved_seconds += image->seconds;
  }
  return image;
}

/// Reads it into `image`.
Image KernelCache::State::fromDisk(const KernelKey& key, std::shared_ptr<KernelImage> image) {
  auto stored = onDisk(Access::kRead, [&](DiskStore& store) { return store.read(key, std::move(image->code)); });
  if (!stored || !*stored) return nullptr;
  *image = std::move(**stored);
  const std::scoped_lock lock(mutex_);
  ++stats_.disk_hits;
  stats_.saved_seconds += image->seconds;
  return image;
}

/// Wakes the waiting callers, with the image or null.
void KernelCache::State::end(const KernelKey& key, const std::shared_ptr<PendingImage>& pending, Image image) {
  const std::scoped_lock lock(mutex_);
  pending->done = true;
  pending->image = std::move(image);
  pending_.erase(key.digest);
  pending->ended.notify_all();
}

Result<Image> KernelCache::State::get(const KernelKey& key, const Make& make) {
  std::shared_ptr<PendingImage> pending;
  {
    std::unique_lock lock(mutex_);
    bool waited = false;
    for (;;) {
      if (Image image = hit(key.digest)) return told(lock, std::move(image));
      const auto found = pending_.find(key.digest);
      if (found == pending_.end()) break;
      const std::shared_ptr<PendingImage> other = found->second;
      stats_.waits += waited ? 0 : 1;
      waited = true;
      other->ended.wait(lock, [&] { return other->done; });
      if (other->image) return told(lock, other->image);
    }
    pending = std::make_shared<PendingImage>();
    pending_.emplace(key.digest, pending);
  }
  Image image;
  // RAII: waiting callers are woken on every path, exceptions included.
  struct Ending {
    State& state;
    const KernelKey& key;
    const std::shared_ptr<PendingImage>& pending;
    Image& image;
    bool over = false;
    void now() {
      if (!std::exchange(over, true)) state.end(key, pending, image);
    }
    ~Ending() { now(); }
  } ending{*this, key, pending, image};
  image = fromDisk(key, std::make_shared<KernelImage>());
  traceLookup(image ? "on disk" : "missing", image);
  {
    const std::scoped_lock lock(mutex_);
    if (image) {
      stats_.evictions += memory_.add(key.digest, image);
      return image;
    }
    ++stats_.misses;
  }
  Result<KernelImage> made = [&] {
    const TraceSpan span(TraceKind::kCompile, "kernel", {});
    return tbb::this_task_arena::isolate([&] { return make(); });
  }();
  if (!made) return std::move(made).error();
  image = std::make_shared<const KernelImage>(std::move(*made));
  {
    const std::scoped_lock lock(mutex_);
    stats_.compile_seconds += image->seconds;
    stats_.evictions += memory_.add(key.digest, image);
  }
  ending.now();
  static_cast<void>(onDisk(Access::kWrite, [&](DiskStore& store) { return store.write(key, *image); }));
  return image;
}

bool KernelCache::State::has(const KernelKey& key) {
  {
    const std::scoped_lock lock(mutex_);
    if (memory_.has(key.digest)) return true;
  }
  const auto stored = onDisk(Access::kRead, [&](DiskStore& store) { return store.has(key); });
  return stored && *stored;
}

Image KernelCache::State::find(const KernelKey& key, const std::shared_ptr<KernelImage>& space) {
  {
    std::unique_lock lock(mutex_);
    if (Image image = hit(key.digest)) return told(lock, std::move(image));
  }
  Image image = fromDisk(key, space == nullptr ? std::make_shared<KernelImage>() : space);
  traceLookup(image ? "on disk" : "missing", image);
  return image;
}

std::optional<std::string> KernelCache::State::readFact(const std::string& name) {
  const auto stored = onDisk(Access::kRead, [&](DiskStore& store) { return store.readFact(name); });
  if (stored && *stored) return *stored;
  const std::scoped_lock lock(mutex_);
  const auto found = facts_.find(name);
  return found == facts_.end() ? std::nullopt : std::optional(found->second);
}

void KernelCache::State::writeFact(const std::string& name, const std::string& value) {
  {
    const std::scoped_lock lock(mutex_);
    facts_[name] = value;
  }
  static_cast<void>(onDisk(Access::kWrite, [&](DiskStore& store) { return store.writeFact(name, value); }));
}

std::optional<FileLock> KernelCache::State::lock(const std::string& name, const std::function<bool()>& gives_up) const {
  if (!store_ || access_ != StoreAccess::kUse) return FileLock();
  return FileLock::take(directory_ / lockFileName(name), gives_up);
}

CacheStats KernelCache::State::stats() {
  const auto totals = onDisk(Access::kRead, [](DiskStore& store) { return store.totals(); });
  const std::scoped_lock lock(mutex_);
  CacheStats stats = stats_;
  stats.memory_images = memory_.count();
  stats.memory_bytes = memory_.bytes();
  stats.disk_images = totals ? totals->images : 0;
  stats.disk_bytes = totals ? totals->bytes : 0;
  stats.evictions += store_ ? store_->evictions() : 0;
  stats.damaged += store_ ? store_->damaged() : 0;
  stats.disk_fault = read_fault_.empty() ? write_fault_ : read_fault_;
  return stats;
}

void KernelCache::State::clearMemory() {
  const std::scoped_lock lock(mutex_);
  memory_.clear();
  facts_.clear();
}

// Only locks without a holder. The directory may change or vanish meanwhile. (std::filesystem's iterator takes memory
// in functions that must not throw.)
void KernelCache::State::unmarkLocks() {
  if (!store_ || access_ == StoreAccess::kLook) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(directory_.c_str()), closedir);
  if (folder == nullptr) return;
  while (const dirent* const entry = readdir(folder.get())) {
    if (!isLockFileName(entry->d_name)) continue;
    if (auto lock = FileLock::take(directory_ / entry->d_name, [] { return true; })) lock->unmark();
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

Result<Image> KernelCache::get(const KernelKey& key, const Make& make) { return state_->get(key, make); }
bool KernelCache::has(const KernelKey& key) { return state_->has(key); }
Image KernelCache::find(const KernelKey& key, const std::shared_ptr<KernelImage>& space) {
  return state_->find(key, space);
}
std::optional<std::string> KernelCache::readFact(const std::string& name) { return state_->readFact(name); }
void KernelCache::writeFact(const std::string& name, const std::string& value) { state_->writeFact(name, value); }
std::optional<FileLock> KernelCache::lock(const std::string& name, const std::function<bool()>& gives_up) const {
  return state_->lock(name, gives_up);
}
CacheStats KernelCache::stats() const { return state_->stats(); }

Result<DiskStore::Totals> KernelCache::diskTotals() {
  return state_->onDisk(State::Access::kRead, [](DiskStore& store) { return store.totals(); });
}

Result<std::vector<StoredImage>> KernelCache::list() {
  return state_->onDisk(State::Access::kRead, [](DiskStore& store) { return store.list(); });
}

Result<StoreCheck> KernelCache::verify() {
  return state_->onDisk(State::Access::kWrite, [](DiskStore& store) { return store.verify(); });
}

Result<std::uint64_t> KernelCache::clear() {
  state_->clearMemory();
  state_->unmarkLocks();
  return state_->onDisk(State::Access::kWrite, [](DiskStore& store) { return store.clear(); });
}

}  // namespace srjit

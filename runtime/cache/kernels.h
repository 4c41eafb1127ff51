// The cache of kernel images, by key: in memory, bounded in bytes, and on disk, shared by processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/kernels/image_maker.h"
#include "compiler/kernels/key.h"
#include "ir/error.h"
#include "runtime/cache/disk_store.h"
#include "runtime/cache/files.h"
#include "runtime/cache_stats.h"

namespace srjit {

struct CacheOptions {
  std::optional<std::filesystem::path> directory;  ///< not set: cacheDirectory(); empty: no disk
  std::uint64_t disk_bytes = std::uint64_t{1} << 30;
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  StoreAccess access = StoreAccess::kUse;
};

/// $SRJIT_CACHE_DIR, else $XDG_CACHE_HOME/sr-jit, else ~/.cache/sr-jit; empty if none of them is set. An empty variable
/// counts as unset; XDG_CACHE_HOME and HOME count only if they are absolute paths.
std::filesystem::path cacheDirectory();
/// Why cacheDirectory() is empty, for messages.
inline constexpr std::string_view kNoCacheDirectory = "none of SRJIT_CACHE_DIR, XDG_CACHE_HOME and HOME is set";

/// Thread-safe. The disk is best effort: a failure there is a miss, reported in CacheStats::disk_fault. Throws
/// std::bad_alloc and what a `make` throws, nothing else.
class KernelCache {
 public:
  /// Never fails: without a usable directory, or with one that DiskStore does not trust, the cache is only in memory.
  /// One object per directory and process is shared by all callers with kUse access, with the bounds of the first;
  /// without a directory, or with another access, every call creates an object.
  static std::shared_ptr<KernelCache> open(const CacheOptions& options);
  ~KernelCache();

  using Make = std::function<Result<KernelImage>()>;
  /// The image of `key`, from `make` if it is neither in memory nor on disk. Single flight: one caller at a time calls
  /// `make` for a key; others wait for it, and call their own if it fails or throws. `make` may use this cache for
  /// other keys, and oneTBB: it is isolated from tasks that might wait for it. Errors: those of `make`.
  Result<std::shared_ptr<const KernelImage>> get(const KernelKey& key, const Make& make);

  /// The cached image, or null; does not wait. An image read from the disk is not kept in memory, since the caller
  /// loads it into a driver. It becomes `space`, if given: mapping new memory would take much of the time of reading.
  std::shared_ptr<const KernelImage> find(const KernelKey& key, const std::shared_ptr<KernelImage>& space = nullptr);

  /// A small value by name, such as a calibration, stored with the images and never evicted; nullopt if absent.
  std::optional<std::string> readFact(const std::string& name);
  void writeFact(const std::string& name, const std::string& value);
  /// FileLock::take() on the lock of that name, which all users of the directory share; without a disk, or with another
  /// access than kUse, the lock holds nothing.
  std::optional<FileLock> lock(const std::string& name, const std::function<bool()>& gives_up) const;

  CacheStats stats() const;

  /// As the functions of DiskStore. Errors: kMachine if the disk cannot be used. clear() also empties memory and
  /// removes the marks of locks without a holder.
  Result<std::vector<StoredImage>> list();
  Result<StoreCheck> verify();
  Result<std::uint64_t> clear();

 private:
  struct State;
  explicit KernelCache(const CacheOptions& options);
  std::unique_ptr<State> state_;
};

}  // namespace srjit

// Kernel images by what they compute: in memory, bounded in bytes, and on disk, shared by processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/image_maker.h"
#include "compiler/kernels/key.h"
#include "ir/error.h"
#include "runtime/cache/disk_store.h"
#include "runtime/cache/file_lock.h"
#include "runtime/cache_stats.h"

namespace srjit {

struct CacheOptions {
  std::optional<std::filesystem::path> directory;  ///< none: the default of cacheDirectory(); empty: no disk
  std::uint64_t disk_bytes = std::uint64_t{1} << 30;
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  StoreAccess access = StoreAccess::kUse;
};

/// $SRJIT_CACHE_DIR, else $XDG_CACHE_HOME/sr-jit, else ~/.cache/sr-jit; empty if none of them is known. An empty
/// variable counts as unset; XDG_CACHE_HOME and HOME count only if they are absolute paths.
std::filesystem::path cacheDirectory();

/// Thread-safe. The disk is best effort: whatever fails there is a miss, and is said in CacheStats::disk_fault.
/// Throws std::bad_alloc and what a `make` throws, nothing else. A process that has forked goes on in memory alone.
class KernelCache {
 public:
  /// Never fails: without a usable directory, or with one that DiskStore does not trust, the cache is in memory alone.
  /// One object per directory and process is shared by all who ask to use it, with the bounds of the first; without a
  /// directory, or with another access, every call makes an object.
  static std::shared_ptr<KernelCache> open(const CacheOptions& options);
  ~KernelCache();

  using Make = std::function<Result<KernelImage>()>;
  /// The image of `key`, made by `make` if it is neither in memory nor on disk. Only one caller at a time makes an
  /// image of a key; others wait for it, and make it themselves if that one fails or throws. `make` may use this cache
  /// for other keys, and oneTBB: it is isolated from tasks that might wait for it. Errors: make's.
  Result<std::shared_ptr<const KernelImage>> get(const KernelKey& key, const Make& make);

  /// Whether the image seems to be there already; does not read it, wait or count. On disk it may be found damaged yet.
  bool has(const KernelKey& key);
  /// The image if it is there already; does not wait. What is read from the disk for this is not kept in memory, since
  /// who asks loads it into a driver; who asks again reads again.
  std::shared_ptr<const KernelImage> find(const KernelKey& key);

  /// A small value by name, kept beside the images and never evicted, as calibrations are; nothing if there is none.
  std::optional<std::string> readFact(const std::string& name);
  void writeFact(const std::string& name, const std::string& value);
  /// The lock of that name, which all who use the same directory share, as FileLock::take() says; without a disk, or
  /// with another access than kUse, it holds nothing.
  std::optional<FileLock> lock(const std::string& name, const std::function<bool()>& gives_up) const;

  CacheStats stats() const;

  /// What DiskStore does under the same names. Errors: kMachine if the disk cannot be used. clear() empties memory too,
  /// and removes the marks of locks that nobody holds; no other file of the directory is touched.
  Result<DiskStore::Totals> diskTotals();
  Result<std::vector<StoredImage>> list();
  Result<StoreCheck> verify();
  Result<std::uint64_t> clear();

 private:
  class State;
  explicit KernelCache(const CacheOptions& options);
  std::unique_ptr<State> state_;
};

}  // namespace srjit

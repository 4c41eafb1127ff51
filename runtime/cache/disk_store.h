// Kernel images in a directory that many processes share: one file per image.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/kernels/image_maker.h"
#include "compiler/kernels/key.h"
#include "ir/error.h"
#include "runtime/cache_stats.h"
#include "runtime/platform/process.h"

namespace srjit {

/// What a caller may do with a store.
enum class StoreAccess {
  kUse,   ///< a missing directory is created, files are written
  kMend,  ///< files are removed; none is created
  kLook   ///< nothing is created or changed
};

/// An image with the facts of its file. In lists it has no code.
struct StoredImage : KernelImage {
  KernelKey key;
  std::uint64_t bytes = 0;  ///< size of the file
  std::int64_t used = 0;    ///< last use or write by any process, accurate to ten minutes: seconds since 1970, UTC
};

/// Result of a check of all images.
struct StoreCheck {
  std::uint64_t images = 0;      ///< number checked
  std::vector<std::string> bad;  ///< titles, else names, of damaged files; these are removed
};

enum class FileState : std::uint8_t;

/// Files `KEY.kernel` of images, and `KEY.fact` of small values, in one directory; KEY is the digest of the key in
/// hexadecimal. Thread-safe. Errors are of kMachine, with the file; only std::bad_alloc is thrown.
///
/// Trust: directory and files pass the checks of runtime/cache/files.h, the only protection against planted code.
/// A file of these names that fails them, or that another program wrote, is neither read nor changed: reading it is an
/// error, and so is every operation on all files, writing included. Files of other names are ignored.
///
/// Damage is no error: a file that fails a checksum, or has another file's key, counts as absent and is removed. A file
/// of another version counts as absent. Files appear whole, by renaming, but are not synchronised with the disk: after
/// a power failure images may be missing or damaged.
///
/// No lock is held while a file is read or written. A forked process may use the store of its parent, if no other
/// thread used it at the fork.
class DiskStore {
 public:
  /// Creates the directory with access for its owner only, if `access` is kUse and it does not exist; without it the
  /// store is empty. Keeps files of images within `bound` bytes in total; each process applies its own bound, and
  /// several that write at once may exceed it by a sixteenth each.
  static Result<std::unique_ptr<DiskStore>> open(const std::filesystem::path& directory, std::uint64_t bound,
                                                 StoreAccess access = StoreAccess::kUse);

  /// The image, if it exists and is sound. The memory of `space` becomes that of its code.
  Result<std::optional<KernelImage>> read(const KernelKey& key, std::vector<std::byte> space = {});
  /// Does nothing if the key has an image, or if this one is larger than the bound. If needed, evicts the least
  /// recently used images first, until an eighth of the bound is free.
  Status write(const KernelKey& key, const KernelImage& image);

  /// Facts are never evicted.
  Result<std::optional<std::string>> readFact(const std::string& name);
  Status writeFact(const std::string& name, const std::string& value);

  /// The numbers of the disk, of all files of images.
  Result<CacheStats> totals() const;
  /// All sound images, the most recently used first.
  Result<std::vector<StoredImage>> list();
  Result<StoreCheck> verify();
  /// Removes all files of images and facts, and what killed processes left; returns the bytes of the images.
  Result<std::uint64_t> clear();

  std::uint64_t evictions() const noexcept { return evictions_; }  ///< by this object
  std::uint64_t damaged() const noexcept { return damaged_; }      ///< files found damaged by this object

 private:
  struct Found;
  struct Loaded;
  DiskStore(std::filesystem::path path, Descriptor folder, std::uint64_t bound, StoreAccess access)
      : path_(std::move(path)), folder_(std::move(folder)), bound_(bound), access_(access) {}
  Error failure(const char* doing, const std::string& name, int number) const;
  Result<bool> inspect(const std::string& name, struct stat& facts, int file = -1) const;
  Result<Loaded> load(const std::string& name, bool with_code, std::vector<std::byte> space = {});
  Status reject(const std::string& name, FileState state, const struct stat& judged);
  Status put(const std::string& name, const KernelKey& key, const KernelImage& image);
  Status writeNew(const std::string& name, std::string_view head, std::string_view code) const;
  Result<std::vector<Found>> scan(std::string_view extension = "") const;
  Status makeRoom(std::uint64_t bytes);
  bool remove(const std::string& name) const noexcept;
  void removeLeftovers(const std::vector<Found>& files) const;

  const std::filesystem::path path_;  ///< canonical
  const Descriptor folder_;           ///< none if the directory does not exist
  const std::uint64_t bound_;
  const StoreAccess access_;
  std::atomic<std::uint64_t> evictions_ = 0, damaged_ = 0;
  std::mutex room_mutex_;
  std::uint64_t room_ = 0;  ///< bytes that may be written before the next sweep; guarded by room_mutex_
};

}  // namespace srjit

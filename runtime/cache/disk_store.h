// Kernel images in one SQLite file that many processes share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/image_maker.h"
#include "compiler/kernels/key.h"
#include "ir/error.h"
#include "runtime/cache/store_file.h"

namespace srjit {

/// An image as it is listed.
struct StoredImage {
  KernelKey key;
  std::uint64_t bytes = 0;  ///< of code and facts
  bool is_ptx = false;
  std::vector<KernelFacts> kernels;
  double seconds = 0;
  std::int64_t used = 0;  ///< when a process last took it from here or put it, to ten minutes: seconds since 1970, UTC
};

/// What a check of everything found.
struct StoreCheck {
  std::uint64_t images = 0;      ///< that were checked
  std::vector<std::string> bad;  ///< titles of those that were damaged, and are removed
  bool remade = false;           ///< the file itself was damaged, now or when it was opened, so all images are removed
};

/// The file `kernels.sqlite` of a directory. Thread-safe. Errors are of kMachine, with SQLite's number, name and text;
/// only std::bad_alloc is thrown.
///
/// Both must be what runtime/cache/file_trust.h trusts, as nothing else keeps others from planting code, and the file a
/// store or empty, as runtime/cache/store_file.h says: else they are neither used nor changed. What chance does is no
/// error: an image whose checksum is wrong is not there, and is removed; a store that is damaged or has another schema
/// is made anew. So a power failure may cost images, for which reason they are not synchronised with the disk. A file
/// or directory that cannot be written is read. In the child of a fork() every call is an error, as SQLite's locks are
/// the parent's.
class DiskStore {
 public:
  static constexpr const char* kFileName = "kernels.sqlite";

  /// Makes directory and file, for their owner alone, if `access` is kUse and they are not there; without them the
  /// store is empty. The images' bytes are kept at `bound` at most; other processes keep their own bounds.
  static Result<std::unique_ptr<DiskStore>> open(const std::filesystem::path& directory, std::uint64_t bound,
                                                 StoreAccess access = StoreAccess::kUse);
  /// Writes down when images were used.
  ~DiskStore();

  /// Whether there is an image, damaged or not; it is not read, and does not count as used.
  Result<bool> has(const KernelKey& key);
  /// The image, if it is there and undamaged.
  Result<std::optional<KernelImage>> read(const KernelKey& key);
  /// Does nothing if there is an image of this key, or if this one alone exceeds the bound. Makes room by removing the
  /// images that were not used for longest.
  Status write(const KernelKey& key, const KernelImage& image);

  Result<std::optional<std::string>> readFact(const std::string& name);
  Status writeFact(const std::string& name, const std::string& value);

  struct Totals {
    std::uint64_t images = 0, bytes = 0;
    double seconds = 0;  ///< that making them took
  };
  Result<Totals> totals();
  /// All images, the last used first.
  Result<std::vector<StoredImage>> list();
  Result<StoreCheck> verify();
  /// Removes all images and facts, and gives the space back; the bytes of the images.
  Result<std::uint64_t> clear();

  std::uint64_t evictions() const noexcept;  ///< by this object
  std::uint64_t damaged() const noexcept;    ///< images and files found damaged by this object

 private:
  class State;
  explicit DiskStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace srjit

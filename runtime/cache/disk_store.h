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

/// Metadata of a stored image.
struct StoredImage {
  KernelKey key;
  std::uint64_t bytes = 0;  ///< size of code and facts
  bool is_ptx = false;
  std::vector<KernelFacts> kernels;
  double seconds = 0;
  std::int64_t used = 0;  ///< last read or write by any process, accurate to ten minutes: seconds since 1970, UTC
};

/// Result of a check of all images.
struct StoreCheck {
  std::uint64_t images = 0;      ///< number checked
  std::vector<std::string> bad;  ///< titles of damaged images; these are removed
  bool remade = false;           ///< the file itself was damaged, now or when it was opened; all images are removed
};

/// The file `kernels.sqlite` of a directory. Thread-safe. Errors are of kMachine, with SQLite's number, name and text;
/// only std::bad_alloc is thrown.
///
/// Preconditions, else directory and file are neither used nor changed: both pass the checks of
/// runtime/cache/file_trust.h, the only protection against planted code; and the file is a store or empty
/// (runtime/cache/store_file.h). Accidental damage is no error: an image that fails its checksum counts as absent and
/// is removed; a store that is damaged or has another schema is recreated. A power failure may therefore lose images,
/// so writes are not synchronised with the disk. A file or directory that is not writable is read only. In the child of
/// a fork() every call is an error, since SQLite's locks belong to the parent.
class DiskStore {
 public:
  static constexpr const char* kFileName = "kernels.sqlite";

  /// Creates directory and file with access for their owner alone, if `access` is kUse and they do not exist; without
  /// them the store is empty. Evicts images beyond `bound` bytes in total; each process applies its own bound.
  static Result<std::unique_ptr<DiskStore>> open(const std::filesystem::path& directory, std::uint64_t bound,
                                                 StoreAccess access = StoreAccess::kUse);
  /// Records the times of use.
  ~DiskStore();

  /// Whether an image exists, damaged or not. Neither reads it nor counts as a use.
  Result<bool> has(const KernelKey& key);
  /// The image, if it exists and passes its checksum. The memory of `space` becomes that of its code.
  Result<std::optional<KernelImage>> read(const KernelKey& key, std::vector<std::byte> space = {});
  /// Does nothing if the key has an image, or if this one alone exceeds the bound. Evicts the least recently used
  /// images.
  Status write(const KernelKey& key, const KernelImage& image);

  Result<std::optional<std::string>> readFact(const std::string& name);
  Status writeFact(const std::string& name, const std::string& value);

  struct Totals {
    std::uint64_t images = 0, bytes = 0;
    double seconds = 0;  ///< core seconds that compiling them took
  };
  Result<Totals> totals();
  /// All images, the most recently used first.
  Result<std::vector<StoredImage>> list();
  Result<StoreCheck> verify();
  /// Removes all images and facts and shrinks the file; returns the bytes of the images.
  Result<std::uint64_t> clear();

  std::uint64_t evictions() const noexcept;  ///< by this object
  std::uint64_t damaged() const noexcept;    ///< images and files found damaged by this object

 private:
  class State;
  explicit DiskStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace srjit

// One device's kernels: made by an ImageMaker, kept by a KernelCache, loaded once.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "compiler/interpreter/handler_table.h"
#include "compiler/kernels/image_maker.h"
#include "compiler/nvptx/options.h"
#include "runtime/cache/kernels.h"
#include "runtime/gpu/queue.h"

namespace srjit {

/// What a kernel gives, and how it reads the columns.
struct KernelKind {
  std::optional<LossSpec> loss;  ///< none: predictions
  bool strided_columns = false;

  friend bool operator==(const KernelKind&, const KernelKind&) = default;
};

/// A module that need not be made: loaded already, or its image.
struct FoundRows {
  std::shared_ptr<const Module> module;
  std::shared_ptr<const KernelImage> image;

  bool isNothing() const noexcept { return module == nullptr && image == nullptr; }
};

/// Which operators an interpreter has, of three nested sets (compiler/interpreter/handler_table.h).
struct InterpreterVariant {
  OpFamily family = OpFamily::kAll;
  unsigned rows_per_thread = 8;

  friend auto operator<=>(const InterpreterVariant&, const InterpreterVariant&) = default;
};

struct DirectScratch;
struct EncodeScratch;

/// Scratch memory of code generation, kept from one program to the next: new memory costs more than writing to it,
/// since the system maps it page by page. Keeps the last scratch that was given back, unless it is large. Thread-safe.
template <class Scratch>
class ScratchPool {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{128} << 20;  ///< that lie idle

  /// Contents are left over from the program before. Null if there is none.
  std::shared_ptr<Scratch> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(idle_, nullptr);
  }
  /// With `replaces`, instead of one that was given back meanwhile; otherwise that one stays. `Scratch` has bytes().
  void giveBack(std::shared_ptr<Scratch> scratch, bool replaces = true) {
    if (scratch->bytes() > kMostBytes) return;
    const std::lock_guard lock(mutex_);
    if (replaces || idle_ == nullptr) idle_.swap(scratch);
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Scratch> idle_;
};

/// Thread-safe. Functions that load modules need no current context. They throw CudaFailure and std::bad_alloc; what
/// the ImageMaker or the compiler refuses is an Error.
class KernelStore {
 public:
  KernelStore(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<const ImageMaker> images,
              std::shared_ptr<KernelCache> cache, Precision precision, Math math);

  /// The device, and the streams of the engine that code is made for.
  DeviceQueue& queue() const noexcept { return *queue_; }
  const std::shared_ptr<DeviceQueue>& sharedQueue() const noexcept { return queue_; }

  /// The handlers of a variant; handlers of two variants of one family have the same numbers.
  const HandlerTable& table(const InterpreterVariant& variant);
  /// Kept as long as the store.
  Result<Kernel> interpreter(const InterpreterVariant& variant, const KernelKind& kind);
  Result<Kernel> totals();

  /// The kernels of compiler/interpreter/lanes/arguments.h. Kept as long as the store.
  Result<std::shared_ptr<const Module>> lanes();
  /// Null until lanes() has made them.
  std::shared_ptr<const Module> lanesIfMade();

  /// What the functions below find the kernels of these graphs by.
  KernelKey keyOf(std::span<const Dag> dags, const KernelKind& kind, unsigned rows_per_thread,
                  unsigned min_blocks) const;

  /// One kernel for each graph; graph i's is named rowsKernelName(i). `key` is keyOf() of the arguments. `seconds`
  /// becomes what making them took of one core; 0 if they were there, or another caller made them.
  Result<std::shared_ptr<const Module>> rows(const KernelKey& key, std::span<const Dag> dags, const KernelKind& kind,
                                             unsigned rows_per_thread, unsigned min_blocks, double& seconds);

  /// What rows() need not make; nothing also if it is being made. Reads into `space`, if it has to read.
  FoundRows findRows(const KernelKey& key, const std::shared_ptr<KernelImage>& space);
  /// The module of rows(), of what findRows(key) has found, which must not be nothing.
  std::shared_ptr<const Module> load(const KernelKey& key, const FoundRows& found);

  Precision precision() const noexcept { return precision_; }
  Math math() const noexcept { return math_; }
  /// ImageMaker::identity().
  const std::string& identity() const noexcept { return identity_; }
  const std::shared_ptr<KernelCache>& cache() const noexcept { return cache_; }
  /// Scratch memory for code of this precision and mode.
  ScratchPool<DirectScratch>& directScratch() noexcept { return direct_scratch_; }
  ScratchPool<EncodeScratch>& encodeScratch() noexcept { return encode_scratch_; }

 private:
  using Make = KernelCache::Make;
  using KernelNumber = std::pair<InterpreterVariant, unsigned>;  ///< the unsigned names a KernelKind
  DeviceOptions options(const KernelKind& kind, unsigned rows_per_thread) const;
  DeviceOptions rowsOptions(const KernelKind& kind, unsigned rows_per_thread, unsigned min_blocks) const;
  std::shared_ptr<const Module> loaded(const KernelKey& key);
  std::shared_ptr<const Module> load(const KernelKey& key, const KernelImage& image);
  Result<std::shared_ptr<const Module>> load(const KernelKey& key, const Make& make);
  Result<Kernel> keep(const KernelNumber& number, const KernelKey& key, const char* name, const Make& make);
  std::optional<Kernel> kept(const KernelNumber& number);

  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<const Cuda> cuda_;  ///< of the queue
  std::shared_ptr<const ImageMaker> images_;
  std::shared_ptr<KernelCache> cache_;
  Precision precision_;
  Math math_;
  std::string identity_;
  ScratchPool<DirectScratch> direct_scratch_;

  std::mutex mutex_;
  std::map<InterpreterVariant, HandlerTable> tables_;
  ScratchPool<EncodeScratch> encode_scratch_;                  ///< its encoders read a table
  std::map<std::string, std::weak_ptr<const Module>> loaded_;  ///< by the key's digest
  /// Interpreters, and under rows_per_thread 0 the totals.
  std::map<KernelNumber, std::pair<std::shared_ptr<const Module>, Kernel>> kept_;
  std::shared_ptr<const Module> lanes_;
};

}  // namespace srjit

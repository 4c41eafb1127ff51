// One device's kernels: made by an ImageMaker, kept by a KernelCache, loaded once.
#pragma once

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
#include "runtime/code/interpreted/device_share.h"
#include "runtime/code/interpreted/encode_scratch.h"
#include "runtime/code/interpreted/front_end.h"
#include "runtime/code/scratch.h"
#include "runtime/cuda/handles.h"

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

/// Which operators an interpreter has, of three nested sets (compiler/interpreter/handler_table.h), and its stack.
struct InterpreterVariant {
  OpFamily family = OpFamily::kAll;
  unsigned rows_per_thread = 8;

  friend auto operator<=>(const InterpreterVariant&, const InterpreterVariant&) = default;
};

/// Thread-safe. Functions that load modules need no current context. They throw CudaFailure and std::bad_alloc; what
/// the ImageMaker or the compiler refuses is an Error.
class KernelStore {
 public:
  KernelStore(std::shared_ptr<const Cuda> cuda, std::shared_ptr<const ImageMaker> images,
              std::shared_ptr<KernelCache> cache, Precision precision, Math math);

  /// The handlers of a variant; handlers of two variants of one family have the same numbers.
  const HandlerTable& table(const InterpreterVariant& variant);
  /// Kept as long as the store.
  Result<Kernel> interpreter(const InterpreterVariant& variant, const KernelKind& kind);
  Result<Kernel> totals();

  /// What encodes populations on the device; null until makeFrontEnd() has made it. Kept as long as the store.
  std::shared_ptr<const FrontEnd> frontEnd();
  /// Whether makeFrontEnd() would only have to load the image, as far as is known without reading it.
  bool hasFrontEndImage();
  DeviceShare& deviceShare() noexcept { return device_share_; }
  /// Makes it, with its tables on the device by way of `stream`. Once is enough.
  Status makeFrontEnd(const std::shared_ptr<const Stream>& stream);

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
  const KernelCache& cache() const noexcept { return *cache_; }
  /// Scratch memory for making direct code of this precision and mode.
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

  std::shared_ptr<const Cuda> cuda_;
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
  std::shared_ptr<const FrontEnd> front_end_;
  DeviceShare device_share_;
};

}  // namespace srjit

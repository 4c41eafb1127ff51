#include "runtime/code/kernel_store.h"

#include <utility>

#include <fmt/format.h>

#include "compiler/interpreter/kernel.h"
#include "compiler/interpreter/lanes/arguments.h"
#include "compiler/kernels/key.h"
#include "compiler/nvptx/kernels.h"

namespace srjit {
namespace {

// A number for every kind.
unsigned numberOf(const KernelKind& kind) {
  if (!kind.loss) return kind.strided_columns;
  return 2 + (kind.strided_columns ? 1 : 0) + (kind.loss->weighted ? 2 : 0) + (kind.loss->skip_invalid ? 4 : 0) +
         8 * static_cast<unsigned>(kind.loss->term);
}

}  // namespace

KernelStore::KernelStore(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<const ImageMaker> images,
                         std::shared_ptr<KernelCache> cache, Precision precision, Math math)
    : queue_(std::move(queue)),
      cuda_(queue_->cuda),
      images_(std::move(images)),
      cache_(std::move(cache)),
      precision_(precision),
      math_(math),
      identity_(images_->identity()) {}

DeviceOptions KernelStore::options(const KernelKind& kind, unsigned rows_per_thread) const {
  return {.precision = precision_,
          .math = math_,
          .arch = cuda_->limits().arch,
          .machine = cuda_->limits().needs_ptx ? fmt::format("sm_{}", cuda_->limits().capability) : std::string(),
          .rows_per_thread = rows_per_thread,
          .loss = kind.loss,
          .strided_columns = kind.strided_columns};
}

DeviceOptions KernelStore::rowsOptions(const KernelKind& kind, unsigned rows_per_thread, unsigned min_blocks) const {
  DeviceOptions made_for = options(kind, rows_per_thread);
  made_for.min_blocks = min_blocks;
  return made_for;
}

const HandlerTable& KernelStore::table(const InterpreterVariant& variant) {
  const std::lock_guard lock(mutex_);
  auto found = tables_.find(variant);
  if (found == tables_.end()) {
    const std::span<const Op> ops = opsOf(variant.family);
    InterpreterSpec spec{.precision = precision_,
                         .math = math_,
                         .ops = {ops.begin(), ops.end()},
                         .rows_per_thread = variant.rows_per_thread};
    found = tables_.try_emplace(variant, std::move(spec)).first;
  }
  return found->second;
}

std::shared_ptr<const Module> KernelStore::loaded(const KernelKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = loaded_.find(std::string(key.digest.begin(), key.digest.end()));
  return found == loaded_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<const Module> KernelStore::load(const KernelKey& key, const KernelImage& image) {
  const CurrentContext current(*cuda_);
  auto loaded = std::make_shared<const Module>(cuda_, image);
  const std::lock_guard lock(mutex_);
  if (loaded_.size() > 4096) std::erase_if(loaded_, [](const auto& entry) { return entry.second.expired(); });
  loaded_[std::string(key.digest.begin(), key.digest.end())] = loaded;
  return loaded;
}

Result<std::shared_ptr<const Module>> KernelStore::load(const KernelKey& key, const Make& make) {
  if (auto known = loaded(key)) return known;
  auto image = cache_->get(key, make);
  if (!image) return std::move(image).error();
  return load(key, **image);
}

Result<Kernel> KernelStore::keep(const KernelNumber& number, const KernelKey& key, const char* name, const Make& make) {
  auto loaded = load(key, make);
  if (!loaded) return std::move(loaded).error();
  const CurrentContext current(*cuda_);
  const Kernel kernel = (*loaded)->kernel(name);
  kernel.allowSharedBytes(cuda_->limits().shared_bytes_per_block - kernel.staticSharedBytes());
  const std::lock_guard lock(mutex_);
  return kept_.try_emplace(number, std::move(*loaded), kernel).first->second.second;
}

std::optional<Kernel> KernelStore::kept(const KernelNumber& number) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(number);
  if (found == kept_.end()) return std::nullopt;
  return found->second.second;
}

Result<Kernel> KernelStore::interpreter(const InterpreterVariant& variant, const KernelKind& kind) {
  const KernelNumber number{variant, numberOf(kind)};
  if (const auto kernel = kept(number)) return *kernel;
  const HandlerTable& handlers = table(variant);
  const DeviceOptions made_for = options(kind, variant.rows_per_thread);
  return keep(number, keyOfInterpreter(handlers, made_for, identity_), kInterpreterKernel,
              [&] { return images_->interpreter(handlers, made_for); });
}

Result<Kernel> KernelStore::totals() {
  const KernelNumber number{InterpreterVariant{OpFamily::kAll, 0}, 0};
  if (const auto kernel = kept(number)) return *kernel;
  const DeviceOptions made_for = options({}, 4);
  return keep(number, keyOfTotals(made_for, identity_), kTotalsKernel, [&] { return images_->totals(made_for); });
}

Result<std::shared_ptr<const Module>> KernelStore::lanes() {
  if (auto kept = lanesIfMade()) return kept;
  const DeviceOptions made_for = options({}, 4);
  auto made = load(keyOfLanes(made_for, identity_), [&] { return images_->lanes(made_for); });
  if (!made) return made;
  (*made)->kernel(kTreesKernel).allowSharedBytes(kMostTreesSharedBytes);
  const std::lock_guard lock(mutex_);
  lanes_ = *made;
  return made;
}

std::shared_ptr<const Module> KernelStore::lanesIfMade() {
  const std::lock_guard lock(mutex_);
  return lanes_;
}

KernelKey KernelStore::keyOf(std::span<const Dag> dags, const KernelKind& kind, unsigned rows_per_thread,
                             unsigned min_blocks) const {
  return keyOfRows(dags, rowsOptions(kind, rows_per_thread, min_blocks), identity_);
}

Result<std::shared_ptr<const Module>> KernelStore::rows(const KernelKey& key, std::span<const Dag> dags,
                                                        const KernelKind& kind, unsigned rows_per_thread,
                                                        unsigned min_blocks, double& seconds) {
  const DeviceOptions made_for = rowsOptions(kind, rows_per_thread, min_blocks);
  seconds = 0;
  return load(key, [&] {
    auto image = images_->rows(dags, made_for);
    if (image) seconds = image->seconds;
    return image;
  });
}

FoundRows KernelStore::findRows(const KernelKey& key, const std::shared_ptr<KernelImage>& space) {
  if (auto known = loaded(key)) return {.module = std::move(known), .image = {}};
  return {.module = {}, .image = cache_->find(key, space)};
}

std::shared_ptr<const Module> KernelStore::load(const KernelKey& key, const FoundRows& found) {
  return found.module != nullptr ? found.module : load(key, *found.image);
}

}  // namespace srjit

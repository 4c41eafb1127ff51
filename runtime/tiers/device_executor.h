// Programs on a GPU.
#pragma once

#include <memory>

#include "compiler/kernels/image_maker.h"
#include "ir/error.h"
#include "runtime/cache/kernels.h"
#include "runtime/cuda/driver.h"
#include "runtime/evaluation/executor.h"

namespace srjit {

/// The cache of an engine's kernels, which its devices share.
std::shared_ptr<KernelCache> openKernelCache(const EngineOptions& options);

/// An executor on the driver's device number `ordinal`; `options.threads` as Engine::create has decided. Errors:
/// kMachine without the device, kUnsupported for a device that no kernels can be made for.
Result<std::unique_ptr<Executor>> makeDeviceExecutor(const EngineOptions& options, unsigned ordinal,
                                                     const std::shared_ptr<const Driver>& driver,
                                                     std::shared_ptr<const ImageMaker> images,
                                                     std::shared_ptr<KernelCache> cache);

}  // namespace srjit

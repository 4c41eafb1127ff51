// Programs on a GPU.
#pragma once

#include <memory>

#include "compiler/kernels/image_maker.h"
#include "ir/error.h"
#include "runtime/cuda/driver.h"
#include "runtime/evaluation/executor.h"

namespace srjit {

/// An executor on the driver's device number `ordinal`; `options.threads` as Engine::create has decided. Errors:
/// kMachine without the device, kUnsupported for a device that no kernels can be made for.
Result<std::unique_ptr<Executor>> makeDeviceExecutor(const EngineOptions& options, unsigned ordinal,
                                                     const std::shared_ptr<const Driver>& driver,
                                                     std::shared_ptr<const ImageMaker> images);

}  // namespace srjit

// Programs on a GPU.
#pragma once

#include <functional>
#include <memory>

#include "compiler/kernels/image_maker.h"
#include "ir/error.h"
#include "runtime/cuda/driver.h"
#include "runtime/evaluation/executor.h"

namespace srjit {

/// What an engine on a GPU is made of, so that tests can put models in their places.
struct EngineParts {
  /// The driver, or why there is none.
  std::function<Result<std::shared_ptr<const Driver>>()> driver;
  std::shared_ptr<const ImageMaker> images;

  /// The driver and the compiler of this machine.
  static EngineParts ofMachine();
};

/// `options.threads` as Engine::create has decided. Errors: kMachine without a driver or the device, kUnsupported for a
/// device that no kernels can be made for.
Result<std::unique_ptr<Executor>> makeDeviceExecutor(const EngineOptions& options, unsigned ordinal,
                                                     const EngineParts& parts);

}  // namespace srjit

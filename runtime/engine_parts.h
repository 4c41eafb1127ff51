// What an engine on a GPU is made of, so that tests can put models in their places.
#pragma once

#include <memory>

#include "runtime/driver.h"
#include "runtime/engine.h"
#include "runtime/kernel_image.h"

namespace srjit {

struct EngineParts {
  /// The driver, or why there is none.
  std::function<Result<std::shared_ptr<const Driver>>()> driver;
  std::shared_ptr<const ImageMaker> images;

  /// The driver and the compiler of this machine.
  static EngineParts ofMachine();
};

/// Engine::create with other parts.
Result<Engine> createEngine(const EngineOptions& options, const EngineParts& parts);

}  // namespace srjit

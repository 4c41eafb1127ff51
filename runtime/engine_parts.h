// What an engine takes from its machine. Tests put models in the places.
#pragma once

#include <functional>
#include <memory>

#include "compiler/kernels/image_maker.h"
#include "ir/error.h"
#include "runtime/cuda/driver.h"
#include "runtime/engine.h"

namespace srjit {

struct EngineParts {
  /// The driver, or why there is none; called for engines on a GPU alone.
  std::function<Result<std::shared_ptr<const Driver>>()> driver;
  std::shared_ptr<const ImageMaker> images;

  /// The driver and the compiler of this machine.
  static EngineParts ofMachine();
};

/// Engine::create() with the given parts.
Result<Engine> createEngine(const EngineOptions& options, const EngineParts& parts);

}  // namespace srjit

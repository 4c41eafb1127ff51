// What an engine takes from its machine. Tests put models in the places.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "compiler/kernels/image_maker.h"
#include "ir/error.h"
#include "runtime/cuda/driver.h"
#include "runtime/engine.h"

namespace srjit {

struct EngineParts {
  /// The driver, or why there is none; called only for engines on a GPU.
  std::function<Result<std::shared_ptr<const Driver>>()> driver;
  std::shared_ptr<const ImageMaker> images;
  /// Into how many parts Engine::submitLoss() divides a population; 0: into as many as seems quickest.
  std::size_t population_parts = 0;

  /// The driver and the compiler of this machine, which writes listings to the directory $SRJIT_LISTINGS if that is
  /// set.
  static EngineParts ofMachine();
};

/// Engine::create() with the given parts.
Result<Engine> createEngine(const EngineOptions& options, const EngineParts& parts);

}  // namespace srjit

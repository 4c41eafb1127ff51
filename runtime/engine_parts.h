// Engines with models in place of a machine's driver and compiler, for tests.
#pragma once

#include "runtime/engine.h"
#include "runtime/tiers/device_executor.h"

namespace srjit {

/// Engine::create with other parts.
Result<Engine> createEngine(const EngineOptions& options, const EngineParts& parts);

}  // namespace srjit

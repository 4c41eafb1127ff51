// Engines whose driver and compiler are replaced by models, for tests.
#pragma once

#include "runtime/engine.h"
#include "runtime/tiers/device_executor.h"

namespace srjit {

/// Engine::create() with the given parts.
Result<Engine> createEngine(const EngineOptions& options, const EngineParts& parts);

}  // namespace srjit

// Programs on a GPU.
#pragma once

#include <memory>

#include "runtime/engine_parts.h"
#include "runtime/executor.h"

namespace srjit {

/// `options.threads` as Engine::create has decided. Errors: kMachine without a driver or the device, kUnsupported for a
/// device that no kernels can be made for.
Result<std::unique_ptr<Executor>> makeDeviceExecutor(const EngineOptions& options, unsigned ordinal,
                                                     const EngineParts& parts);

}  // namespace srjit

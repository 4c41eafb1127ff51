// Programs on several GPUs at once.
#pragma once

#include <memory>
#include <vector>

#include "runtime/engine_options.h"
#include "runtime/evaluation/executor.h"
#include "runtime/pool/devices.h"

namespace srjit {

/// An executor that divides the expressions of every program among the devices. Each has all data or, of data that are
/// too large for one, some rows. What a device cannot do, because it is lost or because its memory does not suffice,
/// the others do. Of the options it takes the name of all devices, the precision, and the number of threads that serve
/// all devices.
std::unique_ptr<Executor> makePoolExecutor(const EngineOptions& options, std::vector<PoolDevice> devices);

}  // namespace srjit

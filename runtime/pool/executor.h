// Programs on several GPUs at once. The phases of a call, for a loss:
//
//   PoolExecutor::devicesOf(data)    the devices that work and have the data
//   PoolDevices::retry(devices)      the call on these, and again without those that fail, until it succeeds
//     PoolProgram::sharesOn(devices)   divideExpressions() by Executor::secondsPerToken(); a Program on each device
//     PoolFlight::begin()              Executor::start() of each share
//     PoolFlight::collect()            Flight::finish() of each share; its results go to their place
//
// Predictions have Executor::run() of each share instead of the last two. upload(), adopt() and select() place the data
// on each device; a device that fails has none, and takes no part in calls on these data.
#pragma once

#include <memory>
#include <vector>

#include "runtime/engine_options.h"
#include "runtime/evaluation/executor.h"
#include "runtime/pool/devices.h"

namespace srjit {

/// An executor that divides the expressions of every program among the devices, each of which has all data: in its
/// memory, or streamed to it from host memory. A device that fails, because it is lost or short of memory, takes no
/// further part in the call; the others evaluate everything again. Of the options it takes the name of all devices,
/// the precision, and the number of threads that serve all devices.
std::unique_ptr<Executor> makePoolExecutor(const EngineOptions& options, std::vector<PoolDevice> devices);

}  // namespace srjit

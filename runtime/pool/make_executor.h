// What an engine evaluates on: EngineOptions::device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compiler/kernels/image_maker.h"
#include "runtime/cuda/driver.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/executor.h"

namespace srjit {

/// The driver, or why there is none.
using GetDriver = std::function<Result<std::shared_ptr<const Driver>>()>;

/// What evaluates on the device, or the devices, of the options, whose `threads` are resolved; the driver is asked for
/// GPUs alone. Sets `device` to what it takes, and adds notices. Errors: those of Engine::create().
Result<std::unique_ptr<Executor>> makeExecutor(EngineOptions& options, const GetDriver& driver,
                                               const std::shared_ptr<const ImageMaker>& images,
                                               std::vector<std::string>& notices);

}  // namespace srjit

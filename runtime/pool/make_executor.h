// What an engine evaluates on: EngineOptions::device, and the names of GPUs there.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/kernels/image_maker.h"
#include "runtime/cuda/driver.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/executor.h"

namespace srjit {

/// What a name of devices may be, for messages.
inline constexpr const char* kDeviceForms = "auto, cpu, cuda:N, a list as cuda:0,2, or cuda:all";

/// The ordinals of "cuda:N", of a list "cuda:N,M", in its order, and of "cuda:all", for which `count` gives the number
/// of devices. Nothing for a name of another form. Errors: kInvalid for a list that is malformed or has a device twice,
/// kMachine for "cuda:all" without a device, and those of `count`.
Result<std::optional<std::vector<unsigned>>> cudaOrdinals(std::string_view device,
                                                          const std::function<Result<std::size_t>()>& count);

/// The name of these devices: "cuda:0", or "cuda:0,2".
std::string nameOfDevices(const std::vector<unsigned>& ordinals);

/// The driver, or why there is none.
using GetDriver = std::function<Result<std::shared_ptr<const Driver>>()>;

/// What evaluates on the devices of the options, whose `threads` are resolved; asks for the driver only for GPUs. Sets
/// `device` to the devices that it takes, and adds notices. Errors: those of Engine::create().
Result<std::unique_ptr<Executor>> makeExecutor(EngineOptions& options, const GetDriver& driver,
                                               const std::shared_ptr<const ImageMaker>& images,
                                               std::vector<std::string>& notices);

}  // namespace srjit

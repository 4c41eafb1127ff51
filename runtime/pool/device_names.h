// The names of GPUs in EngineOptions::device.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/error.h"

namespace srjit {

/// The ordinals of "cuda:N", of a list "cuda:N,M", in its order, and of "cuda:all", for which `count` is asked how many
/// devices there are. Nothing for a name of another form. Errors: kInvalid for a list that is malformed or has a device
/// twice, kMachine for "cuda:all" without a device, and those of `count`.
Result<std::optional<std::vector<unsigned>>> cudaOrdinals(std::string_view device,
                                                          const std::function<Result<std::size_t>()>& count);

/// The name of these devices: "cuda:0", or "cuda:0,2".
std::string nameOfDevices(const std::vector<unsigned>& ordinals);

/// What a name of devices may be, for messages.
inline constexpr const char* kDeviceForms = "auto, cpu, cuda:N, a list as cuda:0,2, or cuda:all";

}  // namespace srjit

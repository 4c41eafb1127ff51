// PTX of the kernels of the front end.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "compiler/nvptx/options.h"
#include "ir/error.h"

namespace srjit {

/// The kernels, as clang has compiled them; empty where this library was built without clang 19.
std::span<const std::byte> frontEndBitcode() noexcept;

/// The kernels of compiler/interpreter/front_end/arguments.h, for every precision and math mode; of the options, only
/// arch counts. Thread-safe. Errors: kInvalid for an unknown architecture, kUnsupported without the kernels.
Result<std::string> frontEndPtx(const DeviceOptions& options);

}  // namespace srjit

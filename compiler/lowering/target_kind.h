// The kind of processor that code runs on, as far as operators are concerned.
#pragma once

#include <cstdint>

namespace srjit {

enum class TargetKind : std::uint8_t { kDevice, kHost };

}  // namespace srjit

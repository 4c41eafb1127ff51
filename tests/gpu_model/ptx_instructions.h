// What instructions of PTX without effects compute, on the bits of registers.
#pragma once

#include <cstdint>
#include <string>

namespace srjit {

using PtxFunction = std::uint64_t (*)(std::uint64_t a, std::uint64_t b, std::uint64_t c);

/// The function of an instruction with its type, without modifiers of rounding: "add.f32", "setp.lt.u32",
/// "mul.wide.u32"; null if there is no model of it.
PtxFunction findPtxFunction(const std::string& name);

/// "mul.wide.u32" of "mul.wide.u32", "add.f32" of "add.rn.ftz.f32".
std::string plainPtxName(const std::string& opcode);

}  // namespace srjit

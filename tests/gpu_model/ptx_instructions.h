// Semantics of PTX instructions without side effects, on the bits of registers.
#pragma once

#include <cstdint>
#include <string>

namespace srjit {

using PtxFunction = std::uint64_t (*)(std::uint64_t a, std::uint64_t b, std::uint64_t c);

/// The function of an instruction with its type, without rounding modifiers: "add.f32", "setp.lt.u32", "mul.wide.u32";
/// null if it has no model.
PtxFunction findPtxFunction(const std::string& name);

/// "mul.wide.u32" of "mul.wide.u32", "add.f32" of "add.rn.ftz.f32".
std::string plainPtxName(const std::string& opcode);

}  // namespace srjit

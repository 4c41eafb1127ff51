// Operators and elementary functions only as types, for headers that store one or pass it on. Enumerators
// and facts are in ir/ops.h, which depends on the tables: a new row compiles again what includes that header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace srjit {

/// An operator: the number of a row of ops.def. Op{} is the first row.
enum class Op : std::uint8_t;

/// An elementary function that rows of ops.def may call: the number of a row of functions.def.
enum class Function : std::uint8_t;
struct FunctionInfo;

inline constexpr int kMaxArity = 3;
/// Enough for an array by operator, whatever rows there are: Op has 8 bits.
inline constexpr std::size_t kMostOps = 256;

/// By the number of the operator.
extern const std::uint8_t kArities[];
/// Hashes of the names. Code that depends on an operator's identity uses these rather than its number, so that a new
/// row changes nothing about expressions without it.
extern const std::uint64_t kNameHashes[];

inline int arityOf(Op op) noexcept { return kArities[static_cast<std::size_t>(op)]; }
inline std::uint64_t nameHashOf(Op op) noexcept { return kNameHashes[static_cast<std::size_t>(op)]; }

}  // namespace srjit

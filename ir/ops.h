// Facts about operators and elementary functions, read from ops.def and functions.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ir/numeric.h"
#include "ir/op.h"

namespace srjit {

/// In the order of the table.
enum class Op : std::uint8_t {
#define SRJIT_OP(id, ...) k##id,
#include "ir/ops.def"
#undef SRJIT_OP
};

/// In the order of the table.
enum class Function : std::uint8_t {
#define SRJIT_FUNCTION(id, ...) k_##id,
#include "ir/functions.def"
#undef SRJIT_FUNCTION
};

/// A set of properties of an operator.
enum class OpProps : std::uint8_t {
  kInfix = 1,        ///< infix writes a sign instead of a call
  kCommutative = 2,  ///< the first two operands may be exchanged, bit for bit (any NaN equals any NaN)
  kSteps = 4,        ///< the value jumps somewhere, so a small error of an operand may give a large one
  // The family; every row has one:
  kArithmetic = 8,  ///< short code; passes turn such operators into others of this family
  kCommon = 16,     ///< the other operators of usual systems, and those that the simplifier makes of them
  kRare = 32,       ///< any other
};
constexpr OpProps operator|(OpProps a, OpProps b) noexcept {
  return static_cast<OpProps>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr OpProps operator&(OpProps a, OpProps b) noexcept {
  return static_cast<OpProps>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}

/// One row of ops.def without its value.
struct OpInfo {
  std::string_view name;
  std::string_view text;
  int arity;
  OpProps props;
  std::string_view value;  ///< the row's value as written in the table, for documentation
  std::string_view doc;

  /// Whether it has all of these.
  constexpr bool has(OpProps wanted) const noexcept { return (props & wanted) == wanted; }
};

/// The code that computes an elementary function, with the same bits on every target.
enum class FunctionCode : std::uint8_t {
  kOperation,  ///< an operation of IEEE 754, whose result is fixed
  kProgram,    ///< a program of ir/functions/
};

/// One row of functions.def.
struct FunctionInfo {
  std::string_view name;
  int arity;
  FunctionCode code;
  double ulp_f32, ulp_f64;
};

inline constexpr std::size_t kOpCount = 0
#define SRJIT_OP(...) +1
#include "ir/ops.def"
#undef SRJIT_OP
    ;

/// All rows, indexed by the enumerator.
std::span<const OpInfo> allOps() noexcept;
std::span<const FunctionInfo> allFunctions() noexcept;

inline const OpInfo& infoOf(Op op) noexcept { return allOps()[static_cast<std::size_t>(op)]; }
inline const FunctionInfo& infoOf(Function function) noexcept {
  return allFunctions()[static_cast<std::size_t>(function)];
}
/// The maximal error in units in the last place.
inline double ulpsOf(const FunctionInfo& function, Precision precision) noexcept {
  switch (precision) {
    case Precision::kF32:
      return function.ulp_f32;
    case Precision::kF64:
      return function.ulp_f64;
  }
  __builtin_unreachable();
}

/// The operator with this name or text, as postfix and prefix spell it; none if unknown. Constant time.
std::optional<Op> findOp(std::string_view name_or_text) noexcept;

}  // namespace srjit

// Expressions in the memory of a GPU, as systems that breed there have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ir/numeric.h"
#include "ir/population.h"

namespace srjit {

/// Tokens of an expression at most, since a lane keeps all of them in shared memory.
inline constexpr std::uint32_t kMostDeviceTokens = 256;

/// Addresses of a GPU's memory. Nothing outside of the arrays is read, whatever they hold: expressions that are not
/// valid have a DeviceFault each.
struct DevicePopulation {
  std::uint64_t codes = 0;  ///< int32, `tokens` of them (ir/token_codes.h). Parameters have no value here
  std::uint64_t values =
      0;  ///< `tokens` numbers: those of tokens that are constants, and any others. 0 if there are none
  std::size_t tokens = 0;
  std::size_t expressions = 0;
  std::uint64_t offsets =
      0;                   ///< int64, expressions + 1: as those of PopulationView. 0: expression e begins at e * stride
  std::size_t stride = 0;  ///< without offsets: stride * expressions == tokens
  std::uint64_t lengths =
      0;  ///< int32 by expression. 0: up to the next one, or in prefix without offsets as long as it is
  Precision values_type = Precision::kF32;
  Notation notation = Notation::kPostfix;
};

/// Why an expression has no loss.
enum class DeviceFault : std::uint8_t {
  kNone,
  kLength,     ///< no tokens, more than the most, or outside of the arrays
  kCode,       ///< a code that no operator has
  kOperator,   ///< one that was not among the operators given
  kVariable,   ///< one that the data do not have
  kParameter,  ///< a parameter
  kOperands,   ///< an operator lacks operands
  kRest,       ///< tokens that belong to no operator
  kSlots,      ///< more values are kept meanwhile than there is room for
};
inline constexpr std::size_t kDeviceFaults = 9;

/// A clause such as "an operator lacks operands".
std::string_view textOf(DeviceFault fault) noexcept;

}  // namespace srjit

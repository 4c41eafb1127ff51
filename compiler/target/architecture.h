// The facts of architectures.def. Thread-safe: no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace srjit {

/// Threads of a warp, of every architecture.
inline constexpr unsigned kWarpLanes = 32;

/// Architectures whose machine instructions and cubins have one form.
enum class IsaGeneration : std::uint8_t {
#define SRJIT_GENERATION(id, ...) id,
#include "compiler/target/architectures.def"
};

struct Architecture {
  unsigned number = 0;         ///< 90 of sm_90
  std::string_view name = {};  ///< "sm_90"
  IsaGeneration generation;
  std::uint16_t parameters, descriptor;  ///< where the driver puts these into constant bank 0, in bytes
  bool has_split_branches;  ///< the offset of a branch in two fields, in units of 4 bytes; else in one, in bytes
  bool has_recent_layout;   ///< of cubins; so are the three fields that follow
  std::uint8_t reserved_bytes, flags;
  bool has_masks;
  bool has_ptx = false;            ///< whether LLVM writes PTX for it
  bool has_direct_code = false;    ///< whether its machine instructions were verified
  bool has_async_copies = false;   ///< cp.async
  bool has_fixed_doubles = false;  ///< whether double instructions have fixed latencies
  std::uint8_t predicate_delay = 0;
  std::uint32_t compatibility = 0, workarounds = 0;  ///< in cubins
};

/// The architecture of code where nobody names one.
inline constexpr unsigned kDefaultArchitecture = 90;

/// All rows, ascending.
std::span<const Architecture> allArchitectures() noexcept;
/// The row of the number, or the one before it for a number without a row; the first row for older numbers.
const Architecture& architectureOf(unsigned number) noexcept;
/// The row with this name, "sm_90", which must be in the table.
const Architecture& architectureOf(std::string_view name) noexcept;

/// The names of the architectures that LLVM writes PTX for, and the numbers of those that have direct code; ascending.
std::span<const std::string_view> ptxArchitectures() noexcept;
std::span<const unsigned> directArchitectures() noexcept;

}  // namespace srjit

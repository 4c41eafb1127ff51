// The kernels that encode a population in a GPU's memory (ir/population.h), and that finish its losses. The host takes
// no part: programs get their places by atomic additions, and the interpreter runs them in the order of these.
//
// Kernel `srjit_encode_trees`: TreeArguments. A thread for each expression; blocks of lanesOfBlock() threads, a grid in
// x only, dynamic shared memory of treesSharedBytes(). `counts` are 0 before. A block
//
//   checks    finds the end and the fault of each expression
//   sorts     expressions by length, so that the lanes of a warp take as many steps
//   reads     nodes with the place of each value, from the first token on, and counts the program's tokens
//   takes     room for the tokens, numbers and programs of the block: two atomic additions
//   writes    programs, from the root down
//
// Kernel `srjit_losses`: LossArguments. A thread for each expression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "compiler/interpreter/encoder.h"
#include "ir/losses.h"
#include "ir/numeric.h"
#include "ir/population.h"

namespace srjit {

inline constexpr const char* kTreesKernel = "srjit_encode_trees";
inline constexpr const char* kLossesKernel = "srjit_losses";
inline constexpr unsigned kLossesThreads = 256;

/// Values that a program keeps in slots at once, at most. Where an operator needs more registers than there are, its
/// longest operand goes to a slot whose move helps, so a statement has few: each such choice about doubles the tokens.
/// tests/runtime/launch/lanes_test.cpp has the worst trees that were found.
inline constexpr std::uint32_t kLaneSlots = 6;

/// Words of shared memory of a lane: one for each token, and one for each slot.
constexpr std::uint32_t laneWords(std::uint32_t most_tokens) noexcept { return most_tokens + kLaneSlots; }
/// The groups that lengths are sorted by; a block has as many lanes at least.
inline constexpr unsigned kLengthGroups = 32;
/// Room that the programs of any `tokens` tokens of `expressions` expressions fit.
constexpr std::size_t roomForPrograms(std::size_t tokens, std::size_t expressions) noexcept {
  return 3 * tokens + expressions;
}

/// What the blocks of a launch have taken.
struct TreeCounts {
  std::uint64_t programs_and_tokens;  ///< programs in the upper half, so that both are taken at once
  std::uint32_t numbers;
  std::uint32_t blocks;  ///< that are done; the last one ends the offsets
};

struct TreeArguments {
  // The whole population, and which expressions are encoded.
  const std::int32_t* codes;
  const std::byte* values;
  const std::int64_t* offsets;
  const std::int32_t* lengths;
  std::uint64_t tokens;  ///< of `codes`
  std::uint64_t stride;
  std::uint64_t first;  ///< the number of the first expression; arrays are those of all
  std::uint32_t expressions;
  std::uint32_t most_tokens;
  std::uint32_t columns;  ///< that are staged: variable v is the v-th
  Precision values_type;
  Notation notation;
  // What an expression may have.
  Precision precision;
  Math math;
  HandlerNumbers handlers;         ///< of the interpreter that will run it
  const std::uint8_t* is_allowed;  ///< by operator
  // Output. Its expressions count from `first` on.
  TreeCounts* counts;
  DeviceToken* programs;           ///< room for roomForPrograms() of them
  std::uint32_t* program_offsets;  ///< one more than expressions: those past the last program have no tokens
  std::byte* numbers;              ///< of `precision`; as many as there are tokens
  DeviceFault* faults;             ///< by expression
  std::byte* sums;                 ///< that the interpreter writes: by channel, expression and row group
  std::uint32_t channels, row_groups;
};

/// Words of shared memory of a block besides those of its lanes: by lane the tokens and numbers, the order, and two
/// for sums;
/// the groups of lengths, and the room that the block took.
constexpr std::uint32_t blockWords(unsigned lanes) noexcept { return 4 * lanes + kLengthGroups + 4; }
/// Dynamic shared memory of a block.
constexpr std::size_t treesSharedBytes(std::uint32_t most_tokens, unsigned lanes) noexcept {
  return (std::size_t{lanes} * laneWords(most_tokens) + blockWords(lanes)) * sizeof(std::uint32_t) +
         sizeof(TreeArguments);
}
/// What every device has for a block.
inline constexpr std::size_t kMostTreesSharedBytes = std::size_t{64} << 10;
/// Threads of a block: a power of two, as many as that allows.
constexpr unsigned lanesOfBlock(std::uint32_t most_tokens) noexcept {
  unsigned lanes = 256;
  while (treesSharedBytes(most_tokens, lanes) > kMostTreesSharedBytes) lanes /= 2;
  return lanes;
}
static_assert(lanesOfBlock(kMostDeviceTokens) >= kLengthGroups);
constexpr std::size_t treesSharedBytes(std::uint32_t most_tokens) noexcept {
  return treesSharedBytes(most_tokens, lanesOfBlock(most_tokens));
}

/// Of unscaled losses that kernels have (isInKernels()), of ordinary data.
struct LossArguments {
  const double* totals;  ///< channel after channel (LossSpec), those of all expressions of this launch
  const DeviceFault* faults;
  std::byte* losses;         ///< of `losses_type`; NaN with a fault
  std::int64_t* valid_rows;  ///< null if they are not wanted; -1 with a fault, or where no row was counted
  std::uint64_t rows;
  double all_weights;  ///< the sum over all rows; their number without weights
  double target_variance;
  std::uint32_t expressions;
  LossKind kind;
  double worst;  ///< of a loss with rows that are rejected
  Precision losses_type;
  bool skips_invalid, rejects_invalid, is_weighted;
};

static_assert(sizeof(void*) == 8 && std::is_trivially_copyable_v<TreeArguments> &&
              std::is_trivially_copyable_v<LossArguments>);

}  // namespace srjit

// The kernels that encode a population in a GPU's memory (ir/population.h), and that finish its losses. The host takes
// no part: programs get their places by atomic additions, and the interpreter runs them in the order of these.
//
// Kernel `srjit_encode_trees`: TreeArguments. An expression has a group of adjacent lanes of a warp (steps.h). Blocks
// of threadsOfBlock() threads, a grid in x only, dynamic shared memory of treesSharedBytes(). `counts` are 0 before. A
// block
//
//   checks     each lane a part of its expression's tokens, then where the first fault or the end is
//   sorts      expressions by length, so that the groups of a warp take as many steps
//   reads      leaves, then, step by step, an operator of each lane whose operands were read
//   lays out   where a program's statements end, and how long it is
//   takes      room for the tokens, numbers and programs of the block: two atomic additions
//   writes     step by step, an operator of each lane whose place is known, from the root down
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

/// Lanes of an expression: a power of two up to 32, for which threadsOfBlock() is a warp at least. With many
/// expressions few lanes idle least; with few expressions more lanes finish the longest one sooner. Measured:
/// docs/history/experiments.md.
inline constexpr unsigned kFewLanes = 4, kManyLanes = 8;
constexpr unsigned lanesOfTree(std::size_t expressions, std::size_t multiprocessors) noexcept {
  return expressions > 128 * multiprocessors ? kFewLanes : kManyLanes;
}

/// Words of shared memory of an expression: two for each token, one for each slot, and the length of its program.
constexpr std::uint32_t treeWords(std::uint32_t most_tokens) noexcept { return 2 * most_tokens + kLaneSlots + 1; }
/// The groups that lengths are sorted by; a block has as many threads at least.
inline constexpr unsigned kLengthGroups = 32;
/// Room that the programs of any `tokens` tokens of `expressions` expressions fit.
constexpr std::size_t roomForPrograms(std::size_t tokens, std::size_t expressions) noexcept {
  return 3 * tokens + expressions;
}

/// What the blocks of a launch have taken.
struct TreeCounts {
  std::uint64_t programs_and_tokens;  ///< programs in the upper half, so that both are taken at once
  std::uint32_t numbers;              ///< room for these: a number has the place of its token
  std::uint32_t blocks;               ///< that are done; the last one ends the offsets
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
  std::uint32_t lanes;    ///< of an expression (lanesOfTree())
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

/// Words of shared memory of a block besides those of its expressions: by thread two for sums and one for faults, by
/// expression its length and its place in the order; the groups of lengths, and the room that the block took.
constexpr std::uint32_t blockWords(unsigned threads, unsigned lanes) noexcept {
  return 3 * threads + 2 * (threads / lanes) + kLengthGroups + 4;
}
/// Dynamic shared memory of a block.
constexpr std::size_t treesSharedBytes(std::uint32_t most_tokens, unsigned lanes, unsigned threads) noexcept {
  return (std::size_t{threads / lanes} * treeWords(most_tokens) + blockWords(threads, lanes)) * sizeof(std::uint32_t) +
         sizeof(TreeArguments);
}
/// The dynamic shared memory of a block, at most.
inline constexpr std::size_t kMostTreesSharedBytes = std::size_t{64} << 10;
/// A power of two, as many as that allows.
constexpr unsigned threadsOfBlock(std::uint32_t most_tokens, unsigned lanes) noexcept {
  unsigned threads = 256;
  while (treesSharedBytes(most_tokens, lanes, threads) > kMostTreesSharedBytes) threads /= 2;
  return threads;
}
static_assert(threadsOfBlock(kMostDeviceTokens, kFewLanes) >= kLengthGroups &&
              threadsOfBlock(kMostDeviceTokens, kManyLanes) >= kLengthGroups);
constexpr std::size_t treesSharedBytes(std::uint32_t most_tokens, unsigned lanes) noexcept {
  return treesSharedBytes(most_tokens, lanes, threadsOfBlock(most_tokens, lanes));
}
/// Registers of a thread, at most: few enough that a multiprocessor holds warps enough to hide latencies.
inline constexpr unsigned kTreesRegisters = 64;

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

static_assert(sizeof(void*) == 8 && sizeof(TreeArguments) % 8 == 0 && alignof(TreeArguments) <= 16 &&
              std::is_trivially_copyable_v<TreeArguments> && std::is_trivially_copyable_v<LossArguments>);

}  // namespace srjit

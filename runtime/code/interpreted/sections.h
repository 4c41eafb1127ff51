// Which expressions are staged with the same columns, and which columns these are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/code/parts.h"

namespace srjit {

/// Programs are encoded before it is known which operators and columns all of them need. Until then their tokens have
/// the handlers of the family of all operators; columns are variables, and slots are numbered from here on. Where there
/// are more variables, those of a section are numbered. An interpreter stages far fewer columns.
inline constexpr std::uint32_t kFirstSlot = 1U << 17;

/// What the columns and slots of a program may take of a block's shared memory: three and two parts of seven, so that
/// two are left for tokens. With four teams, which share the columns of one strip, there is room for four times as many
/// columns as with one; slots are of each team. What keeps to that can be launched so (chooseGeometry).
struct InterpreterLimits {
  std::size_t columns, slots;

  InterpreterLimits(const DeviceLimits& limits, Precision precision);
};

/// Blocks have slots for their neediest program, and with many slots a multiprocessor holds few of them. So programs
/// that need more than these are launched apart, where at least half need no more. Measured for normal equations of
/// 10,000 to 250,000 expressions on an H100: ten of f32 are better than eight or no bound
/// (docs/history/experiments.md).
constexpr std::uint32_t fewSlots(Precision precision) {
  return static_cast<std::uint32_t>(10 * sizeof(float)) / static_cast<std::uint32_t>(bytesOf(precision));
}

/// Neighbours whose programs are staged with the same columns.
struct SectionDraft {
  std::size_t first, last;                    ///< of the chosen
  std::vector<std::uint32_t> numbers = {};    ///< by variable; empty: the identity
  std::vector<std::uint32_t> variables = {};  ///< by number, unless that is the identity
  std::vector<std::uint32_t> columns = {};    ///< staged columns
  std::vector<std::uint32_t> staged_as = {};  ///< by number

  /// The variable's number where it has one; others are refused.
  std::optional<std::uint32_t> numberOf(std::uint32_t variable) const;
  /// Stages the variables that are used, by their number.
  void stage(const std::vector<bool>& uses);
  std::uint32_t stagedColumns() const { return static_cast<std::uint32_t>(columns.size()); }
};

/// One section for all, unless they have too many variables. Then neighbours share one as long as their columns fit; an
/// expression of more columns is a section of its own.
std::vector<SectionDraft> findSections(const CompileOrder& order, const InterpreterLimits& limits);

}  // namespace srjit

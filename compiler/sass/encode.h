// The encoder as a table with a row for each form, and no branches, for code that encodes many instructions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compiler/sass/instruction.h"

namespace srjit::sass {

/// Where fields stand that every instruction has.
inline constexpr std::uint8_t kGuardAt = 12, kStallAt = 105, kYieldAt = 109, kWriteBarrierAt = 110,
                              kReadBarrierAt = 113, kWaitAt = 116, kReuseAt = 122;

/// An index of Encoding::signs: Instruction::negated from bit 0, Instruction::magnitude from kMagnitudeAt.
inline constexpr unsigned kMagnitudeAt = 3;
inline constexpr std::size_t kSignSets = 64, kModifiers = 256;

/// How a form is encoded. A number's factor is the power of two that moves it to its place in the lower or upper half
/// of a word, or 0 where the form has no such field. A field is put at most once; until then it has RZ or PT.
struct Encoding {
  Word blank;  ///< the bits that never change, with RZ and PT in all fields
  std::array<std::uint64_t, 3> sources_low, sources_high;
  std::uint64_t immediate_low;
  std::uint32_t immediate_mask;
  std::uint32_t destination_low, predicate_high, condition_high;
  const Word* signs;               ///< kSignSets
  const std::uint64_t* modifiers;  ///< upper half, kModifiers

  /// Everything but predicates, registers, control and the offset of a branch. Signs and magnitudes are those of three
  /// sources.
  Word begin(unsigned negated, unsigned magnitude, std::uint8_t modifier, std::uint32_t immediate) const noexcept {
    const Word& sign = signs[negated | magnitude << kMagnitudeAt];
    return {blank.low | sign.low | (immediate & immediate_mask) * immediate_low,
            blank.high | sign.high | modifiers[modifier]};
  }
  void putSource(Word& word, std::size_t source, std::uint64_t number) const noexcept {
    word.low ^= (number ^ kZero) * sources_low[source];
    word.high ^= (number ^ kZero) * sources_high[source];
  }
  void putDestination(Word& word, std::uint64_t number) const noexcept {
    word.low ^= (number ^ kZero) * destination_low;
  }
  void putPredicate(Word& word, std::uint64_t number) const noexcept { word.high ^= (number ^ kTrue) * predicate_high; }
  void putCondition(Word& word, std::uint64_t number) const noexcept { word.high ^= (number ^ kTrue) * condition_high; }
};
constexpr void putGuard(Word& word, std::uint64_t number) noexcept { word.low ^= (number ^ kTrue) << kGuardAt; }

inline constexpr std::size_t kForms = 0
#define SRJIT_SASS(...) +1
#include "compiler/sass/instructions.def"
#undef SRJIT_SASS
    ;
extern const std::array<Encoding, kForms> kEncodings;

inline const Encoding& encodingOf(Form form) noexcept { return kEncodings[static_cast<std::size_t>(form)]; }

/// The upper half of the bits that say when an instruction is issued.
constexpr std::uint64_t bitsOf(const Control& control) noexcept {
  const auto at = [](std::uint64_t value, unsigned position) { return value << (position - 64); };
  return at(control.stall, kStallAt) | at(control.yield ? 1 : 0, kYieldAt) |
         at(control.write_barrier, kWriteBarrierAt) | at(control.read_barrier, kReadBarrierAt) |
         at(control.wait_mask, kWaitAt) | at(control.reuse, kReuseAt);
}

/// In bytes from the next instruction.
void putBranchOffset(Word& word, std::uint32_t offset, unsigned architecture) noexcept;

}  // namespace srjit::sass

// The encoder as a table with a row for each form, and no branches: what many instructions are encoded with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compiler/sass.h"

namespace srjit::sass {

/// Where fields stand that every instruction has.
inline constexpr std::uint8_t kGuardAt = 12, kStallAt = 105, kYieldAt = 109, kWriteBarrierAt = 110,
                              kReadBarrierAt = 113, kWaitAt = 116, kReuseAt = 122;

/// An index of Encoding::signs: Instruction::negated from bit 0, Instruction::magnitude from kMagnitudeAt.
inline constexpr unsigned kMagnitudeAt = 3;
inline constexpr std::size_t kSignSets = 64, kModifiers = 256;

/// How a form is encoded. A number's factor is the power of two that moves it to its place in the lower or upper half of
/// a word, or 0 where the form has no such field.
struct Encoding {
  Word fixed;
  std::uint64_t a_low, a_high, b_low, b_high, c_high, immediate_low;
  std::uint32_t immediate_mask;
  std::uint32_t destination_low, predicate_high, condition_high;
  const Word* signs;               ///< kSignSets
  const std::uint64_t* modifiers;  ///< upper half, kModifiers
};
inline constexpr std::size_t kForms = 0
#define SRJIT_SASS(...) +1
#include "compiler/sass.def"
#undef SRJIT_SASS
    ;
extern const std::array<Encoding, kForms> kEncodings;

/// The upper half of what says when an instruction is issued.
constexpr std::uint64_t bitsOf(const Control& control) noexcept {
  const auto at = [](std::uint64_t value, unsigned position) { return value << (position - 64); };
  return at(control.stall, kStallAt) | at(control.yield ? 1 : 0, kYieldAt) | at(control.write_barrier, kWriteBarrierAt) |
         at(control.read_barrier, kReadBarrierAt) | at(control.wait_mask, kWaitAt) | at(control.reuse, kReuseAt);
}

/// All of a word but the offset of a branch.
inline Word encodeFields(const Instruction& i) noexcept {
  const Encoding& form = kEncodings[static_cast<std::size_t>(i.form)];
  const Word signs = form.signs[i.negated | i.magnitude << kMagnitudeAt];
  const std::uint64_t a = i.sources[0], b = i.sources[1], c = i.sources[2];
  return {form.fixed.low | signs.low | std::uint64_t{i.guard} << kGuardAt |
              std::uint64_t{i.destination} * form.destination_low | a * form.a_low | b * form.b_low |
              (i.immediate & form.immediate_mask) * form.immediate_low,
          form.fixed.high | signs.high | form.modifiers[i.modifier] | a * form.a_high | b * form.b_high |
              c * form.c_high | std::uint64_t{i.predicate} * form.predicate_high |
              std::uint64_t{i.condition} * form.condition_high | bitsOf(i.control)};
}

/// Adds a branch's offset, in bytes from the next instruction, to its other fields.
void setBranchOffset(Word& word, std::uint32_t offset, unsigned architecture) noexcept;
/// Adds what was encoded as 0 because it depends on the instruction that comes next.
constexpr void setStall(Word& word, unsigned stall, bool yield) noexcept {
  word.high |= bitsOf({.stall = static_cast<std::uint8_t>(stall), .yield = yield, .write_barrier = 0, .read_barrier = 0});
}

}  // namespace srjit::sass

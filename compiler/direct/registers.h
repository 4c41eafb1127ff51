// Numbers of values, predicates and machine registers, those with one meaning in the whole kernel, and the constants
// that instructions on them have. Internal to the direct tier.
#pragma once

#include <cstdint>

#include "compiler/sass/instruction.h"
#include "ir/numeric.h"

namespace srjit::direct {

/// A value of 32 bits that one operation defines, or, below 256, a machine register (sass::kZero is RZ). A result of 64
/// or 128 bits is 2 or 4 values with adjacent numbers. A pair is read as a whole, by its first number. Of four values,
/// each is read separately, or two as a pair (Code::bindToLower()). A double is a pair.
using ValueId = std::uint32_t;
inline constexpr ValueId kFirstValue = 256;
inline constexpr ValueId kRz = sass::kZero;

/// A truth value per lane: 2 * number, plus 1 for its negation. Numbers below 8 are machine predicates.
using PredicateId = std::uint16_t;
inline constexpr PredicateId kFirstPredicate = 8;
constexpr PredicateId machinePredicate(unsigned number) { return static_cast<PredicateId>(2 * number); }
constexpr PredicateId opposite(PredicateId predicate) { return predicate ^ 1; }
inline constexpr PredicateId kAlways = machinePredicate(sass::kTrue);

/// Registers that a number of a precision takes.
constexpr unsigned widthOf(Precision precision) { return isDouble(precision) ? 2 : 1; }

/// Truth tables of LOP3, by its operands a, b and c.
inline constexpr std::uint8_t kLutAnd = 0xc0;     ///< a & b
inline constexpr std::uint8_t kLutOr = 0xfc;      ///< a | b
inline constexpr std::uint8_t kLutXorAnd = 0x48;  ///< (a ^ c) & b
/// The sign of a float, and of the upper word of a double.
inline constexpr std::uint32_t kSignBit = 0x80000000;

/// The step of a row within its row group: these bits of its number. kLastStep is their value in the fourth step.
inline constexpr std::uint32_t kStepMask = 96, kLastStep = 96;

/// Machine registers that keep one meaning in the whole kernel.
namespace fixed {
inline constexpr ValueId kRow = 0;             ///< the row of the lane
inline constexpr ValueId kOutput = 1;          ///< losses: the output that the lane writes
inline constexpr ValueId kNumbers = 2;         ///< pair: address of the group's numbers
inline constexpr ValueId kOutputs = 4;         ///< predictions: pair: address of the group's outputs
inline constexpr ValueId kFirstSum = 4;        ///< losses: SumRegisters
inline constexpr ValueId kFirstArgument = 58;  ///< subroutines: two arguments; the first becomes the result
inline constexpr ValueId kReturn = 60;  ///< subroutines: pair: where it returns to, in bytes from the group's start
inline constexpr PredicateId kBit0 = machinePredicate(0), kBit1 = machinePredicate(1);  ///< losses: bits of the lane
inline constexpr PredicateId kExists = machinePredicate(2);                             ///< whether the row exists
}  // namespace fixed

/// Registers of the values of subroutines, which other code does not use where there are subroutines.
inline constexpr unsigned kFirstOfSubroutines = 44, kRegistersOfSubroutines = 14;

/// Machine predicates that are free for values.
inline constexpr unsigned kFirstFreePredicate = 3, kFreePredicates = 4;

}  // namespace srjit::direct

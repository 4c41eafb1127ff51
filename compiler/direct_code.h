// Instructions over values: what selection makes, and what scheduling and allocation turn into machine instructions.
// Internal to the direct tier.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "compiler/sass.h"

namespace srjit::direct {

/// A value of 32 bits that one instruction defines, or, below 256, a machine register (sass::kZero is RZ). A result of
/// 64 or 128 bits is 2 or 4 values with adjacent numbers.
using ValueId = std::uint32_t;
inline constexpr ValueId kFirstValue = 256;
inline constexpr ValueId kRz = sass::kZero;

/// A truth value of each lane: twice a number, plus 1 for its opposite. Numbers below 8 are machine predicates.
using PredicateId = std::uint16_t;
inline constexpr PredicateId kFirstPredicate = 8;
constexpr PredicateId machinePredicate(unsigned number) { return static_cast<PredicateId>(2 * number); }
constexpr PredicateId opposite(PredicateId predicate) { return predicate ^ 1; }
inline constexpr PredicateId kAlways = machinePredicate(sass::kTrue);

/// An instruction before registers are known; fields as in sass::Instruction.
struct Operation {
  sass::Form form = sass::Form::kNop;
  std::uint8_t modifier = 0;
  std::uint8_t negated = 0;
  std::uint8_t magnitude = 0;
  PredicateId guard = kAlways;
  PredicateId condition = kAlways;
  PredicateId predicate = kAlways;  ///< written; kAlways: none
  bool synchronized = false;        ///< everything before it has finished when it is issued: branches and their targets
  ValueId destination = kRz;
  std::array<ValueId, 3> sources = {kRz, kRz, kRz};
  std::uint32_t immediate = 0;  ///< for branches, the operation that is the target
};

/// A list of operations and how often each value is used.
class Code {
 public:
  void clear();

  /// `count` adjacent values.
  ValueId newValues(unsigned count = 1);
  PredicateId newPredicate() { return static_cast<PredicateId>(2 * predicates_++); }
  /// Appends; returns where. Counts uses.
  std::uint32_t append(const Operation& operation);
  /// Puts an operation where a Nop was appended.
  void place(std::uint32_t at, const Operation& operation);

  /// Appends an operation with one new result, of `width` values.
  ValueId value(Operation operation, unsigned width = 1);
  /// Appends a comparison.
  PredicateId truth(Operation operation);

  std::uint32_t size() const { return static_cast<std::uint32_t>(operations_.size()); }
  std::vector<Operation>& operations() { return operations_; }
  const std::vector<Operation>& operations() const { return operations_; }
  std::size_t valueCount() const { return uses_.size(); }
  std::size_t predicateCount() const { return predicates_; }
  /// Uses of value kFirstValue + i, and the operation that defines it.
  const std::vector<std::uint32_t>& uses() const { return uses_; }
  const std::vector<std::uint32_t>& definitions() const { return definitions_; }
  /// The same for predicates, from kFirstPredicate on.
  const std::vector<std::uint32_t>& predicateUses() const { return predicate_uses_; }
  const std::vector<std::uint32_t>& predicateDefinitions() const { return predicate_definitions_; }

 private:
  void count(const Operation& operation, std::uint32_t at);

  std::vector<Operation> operations_;
  std::vector<std::uint32_t> uses_, predicate_uses_;
  std::vector<std::uint32_t> definitions_, predicate_definitions_;
  std::size_t predicates_ = kFirstPredicate;
};

/// What is asked of a form for every operation.
struct FormFacts {
  sass::Pipe pipe;
  sass::Timing timing;
  std::uint8_t latency;
  std::uint8_t results;                 ///< registers
  std::array<std::uint8_t, 3> sources;  ///< registers of each
};
inline constexpr auto kFormFacts = [] {
  using enum sass::Pipe;
  using enum sass::Timing;
#define SRJIT_WIDTHS(a, b, c) {a, b, c}
#define SRJIT_SASS(id, name, low, high, slots, pipe, timing, latency, results, widths, ...) \
  FormFacts{pipe, timing, latency, results, SRJIT_WIDTHS widths},
  return std::array{
#include "compiler/sass.def"
  };
#undef SRJIT_SASS
#undef SRJIT_WIDTHS
}();
constexpr const FormFacts& factsOf(sass::Form form) { return kFormFacts[static_cast<std::size_t>(form)]; }

/// Machine registers that keep one meaning in the whole kernel.
namespace fixed {
inline constexpr ValueId kRow = 0;                       ///< of the lane
inline constexpr ValueId kOutput = 1;                    ///< losses: the output that the lane writes
inline constexpr ValueId kNumbers = 2;                   ///< pair: where the group's numbers begin
inline constexpr ValueId kOutputs = 4;                   ///< predictions: pair: where the group's outputs begin
inline constexpr ValueId kPrevious = 4, kFirstHalf = 5;  ///< losses: sums of earlier steps
inline constexpr ValueId kPreviousWeight = 6, kFirstHalfWeight = 7;  ///< the same for weights of valid rows
inline constexpr ValueId kCounts = 8;                                ///< 8 registers of 4 counts of valid rows each
inline constexpr PredicateId kBit0 = machinePredicate(0), kBit1 = machinePredicate(1);  ///< losses: bits of the lane
inline constexpr PredicateId kExists = machinePredicate(2);                             ///< whether the row exists
}  // namespace fixed

/// Machine predicates that are free for values.
inline constexpr unsigned kFirstFreePredicate = 3, kFreePredicates = 4;

}  // namespace srjit::direct

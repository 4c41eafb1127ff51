// Instructions over values: the output of selection and the input of scheduling and allocation. Internal to the direct
// tier.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "compiler/direct/registers.h"
#include "compiler/sass/instruction.h"

namespace srjit::direct {

/// The kind of an operation: the rows of instructions.def, by the numbers of sass::Form, then the rows of pairs.def.
enum class Opcode : std::uint8_t {
#define SRJIT_SASS(id, ...) k##id,
#include "compiler/sass/instructions.def"
#undef SRJIT_SASS
#define SRJIT_PAIR(id, ...) k##id,
#define SRJIT_HALF(id, ...) k##id,
#include "compiler/direct/pairs.def"
#undef SRJIT_PAIR
#undef SRJIT_HALF
};
constexpr Opcode opcodeOf(sass::Form form) { return static_cast<Opcode>(form); }

/// An instruction, or two, before registers are known; fields as in sass::Instruction.
struct Operation {
  Opcode opcode = Opcode::kNop;
  std::uint8_t modifier = 0;
  std::uint8_t negated = 0;
  std::uint8_t magnitude = 0;
  PredicateId guard = kAlways;
  PredicateId condition = kAlways;
  PredicateId predicate = kAlways;  ///< the predicate written; kAlways: none
  bool synchronized = false;        ///< issued after all earlier operations have finished: branches and their targets
  bool in_place = false;  ///< only if `synchronized`: the result takes the first source's registers, at its last read
  ValueId destination = kRz;
  std::array<ValueId, 3> sources = {kRz, kRz, kRz};
  std::uint32_t immediate = 0;  ///< of branches and calls, the target operation; of MovPairI, a wideLiteral()
};

/// The properties of an opcode that every operation needs.
struct alignas(8) OpcodeFacts {
  sass::Pipe pipe;
  sass::Timing timing;
  std::uint8_t latency;
  std::uint8_t results;                 ///< registers
  std::array<std::uint8_t, 3> sources;  ///< registers of each
};
#define SRJIT_WIDTHS(a, b, c) {a, b, c}
inline constexpr auto kInstructionFacts = [] {
  using enum sass::Pipe;
  using enum sass::Timing;
#define SRJIT_SASS(id, name, modifiers, operands, low, high, slots, pipe, timing, latency, results, widths, ...) \
  OpcodeFacts{pipe, timing, latency, results, SRJIT_WIDTHS widths},
  return std::array{
#include "compiler/sass/instructions.def"
  };
#undef SRJIT_SASS
}();
/// Rows of pairs.def.
inline constexpr std::size_t kPairs = 0
#define SRJIT_PAIR(...) +1
#define SRJIT_HALF(...) +1
#include "compiler/direct/pairs.def"
#undef SRJIT_PAIR
#undef SRJIT_HALF
    ;
inline constexpr auto kOpcodeFacts = [] {
  std::array<OpcodeFacts, kInstructionFacts.size() + kPairs> all{};
  auto next = std::ranges::copy(kInstructionFacts, all.begin()).out;
  const auto addPair = [&](sass::Form lower, std::uint8_t results, const std::array<std::uint8_t, 3>& sources) {
    *next = kInstructionFacts[static_cast<std::size_t>(lower)];
    next->results = results;
    next->sources = sources;
    ++next;
  };
#define SRJIT_PAIR(id, lower, upper, results, widths) addPair(sass::Form::k##lower, results, {SRJIT_WIDTHS widths});
#define SRJIT_HALF(id, form, half) addPair(sass::Form::k##form, 1, {2, 0, 0});
#include "compiler/direct/pairs.def"
#undef SRJIT_PAIR
#undef SRJIT_HALF
  return all;
}();
#undef SRJIT_WIDTHS
constexpr const OpcodeFacts& factsOf(Opcode opcode) { return kOpcodeFacts[static_cast<std::size_t>(opcode)]; }

/// A list of operations, with use counts of the values and predicates that they read.
class Code {
 public:
  /// A value or a predicate.
  struct Operand {
    std::int32_t reads = -1;  ///< remaining reads minus 1: negative from the last read on. Never negative for machine
                              ///< registers and predicates
    std::uint32_t place = 0;  ///< the register or predicate: a machine one is itself, others are set by the allocator
  };

  Code() { clear(); }
  void clear() {
    operations_.clear();
    wide_literals_.clear();
    setMachineOperands(values_, kFirstValue);
    setMachineOperands(truths_, kFirstPredicate);
    is_too_long_ = false;
  }

  /// `count` adjacent values.
  ValueId newValues(unsigned count = 1) {
    const auto first = static_cast<ValueId>(values_.size());
    for (unsigned i = 0; i < count; ++i) values_.emplace_back();
    return first;
  }
  /// Appends; returns the index.
  [[gnu::always_inline]] std::uint32_t append(const Operation& operation) {
    countReads(operation);
    operations_.push_back(operation);
    return size() - 1;
  }
  /// Replaces an appended Nop by an operation.
  void place(std::uint32_t at, const Operation& operation) {
    countReads(operation);
    operations_[at] = operation;
  }
  /// Marks the second or fourth of four values as the upper half of a pair, with the live range of the lower half.
  void bindToLower(ValueId upper) { values_[upper].reads = 0; }
  /// Appends an operation with one new result, of `width` values.
  [[gnu::always_inline]] ValueId value(const Operation& operation, unsigned width = 1) {
    const ValueId result = newValues(width);
    countReads(operation);
    operations_.emplace_back(operation).destination = result;
    return result;
  }
  /// The number of a literal of 64 bits, for MovPairI.
  std::uint32_t wideLiteral(std::uint64_t bits) {
    wide_literals_.push_back(bits);
    return static_cast<std::uint32_t>(wide_literals_.size() - 1);
  }
  std::uint64_t wideLiteralAt(std::uint32_t number) const { return wide_literals_[number]; }
  /// Appends a comparison. Beyond kMostTruths it appends nothing and sets isTooLong(): the code must be discarded.
  [[gnu::always_inline]] PredicateId truth(const Operation& operation) {
    if (truths_.size() == kMostTruths) {
      is_too_long_ = true;
      return static_cast<PredicateId>(2 * (kMostTruths - 1));
    }
    const auto result = static_cast<PredicateId>(2 * truths_.size());
    truths_.emplace_back();
    countReads(operation);
    operations_.emplace_back(operation).predicate = result;
    return result;
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(operations_.size()); }
  Operation& operation(std::uint32_t at) { return operations_[at]; }
  const Operation& operation(std::uint32_t at) const { return operations_[at]; }
  const std::vector<Operand>& values() const { return values_; }  ///< by ValueId
  const std::vector<Operand>& truths() const { return truths_; }  ///< by predicate number
  bool isTooLong() const { return is_too_long_; }

 private:
  // Machine registers are counted as values are, since a branch on the kind of operand predicts badly.
  [[gnu::always_inline]] void countReads(const Operation& operation) {
    for (const ValueId source : operation.sources) ++values_[source].reads;
    if (operation.guard != kAlways) ++truths_[operation.guard / 2].reads;
    if (operation.condition != kAlways) ++truths_[operation.condition / 2].reads;
  }

  static void setMachineOperands(std::vector<Operand>& operands, std::uint32_t count) {
    constexpr std::int32_t kForEver = 1 << 30;
    operands.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) operands[i] = {kForEver, i};
  }

  static constexpr std::size_t kMostTruths = kFirstPredicate + 32'000;  // a PredicateId has 16 bits, one of them a sign
  std::vector<Operation> operations_;
  std::vector<Operand> values_, truths_;
  std::vector<std::uint64_t> wide_literals_;
  bool is_too_long_ = false;
};

/// The sections of a loop over steps; only the middle may be reordered.
struct Sections {
  std::uint32_t middle, tail;         ///< indices of their first operations
  bool has_branches = false;          ///< in the middle, which then must not be reordered either
  std::uint32_t subroutines = kNone;  ///< index of their first operation, after the loop; kNone: there are none

  static constexpr std::uint32_t kNone = ~0U;
};

}  // namespace srjit::direct

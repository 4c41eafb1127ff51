// The terms of a loss and their sums over lanes and steps. Internal to the direct tier.
#pragma once

#include <array>

#include "compiler/direct/code.h"
#include "compiler/direct/registers.h"
#include "compiler/direct/value.h"
#include "compiler/target/architecture.h"
#include "ir/numbers/loss_sums.h"

namespace srjit::direct {

/// Whether lanes count the rows of their root, and sum the weights of these, beside its term. Of moments both are items
/// as the terms are (directItems()).
constexpr bool countsRows(const LossSpec& spec) { return spec.skip_invalid && !isOfMoments(spec.term); }
constexpr bool weighsRows(const LossSpec& spec) { return countsRows(spec) && spec.weighted; }

/// Registers of a loss that are live from one step to the next.
struct SumRegisters {
  explicit constexpr SumRegisters(unsigned width)
      : first_half(previous + width),
        previous_weight(previous + 2 * width),
        first_half_weight(previous + 3 * width),
        counts(previous + 4 * width) {}

  ValueId previous = fixed::kFirstSum, first_half;  ///< sums of earlier steps
  ValueId previous_weight, first_half_weight;       ///< the same for weights of valid rows
  ValueId counts;                                   ///< 8 registers of 4 counts of valid rows each
};

/// Loads arguments of the kernel.
class KernelArguments {
 public:
  explicit KernelArguments(unsigned architecture) : first_(architectureOf(architecture).parameters) {}
  /// The u32, or the pair, at a byte offset in DirectArguments.
  ValueId load(Code& code, std::size_t offset) const { return code.value(loadOf(Opcode::kLdc, offset)); }
  ValueId loadPair(Code& code, std::size_t offset) const { return code.value(loadOf(Opcode::kLdc64, offset), 2); }

 private:
  Operation loadOf(Opcode opcode, std::size_t offset) const {
    return {.opcode = opcode, .immediate = first_ + static_cast<std::uint32_t>(offset)};
  }
  std::uint32_t first_;
};

ValueId andWith(Code& code, ValueId x, std::uint32_t mask);
PredicateId compareWith(Code& code, sass::Compare how, ValueId x, std::uint32_t number);
/// The pair base + x * y, for unsigned x and y.
ValueId addressOf(Code& code, ValueId base, ValueId x, ValueId y);
ValueId addressTimes(Code& code, ValueId base, ValueId x, std::uint32_t y);
/// Loads one register, or a pair.
ValueId loadAt(Code& code, ValueId address, unsigned width);
/// Assigns to a reserved register, or pair.
void moveTo(Code& code, ValueId fixed, ValueId x, unsigned width = 1, PredicateId guard = kAlways);

/// Sums over the lanes of a warp of up to 32 items per lane, in the tree of loss.h: at level k, pairs of items are
/// exchanged between lanes whose numbers differ in bit k, and each lane keeps the sum of one item of the pair. In the
/// end lane l has the sum of item l. Integers may skip the first levels: then lanes that differ only in these bits
/// have the same sum.
class Butterfly {
 public:
  /// Items are added by `add`: FADD, DADD, whose items are pairs, or IADD3.
  void begin(Opcode add, unsigned first_level);
  void push(Code& code, ValueId item);
  /// The sum of the lane.
  ValueId finish(Code& code);

 private:
  static constexpr unsigned kLevels = 5;
  ValueId exchange(Code& code, unsigned level, ValueId even, ValueId odd) const;
  /// The value of the lane whose number differs in that bit.
  ValueId receive(Code& code, unsigned level, ValueId x) const;
  unsigned width() const { return add_ == Opcode::kDAddRR ? 2 : 1; }
  ValueId addNeighbour(Code& code, unsigned level, ValueId x) const { return add(code, x, receive(code, level, x)); }
  ValueId add(Code& code, ValueId x, ValueId y) const {
    return code.value({.opcode = add_, .sources = {x, y, kRz}}, width());
  }

  Opcode add_ = Opcode::kFAddRR;
  unsigned first_level_ = 0;
  std::array<ValueId, kLevels + 1> waiting_{};  ///< kRz: none
};

class LossSelector {
 public:
  /// A number takes `width` registers.
  LossSelector(const std::optional<LossSpec>& spec, unsigned width, const KernelArguments& arguments)
      : spec_(spec.value_or(LossSpec{})), arguments_(arguments), width_(width), kept_(width) {}

  /// Begins a step: loads the arguments that loadRow() needs.
  void loadArguments(Code& code);
  /// Loads the target and the weight of the row with number `row`.
  void loadRow(Builder& builder, ValueId row);
  /// Adds the items of the next root.
  void add(Builder& builder, const Value& prediction);
  /// Ends a step, and, after the fourth, stores the sums.
  void emitTail(Code& code);

 private:
  void addMoments(Builder& builder, const Value& prediction, PredicateId counts);
  ValueId addSteps(Code& code, ValueId sum, ValueId previous, ValueId first_half) const;
  ValueId countOf(Code& code) const;
  void store(Code& code, ValueId sum, std::size_t pointer, PredicateId writes) const;

  LossSpec spec_;
  KernelArguments arguments_;
  unsigned width_;
  SumRegisters kept_;
  unsigned items_ = 0;
  ValueId targets_ = kRz, all_weights_ = kRz;  ///< pairs: start addresses
  ValueId centre_ = kRz;                       ///< of the target, of moments
  ValueId target_ = kRz, weight_ = kRz;        ///< of the current row; of moments, the target less its centre
  Butterfly terms_, weights_;
};

}  // namespace srjit::direct

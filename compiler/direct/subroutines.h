// Operators whose code is a subroutine of their group. Internal to the direct tier.
//
// A logarithm of `precise` takes forty instructions, and a group has many logarithms. Inlined, the loop of a group does
// not fit into the instruction cache, and warps wait for instructions (docs/history/experiments.md). As a subroutine
// the logarithm is written once, after the loop: a call moves the operands to fixed registers and the return address to
// another, and branches. The values of a subroutine are in registers of their own, and at a call no predicate is live,
// so nothing is saved. At a call and at a return all earlier instructions have finished.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/direct/emitter.h"
#include "compiler/direct/value.h"
#include "ir/ops.h"

namespace srjit::direct {

class Subroutines {
 public:
  /// None, unless the options ask for them.
  explicit Subroutines(const DirectOptions& options);

  /// Whether the operator is called.
  bool has(Op op) const { return lengths_ != nullptr && (*lengths_)[static_cast<std::size_t>(op)] >= kShortest; }
  /// Forgets the calls of the last group.
  void begin() { calls_.clear(); }
  /// Appends a call of an operator that is called. Operands past its arity are ignored.
  Value call(Builder& builder, Op op, const std::array<Value, kMaxArity>& operands);
  /// Appends the code of the operators that were called, once each.
  void emit(Code& code);

 private:
  /// Instructions of each operator.
  using Lengths = std::vector<std::uint32_t>;
  static const Lengths& lengthsOf(Math math);
  /// Instructions from which on an operator is called. A call takes five or six. (On an H200, in `precise`, 10 and 16
  /// were equally fast, and 20 was slower; in `fast`, 10 was slower, where only powers are as long.)
  static constexpr std::uint32_t kShortest = 16;

  const Lengths* lengths_ = nullptr;
  Math math_;
  struct Call {
    Op op;
    std::uint32_t at;  ///< the index of the operation
  };
  std::vector<Call> calls_;
};

}  // namespace srjit::direct

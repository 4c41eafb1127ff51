#include "compiler/direct/subroutines.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "compiler/direct/registers.h"

namespace srjit::direct {
namespace {

constexpr int kMostArguments = 2;

/// Assigns a number with its sign and magnitude, or a literal, to a register.
void moveNumber(Builder& builder, ValueId fixed, const Value& x) {
  Code& code = builder.code();
  const std::uint32_t before = code.size();
  const ValueId plain = builder.plain(x);
  if (code.size() > before) {
    code.operation(code.size() - 1).destination = fixed;
  } else {
    code.append({.opcode = Opcode::kMovR, .destination = fixed, .sources = {plain, kRz, kRz}});
  }
}

}  // namespace

Subroutines::Subroutines(const DirectOptions& options) : math_(options.math) {
  if (options.subroutines) lengths_ = &lengthsOf(options.math);
}

const Subroutines::Lengths& Subroutines::lengthsOf(Math math) {
  static const std::array<Lengths, std::size(kMathModes)> kLengths = [] {
    std::array<Lengths, std::size(kMathModes)> all;
    for (const Math mode : kMathModes) {
      for (std::size_t i = 0; i < allOps().size(); ++i) {
        const Op op = static_cast<Op>(i);
        Code code;
        Builder builder(code, mode, Precision::kF32);
        std::array<Value, kMaxArity> operands;
        for (Value& operand : operands) operand = Value(code.newValues(), builder);
        builder.apply(op, operands);
        all[static_cast<std::size_t>(mode)].push_back(arityOf(op) > kMostArguments ? 0 : code.size());
      }
    }
    return all;
  }();
  return kLengths[static_cast<std::size_t>(math)];
}

Value Subroutines::call(Builder& builder, Op op, const std::array<Value, kMaxArity>& operands) {
  Code& code = builder.code();
  for (int i = 0; i < arityOf(op); ++i) {
    moveNumber(builder, fixed::kFirstArgument + static_cast<ValueId>(i), operands[static_cast<std::size_t>(i)]);
  }
  calls_.push_back({op, code.append({.opcode = Opcode::kCall, .synchronized = true, .destination = fixed::kReturn})});
  return {code.value({.opcode = Opcode::kMovR, .sources = {fixed::kFirstArgument, kRz, kRz}}), builder};
}

void Subroutines::emit(Code& code) {
  Builder builder(code, math_, Precision::kF32, Quotients::kTwoWays);
  std::ranges::sort(calls_, {}, [](const Call& call) { return std::pair(call.op, call.at); });
  for (std::size_t i = 0; i < calls_.size();) {
    const Op op = calls_[i].op;
    const std::uint32_t entry = code.size();
    std::array<Value, kMaxArity> operands;
    for (int a = 0; a < arityOf(op); ++a) {
      operands[static_cast<std::size_t>(a)] = Value(fixed::kFirstArgument + static_cast<ValueId>(a), builder);
    }
    const Value result = builder.apply(op, operands);
    Operation& last = code.operation(code.size() - 1);
    const bool is_last = !result.isNegated() && !result.isMagnitude() && last.destination == result.id();
    is_last ? void(last.destination = fixed::kFirstArgument) : moveNumber(builder, fixed::kFirstArgument, result);
    code.append({.opcode = Opcode::kBrx, .synchronized = true, .sources = {fixed::kReturn, kRz, kRz}});
    code.operation(entry).synchronized = true;
    for (; i < calls_.size() && calls_[i].op == op; ++i) code.operation(calls_[i].at).immediate = entry;
  }
}

}  // namespace srjit::direct

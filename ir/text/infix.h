// The operators that infix writes as signs, and how tightly each binds.
#pragma once

#include <array>
#include <string_view>

#include "ir/ops.h"

namespace srjit::text {

/// Levels of the infix grammar (text.h), loosest first.
enum Level : int { kSum = 1, kTerm = 2, kUnary = 3, kPower = 4, kAtom = 5 };

/// One sign: its own level, and the loosest levels that its operands may have without parentheses.
struct Sign {
  std::string_view text;
  Op op;
  Level level, left, right;
};

/// '-' before an operand is kNegation; the others stand between two.
inline constexpr Sign kNegation = {"-", Op::kNeg, kUnary, kUnary, kUnary};
inline constexpr std::array<Sign, 6> kSigns = {{
    {"+", Op::kAdd, kSum, kSum, kTerm},
    {"-", Op::kSub, kSum, kSum, kTerm},
    {"*", Op::kMul, kTerm, kTerm, kUnary},
    {"/", Op::kDiv, kTerm, kTerm, kUnary},
    {"^", Op::kPow, kPower, kAtom, kUnary},
    {"**", Op::kPow, kPower, kAtom, kUnary},
}};

/// The sign that writes `op`, nullptr if a call does.
constexpr const Sign* findSign(Op op) {
  if (op == kNegation.op) return &kNegation;
  for (const Sign& sign : kSigns) {
    if (sign.op == op) return &sign;
  }
  return nullptr;
}

}  // namespace srjit::text

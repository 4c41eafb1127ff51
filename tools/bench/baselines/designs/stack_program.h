// Tokens of the baselines' stack interpreter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/expression.h"

namespace srjit {

/// A token of an expression in postfix order, in 8 bytes.
struct StackToken {
  /// Codes of operands. Those of operators are kFirstOp + baselineOpNumber().
  enum Code : std::uint32_t { kConstant = 0, kVariable = 1, kParameter = 2, kCached = 3, kFirstOp = 4 };

  std::uint32_t code;
  std::uint32_t value;  ///< bits of a constant; number of a column, parameter or cached column

  friend bool operator==(const StackToken&, const StackToken&) = default;
};

/// Capacity of the interpreter's stack, in values.
inline constexpr std::size_t kStackEntries = 64;

/// Concatenated programs: program i has the tokens [offsets[i], offsets[i + 1]).
struct StackPrograms {
  std::vector<StackToken> tokens;
  std::vector<std::uint32_t> offsets = {0};

  void endProgram() { offsets.push_back(static_cast<std::uint32_t>(tokens.size())); }
  std::size_t size() const noexcept { return offsets.size() - 1; }
};

/// The stack token of `token`, whose expression's parameters start at index `first_parameter`. Throws BenchFailure for
/// an operator that the baselines lack.
StackToken stackToken(const Token& token, std::uint32_t first_parameter);

/// A program for each expression. Throws BenchFailure as above, and for an expression that exceeds the stack.
StackPrograms stackPrograms(std::span<const Expression> expressions);

/// Throws BenchFailure (kUnsupported) if the expression needs more than kStackEntries values at once.
void checkStackHeight(const Expression& expression);

}  // namespace srjit

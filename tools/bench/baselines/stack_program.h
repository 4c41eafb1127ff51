// Tokens of the baselines' stack interpreter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/expression.h"

namespace srjit {

/// 8 bytes of an expression in postfix order.
struct StackToken {
  /// What stands before the operators, whose codes are kFirstOp + baselineOpNumber().
  enum Code : std::uint32_t { kConstant = 0, kVariable = 1, kParameter = 2, kCached = 3, kFirstOp = 4 };

  std::uint32_t code;
  std::uint32_t value;  ///< bits of a constant; number of a column, parameter or cached column

  friend bool operator==(const StackToken&, const StackToken&) = default;
};

/// The most values that the interpreter's stack holds.
inline constexpr std::size_t kStackEntries = 64;

/// Programs one after another: program i has the tokens from offsets[i] to offsets[i + 1].
struct StackPrograms {
  std::vector<StackToken> tokens;
  std::vector<std::uint32_t> offsets = {0};

  void endProgram() { offsets.push_back(static_cast<std::uint32_t>(tokens.size())); }
  std::size_t size() const noexcept { return offsets.size() - 1; }
};

/// The first parameter of each expression among those of all, and their number.
std::vector<std::uint32_t> parameterOffsets(std::span<const Expression> expressions);

/// A token whose expression has its parameters from number `first_parameter` on. Throws BenchFailure for an operator
/// that the baselines lack.
StackToken stackToken(const Token& token, std::uint32_t first_parameter);

/// A program for each expression. Throws BenchFailure as above, and for an expression that needs a higher stack.
StackPrograms stackPrograms(std::span<const Expression> expressions);

/// Throws BenchFailure (kUnsupported) if the expression needs more than kStackEntries values at once.
void checkStackHeight(const Expression& expression);

}  // namespace srjit

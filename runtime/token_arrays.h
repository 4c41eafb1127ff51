// Expressions as token arrays that own their memory: what bindings and the command make of texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/error.h"
#include "ir/expression.h"
#include "ir/population.h"
#include "ir/text.h"
#include "runtime/results.h"

namespace srjit {

/// Expressions in postfix, one behind another. One that could not be read has no tokens, and a failure.
struct TokenArrays {
  std::vector<std::int32_t> codes = {};
  std::vector<double> constants = {};
  std::vector<std::int64_t> offsets = {0};
  std::vector<Failure> failures = {};  ///< in order of expression

  /// Reads texts. Errors are those of parse(), as failures.
  static TokenArrays parse(std::span<const std::string> texts, Language language, const ColumnNames& columns);
  /// A copy, in postfix, of arrays that checkArrays() accepts. Expressions that are not valid are failures.
  static TokenArrays copy(const PopulationView& population);

  std::size_t size() const noexcept { return offsets.size() - 1; }
  /// Valid until something is added.
  PopulationView view() const noexcept { return {codes, constants, offsets, Notation::kPostfix}; }
  /// Expression `e`. Errors: kInvalid if there is none; its failure.
  Result<Expression> expression(std::size_t e) const;

  void add(std::span<const Token> tokens);
  void addFailure(Error error);
};

/// The failures of a program, or of its evaluations, with those of the texts that it was made of in place of what is
/// said of expressions without tokens. Both are in order of expression.
std::vector<Failure> withFailuresOfTexts(std::vector<Failure> failures, std::span<const Failure> texts);

}  // namespace srjit

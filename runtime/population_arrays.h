// Expressions as token arrays that own their memory: what bindings and the command make of texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "ir/expression.h"
#include "ir/numeric.h"
#include "ir/population.h"
#include "ir/text.h"
#include "runtime/results.h"

namespace srjit {

class Deadline;

/// As PopulationArrays::explained(), of `expressions` expressions, with the failures of reading them.
std::vector<Failure> explainFailures(std::vector<Failure> of_program, std::size_t expressions,
                                     std::span<const Failure> of_reading);

/// Expressions in postfix, one behind another. One that could not be read has no tokens, and a failure.
struct PopulationArrays {
  std::vector<std::int32_t> codes = {};
  std::vector<double> constants = {};
  std::vector<std::int64_t> offsets = {0};
  std::vector<Failure> failures = {};  ///< in order of expression

  /// Reads texts. Errors are those of parse(), as failures.
  static PopulationArrays parse(std::span<const std::string> texts, Language language, const ColumnNames& columns,
                                std::size_t max_nodes = 0);
  /// A copy, in postfix, of arrays that checkArrays() accepts. Expressions that are not valid are failures, and so are
  /// those of more than `max_nodes` tokens, unless that is 0.
  static PopulationArrays copy(const PopulationView& population, std::size_t max_nodes = 0);

  std::size_t size() const noexcept { return offsets.size() - 1; }
  /// Valid until something is added.
  PopulationView view() const noexcept { return {codes, constants, offsets, Notation::kPostfix}; }
  /// Expression `e`. Errors: kInvalid if there is none; its failure.
  Result<Expression> expression(std::size_t e) const;

  /// The failures of a program of these arrays, or of its evaluations, also with several vectors of parameters: for
  /// each expression that failed the first, and for an expression without tokens the failure of reading it.
  std::vector<Failure> explained(std::vector<Failure> of_program) const {
    return explainFailures(std::move(of_program), size(), failures);
  }

  /// The expressions as simplify() gives them; failures stay.
  PopulationArrays simplified(Math math) const;
  /// The same. Throws an ErrorException (kLimit) if the deadline is over before one of them.
  PopulationArrays simplified(Math math, const Deadline& deadline) const;

  void add(std::span<const Token> tokens);
  void addFailure(Error error);
};

}  // namespace srjit

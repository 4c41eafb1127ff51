// Makes explanations.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/error.h"
#include "ir/expression.h"
#include "ir/text.h"
#include "passes/pass.h"
#include "tools/explain/explanation.h"

namespace srjit::explain {

/// All expressions together have at most so many tokens: more make a page that nobody can read.
inline constexpr std::size_t kMostTokens = 200;

struct Request {
  std::vector<Expression> expressions;          ///< at least one
  std::vector<std::string> texts;               ///< infix, of each
  std::vector<std::vector<double>> parameters;  ///< of each; those missing are 1
  ColumnNames columns;                          ///< of the texts
  std::vector<std::vector<double>> data;        ///< by variable; empty: a sample is drawn
  Precision precision = Precision::kF32;
  Math math = Math::kPrecise;
  std::string architecture;  ///< of the GPU's code
  Pipeline pipeline;

  bool times = true;  ///< measure
};

/// What is made of the expressions. What this machine or build has not is a notice. Errors: kInvalid for more than
/// kMostTokens tokens, data with too few columns, or texts that are not those of the expressions; those of an engine on
/// the processor, where times are measured.
Result<Explanation> explain(const Request& request);

}  // namespace srjit::explain

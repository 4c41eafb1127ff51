// What sr-jit makes of a few expressions, stage by stage: one JSON object, which docs/internals/explain.md describes
// member by member. `sr-jit explain` prints it, or text made of it, or a page that has it inside and draws it.
//
// Every node has one id in all stages: an operator the number that printDag() gives it (%3; NodeNumbers keeps it from
// graph to graph), a leaf its own text (x0, p0@1, 2.5). Expressions and rows count as in docs/command.md.
#pragma once

#include <string>
#include <vector>

#include "ir/error.h"
#include "ir/expression.h"
#include "ir/text.h"
#include "passes/pass.h"
#include "tools/json.h"

namespace srjit::explain {

/// The most tokens that all expressions have together: nobody can read a page of more.
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
  std::string version;  ///< of this program
  bool times = true;    ///< measure
};

/// Explains the expressions. A stage that this machine or build lacks is a notice. Errors: kInvalid for more
/// than kMostTokens tokens, data with too few columns, or texts of other expressions; those of an engine on the
/// processor, where times are measured.
Result<Json> explain(const Request& request);

/// An explanation as text. A comment behind a line says what its nodes are, as "; %6 = sin x0".
std::string asText(const Json& explanation);

/// An explanation as JSON text, with `indent` over many lines. Bytes that are not UTF-8 become U+FFFD.
std::string asJson(const Json& explanation, bool indent);

/// A page of HTML that needs no network and no other file, with asJson() in it.
std::string asPage(const Json& explanation);

}  // namespace srjit::explain

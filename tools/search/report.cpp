#include "tools/search/report.h"

#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "ir/text/latex.h"
#include "ir/text/words.h"
#include "tools/search/formulas/rounding.h"

namespace srjit::search {
namespace {

/// A field of a table: in quotes where it has to be.
std::string csvField(std::string field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string quoted = "\"";
  for (const char c : field) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string exactText(double value) { return text::numberText(value, Precision::kF64); }

}  // namespace

std::string csvText(const Front& front, const ColumnNames& columns) {
  std::string out = "complexity,loss,held_out,evidence,bic,r2,formula\n";
  const auto cell = [](double value) { return std::isnan(value) ? "" : fmt::format("{:.6g}", value); };
  for (const Formula& formula : front.formulas()) {
    fmt::format_to(std::back_inserter(out), "{},{},{},{},{},{},{}\n", formula.complexity, exactText(formula.loss),
                   std::isnan(formula.held_out) ? "" : exactText(formula.held_out), cell(formula.evidence),
                   cell(formula.bic), cell(formula.r2), csvField(print(formula.expression, Language::kInfix, columns)));
  }
  return out;
}

Json frontJson(const Front& front, const ColumnNames& columns, const ChosenDetails* details,
               const GrammarOptions& options) {
  Json array = Json::array();
  for (const Formula& formula : front.formulas()) {
    array.push_back({{"complexity", formula.complexity},
                     {"loss", formula.loss},
                     {"held_out", formula.held_out},  // NaN and infinities become null
                     {"evidence", formula.evidence},
                     {"bic", formula.bic},
                     {"r2", formula.r2},
                     {"formula", print(formula.expression, Language::kInfix, columns)},
                     {"latex", text::latexText(formula.expression, columns)},
                     {"postfix", print(formula.expression, Language::kPostfix, columns)},
                     {"chosen", &formula == front.chosen()}});
    Json units = Json::array(), constants = Json::array();
    for (const Token& token : options.codata ? formula.expression.tokens() : std::span<const Token>()) {
      const auto physical = token.kind == Token::Kind::kConstant ? physicalNear(token.value, 0) : std::nullopt;
      if (physical) constants.push_back({{"value", token.value}, {"name", physical->name}});
    }
    if (options.codata) array.back()["constants"] = constants;
    if (options.units) {
      for (const auto& unit : options.units->ofConstants(formula.expression)) {
        units.push_back(unit ? Json(*unit) : Json());
      }
      array.back()["units"] = units;
    }
    if (details == nullptr || &formula != front.chosen()) continue;
    array.back()["standard_errors"] = details->uncertainty.standard_errors;
    array.back()["residual"] = details->uncertainty.residual;
    for (std::size_t c = 0; c < details->importances.size(); ++c) {
      array.back()["importances"][columns.empty() ? fmt::format("x{}", c) : columns[c]] = details->importances[c];
    }
  }
  return array;
}

std::string latexTable(const Front& front, const ColumnNames& columns) {
  std::string out = "\\begin{tabular}{rrl}\n\\hline\nComplexity & Loss & Formula \\\\\n\\hline\n";
  for (const Formula& formula : front.formulas()) {
    fmt::format_to(std::back_inserter(out), "{} & ${}$ & $\\displaystyle {}$ \\\\\n", formula.complexity,
                   text::latexNumber(fmt::format("{:.3g}", formula.loss)),
                   text::latexText(formula.expression, columns));
  }
  return out + "\\hline\n\\end{tabular}\n";
}

}  // namespace srjit::search

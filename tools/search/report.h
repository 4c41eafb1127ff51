// What a search tells of its front, as texts. All functions are thread-safe.
#pragma once

#include <string>
#include <vector>

#include "ir/text.h"
#include "tools/json.h"
#include "tools/search/formulas/front.h"
#include "tools/search/formulas/uncertainty.h"
#include "tools/search/grammar.h"

namespace srjit::search {

/// A table as RFC 4180 has it, with lines that end in '\n': complexity,loss,held_out,evidence,bic,r2,formula. Losses
/// read back as they are; evidence, BIC and R2 have six digits. A NaN is an empty cell, and the formula is infix.
std::string csvText(const Front& front, const ColumnNames& columns);

/// What data say of the chosen formula: uncertaintyOf() and importancesOf().
struct ChosenDetails {
  Uncertainty uncertainty;
  std::vector<double> importances;
};

/// An array of objects with `complexity`, `loss`, `held_out`, `evidence`, `bic` and `r2` (null in a text where they are
/// not finite), `formula` (infix), `latex`, `postfix` and `chosen` (Front::chosen()). With `details` the chosen formula
/// also has `standard_errors` and `residual` (null where they are NaN), and `importances` by name. With units in
/// `options` also `units`: those of the constants, by Dimensions::ofConstants(), null where there is none; with
/// `codata` also `constants`: objects with the `value` and the `name` of each physical constant.
Json frontJson(const Front& front, const ColumnNames& columns, const ChosenDetails* details = nullptr,
               const GrammarOptions& options = {});

/// A tabular of LaTeX, with the loss in three digits; needs the package amsmath.
std::string latexTable(const Front& front, const ColumnNames& columns);

}  // namespace srjit::search

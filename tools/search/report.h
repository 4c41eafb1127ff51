// What a search tells of its front: texts, and a picture that gnuplot draws. All functions are thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/error.h"
#include "ir/text.h"
#include "tools/search/formulas/front.h"
#include "tools/search/grammar.h"

namespace srjit::search {

/// A table as RFC 4180 has it, with lines that end in '\n': complexity,loss,held_out,evidence,bic,r2,formula. Losses
/// read back as they are; evidence, BIC and R2 have six digits. A NaN is an empty cell, and the formula is infix.
std::string csvText(const Front& front, const ColumnNames& columns);

/// An array of objects with `complexity`, `loss`, `held_out`, `evidence`, `bic` and `r2` (null where they are not
/// finite), `formula` (infix), `latex`, `postfix` and `chosen` (Front::chosen()), and a line end. With units in
/// `options` also `units`: those of the constants, by Dimensions::ofConstants(), null where there is none; with
/// `codata` also `constants`: objects with the `value` and the `name` of each physical constant.
std::string jsonText(const Front& front, const ColumnNames& columns, const GrammarOptions& options = {});

/// A tabular of LaTeX, with the loss in three digits; needs the package amsmath.
std::string latexTable(const Front& front, const ColumnNames& columns);

/// Where `gnuplot` is in the PATH. Errors: kMachine if it is not there.
Result<std::string> findGnuplot();

/// Runs a script, without the user's own settings, and gives what it wrote to standard output. Errors: kMachine if
/// gnuplot was not found, cannot be started or fails (with its own message), or if memory runs out.
Result<std::string> runGnuplot(std::string_view script);

/// The content of a picture. It refers to the front and to the numbers, which must outlive the call.
struct PlotData {
  const Front& front;
  std::string formula;                 ///< the chosen one in infix, for the title
  std::span<const double> target;      ///< by row
  std::span<const double> prediction;  ///< by row: the values of the chosen formula
  std::string target_name = "target";
};

/// The script for gnuplot that writes the picture to standard output. To the left it has the front's losses over the
/// complexity, with the chosen formula marked; a loss of 0 or less is drawn below the others. To the right it has the
/// predictions over the target, of at most 5,000 rows at equal distances; rows that are not finite are left out. Both
/// spans have one length.
std::string plotScript(const PlotData& data);

/// The picture as SVG. Errors: kInvalid where target and prediction differ in length; those of runGnuplot().
Result<std::string> plotSvg(const PlotData& data);

}  // namespace srjit::search

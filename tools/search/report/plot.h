// A picture of what a search found. All functions are thread-safe.
#pragma once

#include <span>
#include <string>

#include "ir/error.h"
#include "tools/search/formulas/front.h"

namespace srjit::search {

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

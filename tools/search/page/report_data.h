// The page that shows what a search has found. All functions are thread-safe.
#pragma once

#include <string>
#include <vector>

#include "ir/error.h"
#include "runtime/engine.h"
#include "tools/json.h"

namespace srjit::search {

/// The most rows that the page draws, and the most columns.
inline constexpr std::size_t kMostDrawnRows = 2'000, kMostDrawnColumns = 64;

/// The content of the page.
struct Report {
  /// An array of objects as frontJson() gives. Read are `formula`, infix over the columns of `data`, and, by the page,
  /// `latex`, `chosen`, `complexity`, `loss` and every other number.
  Json front;
  DataView data;  ///< with a target
  std::string target_name = {}, loss_name = {};
  std::string command = {};             ///< that searches again
  std::vector<std::string> facts = {};  ///< a few words each: the device, the time
};

/// The data of the page, by the keys `target`, `loss`, `command`, `facts`, and
/// - `rows`, the number of rows, `y`, the target, and `columns`, objects of `name` and `values`: of at most
///   kMostDrawnRows rows at equal distances: the i-th is row floor(i * rows / y.size()). Columns of formulas
///   come first; `columns_left_out` counts those beyond kMostDrawnColumns;
/// - `front`, Report::front with three keys more in each object: `residuals`, target less prediction of the same rows;
///   `open_rows`, the number of all rows whose residual is not finite; `quantiles`, the residuals of the others that
///   are above 2.5, 25, 50, 75 and 97.5 % of them, interpolated; empty without any.
/// Numbers that are not finite are null; others have nine digits, residuals five. Errors: kInvalid for data without a
/// target; those of parse() and of the engine, which has f64.
Result<Json> reportData(const Engine& engine, const Report& report);

/// The page, as HTML that needs no network. Errors: those of reportData().
Result<std::string> reportPage(const Engine& engine, const Report& report);

}  // namespace srjit::search

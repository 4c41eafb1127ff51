// What stays the same during a search: engines, grammar, frames and rows.
#pragma once

#include <cstddef>
#include <stop_token>
#include <string>
#include <vector>

#include "tools/search/evolution.h"
#include "tools/search/formulas/handicap.h"
#include "tools/search/rows.h"
#include "tools/search/screen.h"

namespace srjit::search {

struct SearchSetup {
  /// For selection, in f64 if f32 does not do for the data; and in strict f64 on the processor.
  Engine engine, wide;
  Grammar grammar;
  LossOptions loss;  ///< of the options, but that nmse of a constant target is mse
  bool is_scaled;    ///< whether islands select by the best a + b f
  std::vector<Frame> frames;
  Units units;
  std::vector<Grammar> grammars;    ///< by frame: of the trees that its formulas contain
  std::vector<Handicap> handicaps;  ///< by frame
  std::vector<Expression> guesses;
  RowSet searched, fitted, held_out;
  std::size_t rows;    ///< for selection
  Screen screen;       ///< whose calls end when a search ends
  double gain;         ///< the share by which a loss for selection must fall to be worth a polishing
  double floor;        ///< a loss that is rounding
  double enough;       ///< the search ends with a loss between this and its negative
  double looks_exact;  ///< a loss for selection, in f32, of a tree that may be enough in f64
};

/// `rows`: those of a search that goes on; 0: as the options say. `ended` ends the calls of the screen. Throws the
/// errors of search() for options and data.
SearchSetup setUp(const DataView& data, const SearchOptions& options, std::size_t rows, std::stop_token ended);

/// Those of `rows` that constants are fitted to: all with a weight, or 16,384 of them.
RowSet rowsToFit(const RowSet& rows, std::uint64_t seed = 0);

/// Whether a search can go on from `state`. It can from one that search() gave for the same data and options.
bool isSound(const SearchState& state, const SearchSetup& setup, const SearchOptions& options);

}  // namespace srjit::search

// The search for formulas as a library (CMake: srjit::search). docs/internals/search.md has the method.
//
//   const search::Found found = search::search(data, "--seconds 10 --ops add,mul,div --seed 1").value();
//   for (const search::Formula& formula : found.front.formulas())
//     std::cout << formula.loss << ' ' << print(formula.expression, Language::kInfix, data.names) << '\n';
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/error.h"
#include "runtime/data_view.h"
#include "tools/search/formulas/front.h"

namespace srjit::search {

/// What a search has found: so far, or at its end.
struct Found {
  Front front = Front();          ///< whose chosen() is that of --choose
  double seconds = 0;             ///< of the whole search, also before it was resumed
  std::uint64_t generations = 0;  ///< of the whole search, too
  std::uint64_t candidates = 0;   ///< trees whose loss was computed
  std::uint64_t fits = 0;         ///< trees whose constants were fitted
  // At the end only:
  std::string end = {};                   ///< why it ended: "time", "generations", "enough" or "stopped"
  std::string device = {};                ///< where formulas were selected
  std::vector<std::string> notices = {};  ///< what a user should know, a sentence each
  std::string state = {};                 ///< from which a search goes on, also in another process
};

/// What else a search takes. The functions are called by the thread that calls search(); what they throw ends it.
struct SearchCalls {
  std::function<bool()> stop = {};  ///< asked fifty times a second: whether to end within a second, with what was found
  std::function<void(const Found&)> progress = {};  ///< called after each generation, some times a second or more often
  std::string state = {};  ///< to go on from: Found::state of a search of equal data and options but for their limits
};

/// Searches for formulas of the target until the time is over, or another limit is reached. `options` are those of
/// `sr-jit search` but for data and files, divided at spaces; quotes keep these: "--ops 'add, mul' --seconds 5 --device
/// cpu". Equal data, options and generations give equal formulas. Errors: kInvalid and kSyntax for options, which the
/// message names, data and a state that do not fit, and where no formula has a finite loss; kMachine. Thread-safe.
Result<Found> search(const DataView& data, std::string_view options, const SearchCalls& calls = {});

}  // namespace srjit::search

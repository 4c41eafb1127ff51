// Searches over small tables of laws, as tests call them.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ir/numbers/random.h"
#include "ir/text.h"
#include "tools/search/evolution.h"
#include "tools/search/rows.h"
#include "tools/search/trees/arrays.h"

namespace srjit::search {

/// One tree.
inline Trees treeOf(const char* text) {
  Trees trees;
  trees.add(parse(text, Language::kInfix).value().tokens());
  return trees;
}

/// Rows of a law over columns that are uniform between two numbers.
template <class Law>
RowSet rowsOf(std::size_t columns, std::size_t rows, const Law& law, double noise = 0, double least = 1,
              double most = 3) {
  RowSet set;
  set.columns.resize(columns);
  Random random(11);
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<double> row;
    for (std::vector<double>& column : set.columns) {
      row.push_back(random.between(least, most));
      column.push_back(row.back());
    }
    set.target.push_back(law(row) + noise * random.between(-1.0, 1.0));
  }
  return set;
}

/// A law that no short search finds.
inline double hardLaw(const std::vector<double>& row) {
  return std::sin(row[0] * row[1]) + std::cos(row[1] * row[1] + row[0]) / (1 + row[0] * row[0] * row[1]);
}

inline SearchOptions smallOptions() {
  SearchOptions options;
  options.engine.device = "cpu";
  options.seconds = 60;
  options.generations = 40;
  options.islands = 4;
  options.island = {.population = 100, .offspring = 200};
  options.rows = 256;
  return options;
}

/// All that is the same where a search is repeated.
inline std::string recordOf(const SearchResult& result) {
  std::string text = std::to_string(result.state.generations) + " " + std::to_string(result.state.candidates) + "\n";
  for (const Formula& formula : result.state.front.formulas()) {
    text += fmt::format("{} {:a}\n", print(formula.expression, Language::kPostfix), formula.loss);
  }
  return text;
}

}  // namespace srjit::search

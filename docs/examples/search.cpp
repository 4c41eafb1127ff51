// The program of "As a library" in docs/search.md: it searches Kepler's third law, stops, and goes on.
#include <srjit/ir/text.h>
#include <srjit/search/library.h>

#include <iostream>
#include <vector>

using namespace srjit;

int main() {
  const std::vector<double> axis = {0.39, 0.72, 1, 1.52, 5.2, 9.54, 19.19, 30.07};
  const std::vector<double> period = {0.24, 0.62, 1, 1.88, 11.86, 29.46, 84.02, 164.8};
  DataView data{.columns = {ColumnView(axis)}, .target = ColumnView(period), .names = ColumnNames({"axis"})};
  const auto options = "--ops mul,div,sqrt --generations 20 --device cpu";
  search::Found found = search::search(data, options).value();
  for (const search::Formula& formula : found.front.formulas()) {
    std::cout << formula.complexity << "  " << formula.loss << "  "
              << print(formula.expression, Language::kInfix, data.names) << '\n';
  }

  const search::SearchCalls calls{
      .stop = [] { return false; },  // asked fifty times a second
      .progress = [](const search::Found& so_far) { std::cerr << so_far.front.chosen()->loss << '\n'; },
      .state = found.state};  // goes on from generation 20
  found = search::search(data, "--ops mul,div,sqrt --generations 30 --device cpu", calls).value();

  const search::Formula& law = *found.front.chosen();
  return law.r2 > 0.999 && law.complexity < 8 && found.end != "stopped" ? 0 : 1;
}

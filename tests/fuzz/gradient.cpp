// Decodes any bytes to an expression. Invariant: its derivatives as a graph equal those of dual numbers, within the
// rounding of sums whose terms are added in another order, where they do not depend on how the expression is written.
#include <cmath>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "ir/text.h"
#include "passes/gradient/deriver.h"
#include "tests/fuzz/harness/graph_input.h"
#include "tests/generators/dual.h"
#include "tests/generators/graphs.h"

namespace {

using namespace srjit;
using fuzz::GraphInput;
using fuzz::require;

/// Whether products along paths, in any order, are far from overflow and underflow.
bool isModerate(const Dual& dual) {
  constexpr double kMostExponents = 300;
  return std::isfinite(dual.value) && std::isfinite(dual.magnitude) && std::isfinite(dual.derivative) &&
         dual.exponents < kMostExponents;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GraphInput input(data, size);
  const bool by_parameters = input.options.flag();
  const std::vector<double> variables = input.numbers(GraphInput::kVariables);
  const std::vector<double> parameters = input.numbers(GraphInput::kParameters);
  const Expression expression = input.batch(1).front();
  static BatchOptimizer by_parameter(Precision::kF64, Math::kStrict, Derivation{.columns = GraphInput::kVariables});
  static BatchOptimizer by_variable(Precision::kF64, Math::kStrict,
                                    Derivation{.by = DerivativesBy::kVariables, .columns = GraphInput::kVariables});
  BatchOptimizer& derived = by_parameters ? by_parameter : by_variable;
  derived.add(Population({&expression, 1})[0]);
  const Dag graph = derived.take();
  const std::size_t count = by_parameters ? expression.parameterCount() : GraphInput::kVariables;
  require(graph.roots().size() == count, "there is a root for each derivative");
  const std::vector<double> got = evaluate<double>(graph, variables, parameters);
  for (std::size_t k = 0; k < count; ++k) {
    const Dual wanted =
        dualOf(expression, variables, parameters, by_parameters ? Token::Kind::kParameter : Token::Kind::kVariable, k);
    if (!isModerate(wanted)) continue;
    const bool is_near = std::fabs(got[k] - wanted.derivative) <= 1e-12 * wanted.magnitude;
    if (!is_near && hasKink(expression, variables, parameters)) continue;
    require(is_near, "derivatives equal those of dual numbers", [&] {
      return fmt::format("{}\nby {}: {:.17g}, not {:.17g}", print(expression, Language::kInfix), k, got[k],
                         wanted.derivative);
    });
  }
  return 0;
}

// Decodes any bytes to a batch of expressions. Invariants: one walk over the tokens (BatchOptimizer), the standard
// pipeline, and its passes one at a time give the same graph; each pass that says so keeps every bit, and all in
// strict.
#include <cstdint>
#include <vector>

#include "passes/gradient/deriver.h"
#include "passes/pass.h"
#include "tests/fuzz/harness/graph_input.h"
#include "tests/generators/graphs.h"

namespace {

using namespace srjit;
using fuzz::GraphInput;
using fuzz::require;

template <class T>
struct Row {
  std::vector<T> variables, parameters;
};

template <class T>
void requireSameValues(const Dag& before, const Dag& after, const Row<T>& row, const Pass& pass) {
  const std::vector<T> wanted = evaluate<T>(before, row.variables, row.parameters);
  const std::vector<T> got = evaluate<T>(after, row.variables, row.parameters);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    require(sameBits(got[i], wanted[i]), pass.name.c_str(),
            [&] { return printDag(before) + "became\n" + printDag(after); });
  }
}

template <class T>
void check(const std::vector<Expression>& batch, Math math, const std::vector<double>& variables,
           const std::vector<double>& parameters) {
  constexpr auto kPrecision = kPrecisionOf<T>;
  const Row<T> row = {{variables.begin(), variables.end()}, {parameters.begin(), parameters.end()}};
  const Pipeline pipeline = Pipeline::standard(math);
  const Dag given = Dag::fromExpressions(batch, kPrecision);
  Dag stepwise = given;
  for (const Pass& pass : pipeline.passes()) {
    Dag next = pass.run(stepwise, {math});
    if (pass.exactness == Exactness::kExact || math == Math::kStrict) requireSameValues(stepwise, next, row, pass);
    stepwise = std::move(next);
  }
  const Dag whole = pipeline.run(given, {math});
  require(whole == stepwise, "a pipeline is its passes",
          [&] { return printDag(whole) + "passes\n" + printDag(stepwise); });
  // Kept, so that what an input leaves behind would be seen.
  static BatchOptimizer optimizers[] = {
      {kPrecision, Math::kStrict}, {kPrecision, Math::kPrecise}, {kPrecision, Math::kFast}};
  BatchOptimizer& optimizer = optimizers[math == Math::kStrict ? 0 : math == Math::kPrecise ? 1 : 2];
  const Population population(batch);
  for (std::size_t e = 0; e < population.size(); ++e) optimizer.add(population[e]);
  const Dag walked = optimizer.take();
  require(walked == whole, "one walk gives the pipeline's graph",
          [&] { return printDag(walked) + "pipeline\n" + printDag(whole); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GraphInput input(data, size);
  const std::uint8_t options = input.options.byte();
  const Math math = kMathModes[options % std::size(kMathModes)];
  const std::vector<double> variables = input.numbers(GraphInput::kVariables);
  const std::vector<double> parameters = input.numbers(GraphInput::kParameters);
  const std::vector<Expression> batch = input.batch();
  if (options >= 128) {
    check<double>(batch, math, variables, parameters);
  } else {
    check<float>(batch, math, variables, parameters);
  }
  return 0;
}

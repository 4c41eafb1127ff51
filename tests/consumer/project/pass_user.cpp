// A program that compiles with the pass of merge_exponentials.cpp (docs/internals/passes.md).
#include <srjit/ir/text.h>
#include <srjit/runtime/engine.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

using namespace srjit;

int main() {
  const std::vector<double> x = {0.5, 1, 2};
  const Engine engine = Engine::create({.device = "cpu", .precision = Precision::kF64}).value();
  const Dataset data = engine.upload({.columns = {x}}).value();
  const std::vector<Expression> batch = {parse("exp(x0) * exp(2 * x0)", Language::kInfix).value()};

  const Pipeline pipeline = Pipeline::parse("merge-exp,standard", engine.options().math).value();
  const Program program = engine.compile(batch, {.pipeline = pipeline});

  std::vector<double> predictions(x.size());
  if (!engine.evaluate(program, data, {}, predictions).value().empty()) return 1;
  const Program plain = engine.compile(batch);
  std::printf("%zu nodes, %zu without the pass\n", program.info().nodes_after, plain.info().nodes_after);
  if (program.info().nodes_after >= plain.info().nodes_after) return 1;
  for (std::size_t row = 0; row < x.size(); ++row) {
    if (std::fabs(predictions[row] / std::exp(3 * x[row]) - 1) > 1e-14) return 1;
  }
  return 0;
}

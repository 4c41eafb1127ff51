// A program outside the repository: the example of the README, and the error of a bad formula.
#include <srjit/compiler/llvm_failures.h>
#include <srjit/ir/text.h>
#include <srjit/runtime/engine.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace srjit;

int main() {
  endWhereLlvmFails([](const char*) { std::_Exit(3); });
  std::vector<double> x = {1, 2, 3}, y = {2.5, 6.5, 12.5};
  Engine engine = Engine::create({.precision = Precision::kF64}).value();
  Dataset data = engine.upload({.columns = {x}, .target = y}).value();
  std::vector<Expression> batch = {parse("x0^2 + x0", Language::kInfix).value(),
                                   parse("p0 * x0", Language::kInfix).value()};
  Program program = engine.compile(batch);
  Losses losses = engine.loss(program, data, std::vector{4.0}, {.kind = LossKind::kRmse}).value();
  std::printf("losses %g and %g\n", losses.values[0], losses.values[1]);
  if (losses.values[0] != 0.5 || std::fabs(losses.values[1] - std::sqrt(4.75 / 3)) > 1e-12) return 1;

  const auto bad = parse("1 + * x0", Language::kInfix);
  if (bad || !bad.error().where || bad.error().where->column != 5) return 1;
  std::printf("%s\n", bad.error().message.c_str());
  return 0;
}

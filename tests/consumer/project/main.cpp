// A program outside the repository: the examples of the README (tests/docs/check_pages.py), and the error of a bad
// formula.
#include <srjit/compiler/llvm_failures.h>
#include <srjit/ir/text.h>
#include <srjit/runtime/engine.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

using namespace srjit;

std::size_t readKeptSubtrees(const DataView& view, std::span<const Expression> generation) {
  Engine engine = Engine::create({.tier = Tier::kInterpret, .subtree_bytes = 256 << 20}).value();
  Dataset data = engine.upload(view).value();
  Program program = engine.compile(generation, {.data = &data});  // reads what is kept, computes the rest
  std::size_t columns = program.info().subtrees_read;             // data.subtrees() has the other figures
  return columns;
}

int main() {
  endWhereLlvmFails([](const char*) { std::_Exit(3); });
  std::vector<double> x = {1, 2, 3}, y = {2.5, 6.5, 12.5};
  Engine engine = Engine::create({.precision = Precision::kF64}).value();
  Dataset data = engine.upload({.columns = {x}, .target = y}).value();
  std::vector<Expression> batch = {parse("x0^2 + x0", Language::kInfix).value(),
                                   parse("p0 * x0", Language::kInfix).value()};
  Program program = engine.compile(batch);
  std::vector<double> parameters = {4};
  Losses losses = engine.loss(program, data, parameters, {.kind = LossKind::kRmse}).value();
  std::printf("losses %g and %g\n", losses.values[0], losses.values[1]);
  if (losses.values[0] != 0.5 || std::fabs(losses.values[1] - std::sqrt(4.75 / 3)) > 1e-12) return 1;

  const auto breed = [&] { return std::vector<Expression>(batch.rbegin(), batch.rend()); };
  Pending<Losses> pending = engine.submitLoss(program, data, parameters).value();
  Program next = engine.compile(breed());
  Losses now = std::move(pending).result().value();
  if (now.values[0] != 0.25 || next.size() != 2) return 1;

  if (readKeptSubtrees({.columns = {x}, .target = y}, batch) != 0) return 1;  // a first generation finds none

  const auto bad = parse("1 + * x0", Language::kInfix);
  if (bad || !bad.error().where || bad.error().where->column != 5) return 1;
  std::printf("%s\n", bad.error().message.c_str());
  return 0;
}

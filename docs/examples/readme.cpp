// The C++ example of the README (tests/docs/check_pages.py), two more of what a search needs, and the error of a bad
// formula.
#include <srjit/ir/text.h>
#include <srjit/runtime/engine.h>

#include <srjit/compiler/llvm_failures.h>
#include <srjit/ir/ops.h>
#include <srjit/passes/simplify_expression.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

using namespace srjit;

/// The better of two expressions, and the sine of it.
std::vector<Expression> breed(const std::vector<Expression>& island, const std::vector<double>& losses) {
  const Expression& best = island[losses[0] <= losses[1] ? 0 : 1];
  std::vector<Token> tokens(best.tokens().begin(), best.tokens().end());
  tokens.push_back(Token::operation(Op::kSin));
  return {best, Expression::create(std::move(tokens)).value()};
}

/// The example of overlapping work.
void evolve(const Engine& engine, const Dataset& data, std::vector<Expression> (&islands)[2], std::size_t steps) {
  Pending<Losses> pending = engine.submitLoss(engine.compile(islands[0]), data, {}).value();
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<Expression>& evaluated = islands[step % 2];
    const std::vector<Expression>& next = islands[(step + 1) % 2];
    Program program = engine.compile(next);
    Losses losses = std::move(pending).result().value();
    pending = engine.submitLoss(program, data, {}).value();
    evaluated = breed(evaluated, losses.values);
  }
}

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

  const Expression x0 = parse("x0", Language::kInfix).value(), cube = parse("x0^3", Language::kInfix).value();
  std::vector<Expression> islands[2] = {{x0, batch[0]}, {cube, x0}};
  evolve(engine, data, islands, 4);
  if (islands[0][0] != batch[0] || depth(islands[0][1]) != depth(batch[0]) + 1) return 1;

  const Expression bound = withParameters(batch[1], std::vector{1.0}).value();
  if (simplify(bound) != x0 || std::unordered_set<Expression>{bound, bound, x0}.size() != 2) return 1;

  if (readKeptSubtrees({.columns = {x}, .target = y}, batch) != 0) return 1;  // a first generation finds none

  const auto bad = parse("1 + * x0", Language::kInfix);
  if (bad || !bad.error().where || bad.error().where->column != 5) return 1;
  std::printf("%s\n", bad.error().message.c_str());
  return 0;
}

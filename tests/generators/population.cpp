#include "tests/generators/population.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace srjit {

ExpressionGenerator::ExpressionGenerator(GeneratorOptions options)
    : options_(std::move(options)), random_(options_.seed) {
  if (options_.ops.empty()) {
    for (std::size_t i = 0; i < allOps().size(); ++i) options_.ops.push_back(static_cast<Op>(i));
  }
}

Expression ExpressionGenerator::next() {
  // Reversed prefix order is the postfix order of the mirrored tree, which has the same distribution.
  std::vector<Token> tokens;
  std::vector<int> sizes = {random_.between(options_.min_nodes, options_.max_nodes)};
  while (!sizes.empty()) {
    int size = sizes.back();
    sizes.pop_back();
    const bool fits = std::ranges::any_of(options_.ops, [size](Op op) { return arityOf(op) < size; });
    if (!fits) {
      tokens.push_back(leaf());
      continue;
    }
    const Op op = pickOp(size);
    tokens.push_back(Token::operation(op));
    --size;
    for (int operands = arityOf(op); operands > 1; --operands) {
      const int share = random_.between(1, size - operands + 1);
      sizes.push_back(share);
      size -= share;
    }
    sizes.push_back(size);
  }
  std::ranges::reverse(tokens);
  return Expression::create(std::move(tokens)).value();
}

std::vector<Expression> ExpressionGenerator::batch(std::size_t count) {
  std::vector<Expression> expressions;
  expressions.reserve(count);
  for (std::size_t i = 0; i < count; ++i) expressions.push_back(next());
  return expressions;
}

Op ExpressionGenerator::pickOp(int nodes) {
  for (;;) {
    const Op op = options_.ops[random_.below(options_.ops.size())];
    if (arityOf(op) < nodes) return op;
  }
}

Token ExpressionGenerator::leaf() {
  if (random_.chance(options_.constant_probability)) return Token::constant(constant());
  if (options_.parameters > 0 && (options_.variables == 0 || random_.chance(options_.parameter_probability))) {
    return Token::parameter(static_cast<std::uint32_t>(random_.between(0, options_.parameters - 1)));
  }
  if (options_.variables == 0) return Token::constant(constant());
  return Token::variable(static_cast<std::uint32_t>(random_.between(0, options_.variables - 1)));
}

double ExpressionGenerator::constant() {
  using Limits = std::numeric_limits<double>;
  constexpr double kSpecial[] = {0.0,
                                 -0.0,
                                 1.0,
                                 -1.0,
                                 Limits::infinity(),
                                 -Limits::infinity(),
                                 Limits::quiet_NaN(),
                                 Limits::max(),
                                 -Limits::max(),
                                 Limits::min(),
                                 Limits::denorm_min(),
                                 -Limits::denorm_min()};
  if (random_.chance(options_.special_probability)) return kSpecial[random_.below(std::size(kSpecial))];
  switch (random_.below(3)) {
    case 0:
      return random_.between(-9, 9);
    case 1:
      return random_.between(-5.0, 5.0);
    default:
      return random_.magnitude(-10, 9);
  }
}

std::optional<GeneratorOptions> findPopulation(std::string_view name, std::uint64_t seed) {
  GeneratorOptions options;
  options.seed = seed;
  if (name == "mixed" || name == "small") {
    options.ops = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kPow, Op::kAbs, Op::kLog, Op::kExp, Op::kInv, Op::kSqrt};
    if (name == "mixed") return options;
    options.min_nodes = 5;
    options.max_nodes = 10;
    options.variables = options.parameters = 2;
    options.constant_probability = 0.1;
    options.parameter_probability = 0.4;
    return options;
  }
  if (name == "arithmetic") {
    options.ops = {Op::kAdd, Op::kSub, Op::kMul, Op::kAbs};
    return options;
  }
  return std::nullopt;
}

}  // namespace srjit

// The program of docs/guide.md, whose blocks of code are parts of this file (tests/docs/check_pages.py).
#include <srjit/ir/expression.h>
#include <srjit/ir/ops.h>
#include <srjit/ir/text.h>
#include <srjit/runtime/engine.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <utility>
#include <vector>

using namespace srjit;

/// A tree of a genetic-programming system.
struct Tree {
  enum class Kind { kNumber, kColumn, kCoefficient, kCall };
  Kind kind;
  double number = 0;  // a literal, or the start value of a coefficient
  std::uint32_t column = 0;
  Op op = Op::kAdd;
  std::vector<Tree> children;  // operands, the left one first
};

Tree number(double value) { return {Tree::Kind::kNumber, value, 0, Op::kAdd, {}}; }
Tree column(std::uint32_t index) { return {Tree::Kind::kColumn, 0, index, Op::kAdd, {}}; }
Tree coefficient(double start) { return {Tree::Kind::kCoefficient, start, 0, Op::kAdd, {}}; }
Tree call(Op op, std::vector<Tree> children) { return {Tree::Kind::kCall, 0, 0, op, std::move(children)}; }

/// Appends the postfix tokens of a tree, and the start values of its coefficients.
void append(const Tree& tree, std::vector<Token>& tokens, std::vector<double>& coefficients) {
  switch (tree.kind) {
    case Tree::Kind::kNumber:
      tokens.push_back(Token::constant(tree.number));
      break;
    case Tree::Kind::kColumn:
      tokens.push_back(Token::variable(tree.column));
      break;
    case Tree::Kind::kCoefficient:
      tokens.push_back(Token::parameter(static_cast<std::uint32_t>(coefficients.size())));
      coefficients.push_back(tree.number);
      break;
    case Tree::Kind::kCall:
      for (const Tree& child : tree.children) append(child, tokens, coefficients);
      tokens.push_back(Token::operation(tree.op));
      break;
  }
}

/// One mutated copy of every tree: here an additional sine.
std::vector<Tree> breed(std::vector<Tree> parents) {
  for (Tree& parent : parents) parent = call(Op::kSin, {std::move(parent)});
  return parents;
}

int main() {
  // 1,000 rows of two columns, and the target 2 sqrt(x0) + x1.
  constexpr std::size_t kRows = 1000;
  std::vector<double> x0(kRows), x1(kRows), y(kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    x0[row] = static_cast<double>(row) / 100;
    x1[row] = std::cos(x0[row]);
    y[row] = 2 * std::sqrt(x0[row]) + x1[row];
  }

  Result<Engine> made = Engine::create({.device = "cpu", .precision = Precision::kF64});
  if (!made) {
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    return 1;
  }
  const Engine engine = *made;

  const Dataset data = engine.upload({.columns = {x0, x1}, .target = y}).value();

  const std::vector<Tree> trees = {
      // c * sqrt(x0) + x1
      call(Op::kAdd, {call(Op::kMul, {coefficient(1), call(Op::kSqrt, {column(0)})}), column(1)}),
      // c * log(x0) + c: minus infinity in the first row, where x0 is 0
      call(Op::kAdd, {call(Op::kMul, {coefficient(1), call(Op::kLog, {column(0)})}), coefficient(0)}),
      // x7 + 1: the data have no such column
      call(Op::kAdd, {column(7), number(1)}),
  };

  std::vector<Expression> expressions;
  std::vector<double> parameters;
  for (const Tree& tree : trees) {
    std::vector<Token> tokens;
    std::vector<double> coefficients;
    append(tree, tokens, coefficients);
    expressions.push_back(Expression::create(std::move(tokens)).value());
    parameters.insert(parameters.end(), coefficients.begin(), coefficients.end());
  }

  const int kSteps = 200;
  const Program program =
      engine.compile(expressions, {.expected_evaluations = kSteps + 1, .expected_rows = data.rows()});

  const LossOptions fitness{.kind = LossKind::kMse, .nan = NanPolicy::kReject};
  Losses best = engine.loss(program, data, parameters, fitness).value();
  for (std::size_t e = 0; e < program.size(); ++e) std::printf("%zu: %g\n", e, best.values[e]);

  for (const Failure& failure : best.failures) {
    std::printf("%zu: %s\n", failure.expression, failure.error.message.c_str());
  }
  if (best.failures.size() != 1 || best.failures[0].expression != 2 || !std::isnan(best.values[2])) return 1;
  if (!(best.values[0] > 1) || best.values[1] != INFINITY) return 1;

  const Losses skipped = engine.loss(program, data, parameters, {LossKind::kMse, NanPolicy::kSkip}).value();
  std::printf("%g over %zu rows\n", skipped.values[1], static_cast<std::size_t>(skipped.valid_rows[1]));
  if (!std::isfinite(skipped.values[1]) || skipped.valid_rows[1] != kRows - 1) return 1;

  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 0.1);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> trial = parameters;
    for (double& parameter : trial) parameter += noise(random);
    const Losses losses = engine.loss(program, data, trial, fitness).value();
    for (std::size_t e = 0; e < program.size(); ++e) {
      if (!(losses.values[e] < best.values[e])) continue;
      best.values[e] = losses.values[e];
      for (std::size_t p = program.parameterOffset(e); p < program.parameterOffset(e + 1); ++p) {
        parameters[p] = trial[p];
      }
    }
  }
  if (!(best.values[0] < 1e-3)) return 1;

  std::vector<double> predictions(program.size() * data.rows());
  const std::vector<Failure> failures = engine.evaluate(program, data, parameters, predictions).value();
  const std::span<const double> first = std::span(predictions).first(data.rows());
  std::printf("row 400: %g, target %g\n", first[400], y[400]);
  if (std::fabs(first[400] - y[400]) > 0.1 || failures.size() != 1) return 1;

  Pending<Losses> pending = engine.submitLoss(program, data, parameters, fitness).value();
  const std::vector<Tree> next = breed(trees);  // while the device computes
  const Losses losses = std::move(pending).result().value();
  if (next.size() != trees.size() || losses.values[0] != best.values[0]) return 1;

  const ColumnNames names{"distance", "mass"};
  for (std::size_t e = 0; e < 2; ++e) std::printf("%s\n", print(expressions[e], Language::kInfix, names).c_str());
  return print(expressions[0], Language::kInfix, names) == "p0 * sqrt(distance) + mass" ? 0 : 1;
}

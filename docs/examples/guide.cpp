// The program of docs/guide.md, with a function for each section of the page. The page's blocks of code are parts of
// this file (tests/docs/check_pages.py). The program ends with 1 where a result is not the one that the page says.
#include <srjit/ir/expression.h>
#include <srjit/ir/ops.h>
#include <srjit/ir/population.h>
#include <srjit/ir/text.h>
#include <srjit/runtime/engine.h>

#include <srjit/passes/simplify_expression.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
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

/// Expressions in the order of their trees, and the start values of all their coefficients.
struct Generation {
  std::vector<Expression> expressions;
  std::vector<double> parameters;
};

/// "Expressions from your trees".
Generation convert(const std::vector<Tree>& trees) {
  std::vector<Expression> expressions;
  std::vector<double> parameters;
  for (const Tree& tree : trees) {
    std::vector<Token> tokens;
    std::vector<double> coefficients;
    append(tree, tokens, coefficients);
    expressions.push_back(Expression::create(std::move(tokens)).value());
    parameters.insert(parameters.end(), coefficients.begin(), coefficients.end());
  }
  return {std::move(expressions), std::move(parameters)};
}

std::vector<Tree> exampleTrees() {
  return {
      // c * sqrt(x0) + x1
      call(Op::kAdd, {call(Op::kMul, {coefficient(1), call(Op::kSqrt, {column(0)})}), column(1)}),
      // c * log(x0) + c: minus infinity in the first row, where x0 is 0
      call(Op::kAdd, {call(Op::kMul, {coefficient(1), call(Op::kLog, {column(0)})}), coefficient(0)}),
      // x7 + 1: the data have no such column
      call(Op::kAdd, {column(7), number(1)}),
  };
}

/// One mutated copy of every tree: here an additional sine.
std::vector<Tree> breed(std::vector<Tree> parents) {
  for (Tree& parent : parents) parent = call(Op::kSin, {std::move(parent)});
  return parents;
}

/// Two columns, and the target 2 sqrt(x0) + x1.
struct Samples {
  std::vector<double> x0, x1, y;
};

Samples makeSamples() {
  constexpr std::size_t kRows = 1000;
  Samples made{std::vector<double>(kRows), std::vector<double>(kRows), std::vector<double>(kRows)};
  for (std::size_t row = 0; row < kRows; ++row) {
    made.x0[row] = static_cast<double>(row) / 100;
    made.x1[row] = std::cos(made.x0[row]);
    made.y[row] = 2 * std::sqrt(made.x0[row]) + made.x1[row];
  }
  return made;
}

/// Ends the program if a result is not the one that the page says.
void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not as the guide says: %s\n", what);
  std::exit(1);
}

/// "Engine".
Engine createEngine() {
  Result<Engine> made = Engine::create({.device = "cpu", .precision = Precision::kF64});
  if (!made) {
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    std::exit(1);
  }
  return *made;
}

/// "Data".
Dataset uploadSamples(const Engine& engine, const Samples& samples) {
  const auto& [x0, x1, y] = samples;
  return engine.upload({.columns = {x0, x1}, .target = y}).value();
}

const int kSteps = 200;  // of changed parameters

/// "Program".
Program compileAll(const Engine& engine, const Dataset& data, const std::vector<Expression>& expressions) {
  return engine.compile(expressions, {.expected_evaluations = kSteps + 1, .expected_rows = data.rows()});
}

const LossOptions kFitness{.kind = LossKind::kMse, .nan = NanPolicy::kReject};

/// "Losses".
Losses printLosses(const Engine& engine, const Dataset& data, const Program& program,
                   const std::vector<double>& parameters) {
  Losses best = engine.loss(program, data, parameters, kFitness).value();
  for (std::size_t e = 0; e < program.size(); ++e) std::printf("%zu: %g\n", e, best.values[e]);
  expect(best.values[0] > 1 && best.values[1] == INFINITY, "losses");
  return best;
}

/// "Failures".
void printFailures(const Losses& best) {
  for (const Failure& failure : best.failures) {
    std::printf("%zu: %s\n", failure.expression, failure.error.message.c_str());
  }
  expect(best.failures.size() == 1 && best.failures[0].expression == 2 && std::isnan(best.values[2]), "failures");
}

/// "NaN and infinities".
void skipRows(const Engine& engine, const Dataset& data, const Program& program,
              const std::vector<double>& parameters) {
  const Losses skipped = engine.loss(program, data, parameters, {LossKind::kMse, NanPolicy::kSkip}).value();
  std::printf("%g over %zu rows\n", skipped.values[1], static_cast<std::size_t>(skipped.valid_rows[1]));
  expect(std::isfinite(skipped.values[1]) && skipped.valid_rows[1] == data.rows() - 1, "rows that are skipped");
}

/// "Minibatches and other weights".
void evaluateParts(const Engine& engine, const Dataset& data, const Program& program,
                   const std::vector<double>& parameters, std::uint64_t generation) {
  const Dataset training = engine.rows(data, 0, 800).value();  // in place of an upload of these rows
  const Dataset validation = engine.rows(data, 800, 200).value();
  const Dataset batch = engine.sample(training, 2, generation).value();  // 2 of 7 groups of 128 adjacent rows
  const Losses of_batch = engine.loss(program, batch, parameters, kFitness).value();

  std::vector<double> weights(data.rows(), 1.0);
  for (std::size_t row = 0; row < 100; ++row) weights[row] = 10;
  const Dataset weighted = engine.withWeights(data, weights).value();

  expect(training.rowGroups() == 7 && (batch.rows() == 256 || batch.rows() == 160), "rows of a sample");
  expect(of_batch.values[0] > 0, "losses of a sample");
  const Losses held_out = engine.loss(program, validation, parameters, kFitness).value();
  expect(held_out.values[0] > 0 && std::isfinite(held_out.values[1]), "losses of rows");
  const Losses before = engine.loss(program, data, parameters, kFitness).value();
  expect(engine.loss(program, weighted, parameters, kFitness).value().values[0] < before.values[0], "other weights");
}

/// "New parameters": improves the parameters, and the losses with them.
void optimize(const Engine& engine, const Dataset& data, const Program& program, std::vector<double>& parameters,
              Losses& best) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 0.1);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> trial = parameters;
    for (double& parameter : trial) parameter += noise(random);
    const Losses losses = engine.loss(program, data, trial, kFitness).value();
    for (std::size_t e = 0; e < program.size(); ++e) {
      if (!(losses.values[e] < best.values[e])) continue;
      best.values[e] = losses.values[e];
      for (std::size_t p = program.parameterOffset(e); p < program.parameterOffset(e + 1); ++p) {
        parameters[p] = trial[p];
      }
    }
  }
  expect(best.values[0] < 1e-3, "the loss with the best parameters");
}

/// "Losses", of a kind of its own (docs/losses.md).
const LossOptions kBetween{.custom = parse("abs(f - y)^1.5", Language::kInfix, {"f", "y", "w"}).value()};

/// "New parameters", many at once.
void printVectors(const Engine& engine, const Dataset& data, const Program& program,
                  const std::vector<double>& parameters) {
  std::vector<double> vectors;
  for (const double scale : {0.9, 1.0, 1.1}) {
    for (const double parameter : parameters) vectors.push_back(scale * parameter);
  }
  const Losses losses = engine.loss(program, data, vectors, kBetween).value();
  for (std::size_t v = 0; v < 3; ++v) std::printf("vector %zu: %g\n", v, losses.values[v * program.size()]);
  expect(losses.values.size() == 3 * program.size() &&
             losses.values[program.size()] == engine.loss(program, data, parameters, kBetween).value().values[0],
         "losses of several vectors");
}

/// "Gradients".
void printGradient(const Engine& engine, const Dataset& data, const Program& program,
                   const std::vector<double>& parameters) {
  const Gradients slopes = engine.gradient(program, data, parameters, {.loss = kFitness}).value();
  std::printf("loss %g, by p0 %g, by p1 %g\n", slopes.losses.values[0], slopes.derivatives[0], slopes.derivatives[1]);
  const Losses losses = engine.loss(program, data, parameters, kFitness).value();
  expect(slopes.losses.values[0] == losses.values[0] && slopes.derivatives.size() == parameters.size(), "gradients");
}

/// "Fitting".
void printFit(const Engine& engine, const Dataset& data, const Program& program,
              const std::vector<double>& parameters) {
  const Fits fits = engine.fit(program, data, parameters, {.loss = kFitness}).value();
  std::printf("p0 %g, p1 %g: loss %g after %u passes, %s\n", fits.parameters[0], fits.parameters[1],
              fits.losses.values[0], fits.iterations[0], nameOf(fits.statuses[0]).data());
  expect(fits.losses.values[0] < 1e-2 && fits.standard_errors.size() == parameters.size(), "a fit");
}

/// "Fitting", of finalists again in f64.
std::vector<double> refine(const DataView& view, const std::vector<Expression>& finalists,
                           const std::vector<double>& found) {
  const Engine wide = Engine::create({.precision = Precision::kF64}).value();
  const Dataset data = wide.upload(view).value();
  return wide.fit(wide.compile(finalists), data, found).value().parameters;
}

/// "Predictions".
void predict(const Engine& engine, const Dataset& data, const Program& program, const std::vector<double>& parameters,
             const std::vector<double>& target) {
  std::vector<double> predictions(program.size() * data.rows());
  const std::vector<Failure> failures = engine.evaluate(program, data, parameters, predictions).value();
  const std::span<const double> first = std::span(predictions).first(data.rows());
  std::printf("row 400: %g, target %g\n", first[400], target[400]);
  expect(std::fabs(first[400] - target[400]) <= 0.1 && failures.size() == 1, "predictions");
}

/// "Asynchronous evaluation".
void breedMeanwhile(const Engine& engine, const Dataset& data, const Program& program,
                    const std::vector<double>& parameters, const std::vector<Tree>& trees, const Losses& best) {
  Pending<Losses> pending = engine.submitLoss(program, data, parameters, kFitness).value();
  const std::vector<Tree> next = breed(trees);  // while the device computes
  const Losses losses = std::move(pending).result().value();
  expect(next.size() == trees.size() && losses.values[0] == best.values[0], "losses of an asynchronous evaluation");
}

/// "Results as text".
void printResults(const Program& program, const std::vector<Expression>& expressions,
                  const std::vector<double>& parameters) {
  const ColumnNames names{"distance", "mass"};
  for (std::size_t e = 0; e < 2; ++e) {
    const std::size_t first = program.parameterOffset(e), last = program.parameterOffset(e + 1);
    const std::span<const double> fitted = std::span(parameters).subspan(first, last - first);
    const Expression result = simplify(withParameters(expressions[e], fitted).value());
    std::printf("%s\n", print(result, Language::kInfix, names).c_str());
  }
  const std::string text =
      print(simplify(withParameters(expressions[0], std::span(parameters).first(1)).value()), Language::kInfix, names);
  expect(text.find("sqrt(distance)") != text.npos && text.find("p0") == text.npos, "an expression as text");
}

/// x0 * 2 + p0 and sin(x1), without an object per expression.
Program compileArrays(const Engine& engine) {
  const std::vector<std::int32_t> codes = {variableCode(0),  kConstantCode,    codeOf(Op::kMul),
                                           parameterCode(0), codeOf(Op::kAdd),  //
                                           variableCode(1),  codeOf(Op::kSin)};
  const std::vector<double> constants = {0, 2, 0, 0, 0, 0, 0};  // any number unless the code is kConstantCode
  const std::vector<std::int64_t> offsets = {0, 5, 7};
  return engine.compile(PopulationView{codes, constants, offsets}).value();
}

/// "One evaluation".
Losses evaluateOnce(const Engine& engine, const Dataset& data, const PopulationView& generation,
                    const std::vector<double>& parameters) {
  Pending<Losses> pending = engine.submitLoss(generation, data, parameters, kFitness).value();
  // The arrays may change from here on.
  return std::move(pending).result().value();
}

int main() {
  const std::vector<Tree> trees = exampleTrees();
  const Samples samples = makeSamples();

  auto [expressions, parameters] = convert(trees);
  const Engine engine = createEngine();
  const Dataset data = uploadSamples(engine, samples);
  const Program program = compileAll(engine, data, expressions);

  Losses best = printLosses(engine, data, program, parameters);
  printFailures(best);
  skipRows(engine, data, program, parameters);
  evaluateParts(engine, data, program, parameters, 1);
  optimize(engine, data, program, parameters, best);
  printVectors(engine, data, program, parameters);
  printGradient(engine, data, program, parameters);
  printFit(engine, data, program, parameters);
  const auto& [x0, x1, y] = samples;
  const std::vector<double> start{parameters.begin(),
                                  parameters.begin() + static_cast<std::ptrdiff_t>(program.parameterOffset(1))};
  expect(refine({.columns = {x0, x1}, .target = y}, {expressions[0]}, start).size() == start.size(), "a fit in f64");
  predict(engine, data, program, parameters, samples.y);
  breedMeanwhile(engine, data, program, parameters, trees, best);
  printResults(program, expressions, parameters);

  const Losses of_arrays = engine.loss(compileArrays(engine), data, std::vector<double>{0.5}).value();
  expect(of_arrays.values.size() == 2 && of_arrays.failures.empty(), "a program of token arrays");
  const std::vector<std::int32_t> codes = {variableCode(1), parameterCode(0), codeOf(Op::kAdd), variableCode(1)};
  const std::vector<std::int64_t> offsets = {0, 3, 4};
  const Losses once = evaluateOnce(engine, data, PopulationView{codes, {}, offsets}, {0});
  expect(once.values.size() == 2 && once.values[0] == once.values[1], "losses of token arrays in one call");
}

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tools/commands.h"
#include "tools/evaluation.h"

namespace srjit {
namespace {

struct FitCommand {
  EvaluationOptions evaluation;
  std::string loss = "mse";
  FitOptions fit;
  unsigned starts = 1;
  std::uint64_t seed = 1;
  std::size_t refine = 0;
  std::vector<std::string> bounds;
};

/// The fit of one line.
struct FittedLine {
  double loss = std::numeric_limits<double>::quiet_NaN();
  std::uint64_t valid_rows = 0;
  unsigned iterations = 0;
  FitStatus status = FitStatus::kRunning;
  std::size_t start = 0;
  std::vector<double> parameters, standard_errors;
};

/// One line of results.
std::string statusText(const FittedLine& fitted, const SourceLine& line) {
  if (!line.ok()) return fmt::format("failed: {}", nameOf(line.expression.error().code));
  return std::string(nameOf(fitted.status));
}

std::string numbersText(std::span<const double> numbers) {
  std::string text;
  for (const double number : numbers) {
    if (!text.empty()) text += ' ';
    appendNumber(text, number, Precision::kF64);
  }
  return text;
}

/// Numbers that cannot be had are null.
std::string jsonNumbers(std::span<const double> numbers) {
  std::string text = "[";
  for (const double number : numbers) {
    if (text.size() > 1) text += ',';
    if (std::isfinite(number)) {
      appendJsonNumber(text, number, Precision::kF64);
    } else {
      text += "null";
    }
  }
  return text + "]";
}

std::string csvText(std::span<const FittedLine> table, const std::vector<SourceLine>& lines) {
  std::string text = "index,loss,valid_rows,iterations,status,parameters\n";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += fmt::format("{},", i);
    appendNumber(text, table[i].loss, Precision::kF64);
    text += fmt::format(",{},{},{},{}\n", validRowsText(table[i].valid_rows, ""), table[i].iterations,
                        statusText(table[i], lines[i]), numbersText(table[i].parameters));
  }
  return text;
}

std::string jsonText(std::span<const FittedLine> table, const std::vector<SourceLine>& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string members = "\"loss\":";
    appendJsonNumber(members, table[i].loss, Precision::kF64);
    members += fmt::format(
        ",\"valid_rows\":{},\"iterations\":{},\"start\":{},\"parameters\":{},"
        "\"standard_errors\":{}",
        validRowsText(table[i].valid_rows, "null"), table[i].iterations, table[i].start,
        jsonNumbers(table[i].parameters), jsonNumbers(table[i].standard_errors));
    text += (i == 0 ? "[\n" : ",\n") + jsonObject(i, lines[i], statusText(table[i], lines[i]), members);
  }
  return text + "\n]\n";
}

void takeFits(const Fits& fits, const Program& program, std::span<const std::size_t> part,
              std::vector<FittedLine>& table) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    const auto first = static_cast<std::ptrdiff_t>(program.parameterOffset(i));
    const auto last = static_cast<std::ptrdiff_t>(program.parameterOffset(i + 1));
    table[part[i]] = {.loss = fits.losses.values[i],
                      .valid_rows = fits.losses.valid_rows[i],
                      .iterations = fits.iterations[i],
                      .status = fits.statuses[i],
                      .start = fits.starts[i],
                      .parameters = {fits.parameters.begin() + first, fits.parameters.begin() + last},
                      .standard_errors = {fits.standard_errors.begin() + first, fits.standard_errors.begin() + last}};
  }
}

/// The good lines with the best losses, `count` at most, best first.
std::vector<std::size_t> bestLines(std::span<const FittedLine> table, const Evaluation& evaluation,
                                   const LossOptions& loss, std::size_t count) {
  std::vector<std::size_t> lines = evaluation.good();
  std::erase_if(lines, [&](std::size_t line) { return !std::isfinite(table[line].loss); });
  const bool is_least_best = loss.custom || infoOf(loss.kind).worst > 0;
  std::ranges::stable_sort(lines, {},
                           [&](std::size_t line) { return is_least_best ? table[line].loss : -table[line].loss; });
  lines.resize(std::min(lines.size(), count));
  return lines;
}

/// Fits the best lines again in f64, from the parameters that were found. A line that fails there keeps its fit.
void refine(const FitCommand& options, const FitOptions& fit, const Evaluation& evaluation,
            std::vector<FittedLine>& table) {
  const std::vector<std::size_t> best = bestLines(table, evaluation, fit.loss, options.refine);
  if (best.empty()) return;
  EngineOptions wide = options.evaluation.engine;
  wide.precision = Precision::kF64;
  const Engine engine = Engine::create(wide).value();
  const Dataset data = engine.upload(viewOf(evaluation.roles)).value();
  std::vector<double> starts;
  for (const std::size_t line : best) {
    starts.insert(starts.end(), table[line].parameters.begin(), table[line].parameters.end());
  }
  const Program program = engine.compile(evaluation.batchOf(best).expressions, evaluation.compile);
  const Fits fits = engine.fit(program, data, starts, fit).value();
  const std::vector<FittedLine> before = table;
  takeFits(fits, program, best, table);
  for (const std::size_t line : best) {
    if (!std::isfinite(table[line].loss) || table[line].status == FitStatus::kFailed) {
      table[line] = before[line];
      continue;
    }
    table[line].iterations += before[line].iterations;
    table[line].start = before[line].start;
  }
  for (const Failure& failure : fits.losses.failures) report(failure.error);
}

ExitStatus runFit(const FitCommand& options) {
  FitOptions fit_options = options.fit;
  readLoss(options.loss, fit_options.loss);
  Evaluation evaluation = prepare(options.evaluation, false);
  evaluation.copies = options.starts;
  evaluation.compile.deferred = true;
  const std::vector<SourceLine>& lines = evaluation.lines;
  std::set<std::uint32_t> parameters;
  for (const SourceLine& line : lines) {
    for (const Token& token : line.ok() ? line.expression->tokens() : std::span<const Token>()) {
      if (token.kind == Token::Kind::kParameter) parameters.insert(token.index);
    }
  }
  fit_options.bounds = readBounds(options.bounds, parameters);
  return writeEvaluation(evaluation, options.evaluation, [&](OutputFile& out) {
    std::vector<FittedLine> table(lines.size());
    const auto fit = [&](const Program& program, std::span<const std::size_t> part, std::span<const double> around) {
      const std::vector<double> starts = program.drawStarts(around, options.starts, options.seed, part).value();
      Fits fits = evaluation.engine.fit(program, evaluation.data, starts, fit_options).value();
      takeFits(fits, program, part, table);
      return std::move(fits.losses.failures);
    };
    evaluateInParts(evaluation, options.evaluation, fit);
    if (options.refine > 0) refine(options, fit_options, evaluation, table);
    out.write(options.evaluation.json ? jsonText(table, lines) : csvText(table, lines));
  });
}

}  // namespace

Runner defineFit(CLI::App& app) {
  auto options = std::make_shared<FitCommand>();
  options->evaluation.default_parameter = 1;
  addEvaluationOptions(app, options->evaluation);
  addDropMissingOption(app, options->evaluation);
  app.get_option("--target")->required();
  addLossOption(
      app, options->loss,
      "what is minimised: by name, with a constant as in huber:1.5 and quantile:0.9, or the weighted mean of an "
      "expression over the prediction f, the target y and the weight w",
      canBeFitted);
  addNanChoice(app, options->fit.loss.nan,
               "rows where the prediction or a derivative is NaN or infinite: propagate and reject take no parameters "
               "that give some, skip leaves these rows out");
  addCount(app, "--iterations", options->fit.iterations, "passes over the data for each start at most", 1, 1'000'000);
  addBoundsOption(app, options->bounds,
                  "bounds of parameters, in all expressions: p0:0: for p0 of at least 0, p1:-1:1 for p1 from -1 to 1, "
                  "p2::5 for p2 of at most 5; a start outside is moved to the bound");
  addNumber(app, "--tolerance", options->fit.loss_tolerance,
            "end where the next step would lower the loss by no more than this share of it")
      ->type_name("T");
  addCount(app, "--starts", options->starts,
           "how many starts to fit from: the given one, and others drawn around it; the best result counts", 1, 100);
  addCount(app, "--seed", options->seed, "of the drawn starts");
  addCount(app, "--refine", options->refine,
           "fit the N expressions with the best losses again in f64, from the parameters that were found")
      ->default_str("");
  addJsonOption(app, options->evaluation.json);
  app.footer(
      "Fits the parameters of each expression to the target, from the values that follow it after a\n"
      "TAB, or --params, or 1. Writes a line index,loss,valid_rows,iterations,status,parameters per expression, in\n"
      "order; with --json also standard_errors (null where they cannot be had, and at a bound) and start, the start "
      "that won.\n"
      "Examples:\n"
      "  sr-jit fit 'p0 * axis ^ p1' --data planets.csv --target period\n"
      "  sr-jit fit 'p0 + p1*dose/(p2 + dose)' --data assay.csv --target y --bounds p0:0:,p2:0:10\n"
      "  sr-jit fit --exprs population.txt --data table.csv --target y --starts 8 --nan skip --json --out fits.json\n"
      "  sr-jit fit --exprs population.txt --data table.csv --target y --loss huber:1.5 --refine 10");
  return [options] { return runFit(*options); };
}

}  // namespace srjit

#include <fmt/format.h>

#include <limits>

#include "tools/commands.h"
#include "tools/evaluation.h"

namespace srjit {
namespace {

struct LossCommand {
  EvaluationOptions evaluation;
  std::string loss = "mse";
  NanPolicy nan = NanPolicy::kPropagate;
};

/// The losses of all lines, in order.
struct Table {
  std::vector<double> losses;
  std::vector<std::uint64_t> valid_rows;
};

std::string csvText(const Table& table, const std::vector<SourceLine>& lines) {
  std::string text = "index,loss,valid_rows,status\n";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += fmt::format("{},", i);
    appendNumber(text, table.losses[i], Precision::kF64);
    text += fmt::format(",{},{}\n", validRowsText(table.valid_rows[i], ""),
                        lines[i].ok() ? "ok" : nameOf(lines[i].expression.error().code));
  }
  return text;
}

std::string jsonText(const Table& table, const std::vector<SourceLine>& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string members = "\"loss\":";
    appendJsonNumber(members, table.losses[i], Precision::kF64);
    members += fmt::format(",\"valid_rows\":{}", validRowsText(table.valid_rows[i], "null"));
    text += (i == 0 ? "[\n" : ",\n") + jsonObject(i, lines[i], members);
  }
  return text + "\n]\n";
}

/// Counts the rows with a finite prediction of those lines of `part` whose losses leave them open: NanPolicy::kSkip
/// counts what kPropagate does not. Where that fails, they stay open.
void countValidRows(const Evaluation& evaluation, const LossOptions& options, std::span<const std::size_t> part,
                    Table& table) {
  std::vector<std::size_t> open;
  for (const std::size_t line : part) {
    if (table.valid_rows[line] == Losses::kNotCounted) open.push_back(line);
  }
  if (open.empty()) return;
  const Batch batch = evaluation.batchOf(open);
  const Program program = evaluation.engine.compile(batch.expressions, evaluation.compile);
  LossOptions counting = options;
  counting.nan = NanPolicy::kSkip;
  const Result<Losses> losses = evaluation.engine.loss(program, evaluation.data, batch.parameters, counting);
  if (!losses) return;
  for (std::size_t i = 0; i < open.size(); ++i) table.valid_rows[open[i]] = losses->valid_rows[i];
  for (const Failure& failure : losses->failures) table.valid_rows[open[failure.expression]] = Losses::kNotCounted;
}

ExitStatus runLoss(const LossCommand& options) {
  LossOptions loss{.nan = options.nan};
  readLoss(options.loss, loss);
  Evaluation evaluation = prepare(options.evaluation, false);
  const std::vector<SourceLine>& lines = evaluation.lines;
  return writeEvaluation(evaluation, options.evaluation, [&](OutputFile& out) {
    Table table{std::vector<double>(lines.size(), std::numeric_limits<double>::quiet_NaN()),
                std::vector<std::uint64_t>(lines.size(), 0)};
    const auto evaluate = [&](const Program& program, std::span<const std::size_t> part,
                              std::span<const double> parameters) {
      Losses losses = evaluation.engine.loss(program, evaluation.data, parameters, loss).value();
      for (std::size_t i = 0; i < part.size(); ++i) {
        table.losses[part[i]] = losses.values[i];
        table.valid_rows[part[i]] = losses.valid_rows[i];
      }
      countValidRows(evaluation, loss, part, table);
      return std::move(losses.failures);
    };
    evaluateInParts(evaluation, options.evaluation, evaluate);
    out.write(options.evaluation.json ? jsonText(table, lines) : csvText(table, lines));
  });
}

}  // namespace

Runner defineLoss(CLI::App& app) {
  auto options = std::make_shared<LossCommand>();
  addEvaluationOptions(app, options->evaluation);
  addDropMissingOption(app, options->evaluation);
  app.get_option("--target")->required();
  addLossOption(app, options->loss,
                "the loss by name, with a constant as in huber:1.5 and quantile:0.9, or the weighted mean of an "
                "expression over the prediction f, the target y and the weight w");
  addNanChoice(app, options->nan,
               "rows whose prediction is NaN or infinite: propagate takes them like all others, skip leaves them out, "
               "reject makes the loss infinite");
  addJsonOption(app, options->evaluation.json);
  app.footer(
      "Writes a line index,loss,valid_rows,status per expression, in order. valid_rows is empty (JSON: null) where "
      "the\n"
      "rows with a finite prediction could not be counted.\n"
      "Examples:\n"
      "  sr-jit loss 'x0*p0 + p1' --params '1.5 0.7' --data table.csv --target y --loss r2\n"
      "  sr-jit loss 'x0*p0 + p1' --params '1.5 0.7' --data table.csv --target y --loss 'abs(f - y)^1.5'\n"
      "  sr-jit loss --exprs population.txt.xz --from postfix --data table.csv --target y --nan skip --out losses.csv");
  return [options] { return runLoss(*options); };
}

}  // namespace srjit

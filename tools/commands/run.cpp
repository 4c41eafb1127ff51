#include <limits>

#include "tools/commands.h"
#include "tools/evaluation.h"

namespace srjit {
namespace {

/// One object per line: index, status, and values or message. Numbers that JSON cannot hold become strings.
template <class T>
void writeJson(OutputFile& out, const std::vector<SourceLine>& lines, std::span<const std::span<const T>> columns) {
  constexpr Precision kPrecision = kPrecisionOf<T>;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string values;
    if (lines[i].ok()) {
      for (const T value : columns[i]) {
        values += values.empty() ? "\"values\":[" : ",";
        appendJsonNumber(values, static_cast<double>(value), kPrecision);
      }
      values += ']';
    }
    out.write((i == 0 ? "[\n" : ",\n") + jsonObject(i, lines[i], values));
  }
  out.write("\n]\n");
}

/// The predictions of all lines; those of bad lines are NaN.
template <class T>
ExitStatus evaluateAs(Evaluation& evaluation, const EvaluationOptions& options) {
  const std::size_t rows = evaluation.data.rows();
  const std::vector<std::size_t> good = evaluation.good();
  return writeEvaluation(evaluation, options, [&](OutputFile& out) {
    std::vector<T> predictions(good.size() * rows);
    std::size_t done = 0;
    evaluateInParts(
        evaluation, options,
        [&](const Program& program, std::span<const std::size_t> lines, std::span<const double> parameters) {
          const std::span<T> part(predictions.data() + done * rows, lines.size() * rows);
          done += lines.size();
          return evaluation.engine.evaluate(program, evaluation.data, parameters, part).value();
        });
    const std::vector<T> missing(rows, std::numeric_limits<T>::quiet_NaN());
    std::vector<std::span<const T>> columns(evaluation.lines.size(), missing);
    for (std::size_t i = 0; i < good.size(); ++i) columns[good[i]] = {predictions.data() + i * rows, rows};
    if (options.json) {
      writeJson<T>(out, evaluation.lines, columns);
    } else {
      writeMatrix<T>(out, columns, options.out);
    }
  });
}

}  // namespace

Runner defineRun(CLI::App& app) {
  auto options = std::make_shared<EvaluationOptions>();
  addEvaluationOptions(app, *options);
  addJsonOption(app, options->json);
  app.footer(
      "Writes CSV with the header e0,e1,... and one line per data row, or with --out FILE.npy a matrix of rows x\n"
      "expressions. The column of a bad expression is nan.\n"
      "Examples:\n"
      "  sr-jit run 'x0*sin(x1)' 'x0 + 1' --data table.csv\n"
      "  sr-jit run --exprs population.txt --data table.npy --target 3 --precision f64 --out predictions.npy");
  return [options] {
    Evaluation evaluation = prepare(*options, true);
    return withZeroOf(options->engine.precision, [&]<class T>(T) { return evaluateAs<T>(evaluation, *options); });
  };
}

}  // namespace srjit

#include "tools/options.h"

#include <fmt/format.h>

#include "tools/output_file.h"

namespace srjit {

void addExpressionOptions(CLI::App& app, ExpressionOptions& options) {
  auto* texts =
      app.add_option("expressions", options.texts, "expressions; put -- before one that starts with a minus sign")
          ->type_name("EXPRESSION");
  app.add_option("--exprs", options.file,
                 "read expressions from FILE, one a line; - is standard input; .gz and .xz too")
      ->type_name("FILE")
      ->excludes(texts);
  addChoice(app, "--from", options.from,
            {{"infix", Language::kInfix},
             {"postfix", Language::kPostfix},
             {"prefix", Language::kPrefix},
             {"json", Language::kJson}},
            "the form of the expressions");
  app.add_option("--params", options.parameters,
                 "values of p0, p1, ... for expressions without their own, as \"1.5 0.7\"")
      ->type_name("NUMBERS");
  app.add_flag("--keep-going", options.keep_going, "exit with 0 although some expressions are bad");
}

Result<std::vector<SourceLine>> readExpressions(const ExpressionOptions& options, const ColumnNames& columns) {
  if (options.texts.empty() && options.file.empty()) {
    throw CLI::ValidationError("expressions", "give an expression, or --exprs FILE");
  }
  Result<std::vector<double>> parameters = parseNumbers(options.parameters);
  if (!parameters) return showPlace(parameters.error(), options.parameters, "--params", 1);
  Result<std::vector<SourceLine>> list = options.file.empty()
                                             ? parseArguments(options.texts, options.from, columns)
                                             : srjit::readExpressions(options.file, options.from, columns);
  if (!list) return list;
  if (list->empty()) return Error{Errc::kInvalid, fmt::format("{}: no expressions in it", options.file), {}};
  for (SourceLine& line : *list) {
    if (!line.ok()) report(line.expression.error());
    if (line.parameters.empty()) line.parameters = *parameters;
  }
  return list;
}

ExitStatus batchStatus(const std::vector<SourceLine>& list, const ExpressionOptions& options) {
  ExitStatus worst = kDone;
  for (const SourceLine& line : list) {
    if (!line.ok()) worst = std::max(worst, exitStatus(line.expression.error().code));
  }
  return options.keep_going && worst == kBadInput ? kDone : worst;
}

void addNumericOptions(CLI::App& app, NumericOptions& options) {
  addChoice(app, "--math", options.math,
            {{"strict", Math::kStrict}, {"precise", Math::kPrecise}, {"fast", Math::kFast}},
            "how faithfully kernels follow the expressions: docs/accuracy.md");
  addChoice(app, "--precision", options.precision, {{"f32", Precision::kF32}, {"f64", Precision::kF64}},
            "the type that kernels compute in");
}

void addColumnsOption(CLI::App& app, std::vector<std::string>& columns) {
  app.add_option("--columns", columns, "names of the variables, as mass,speed")->delimiter(',')->type_name("NAMES");
}

void addJsonOption(CLI::App& app, bool& json) { app.add_flag("--json", json, "print JSON"); }

void addQuietOption(CLI::App& app, bool& quiet) {
  app.add_flag("--quiet", quiet, "print nothing but results and errors");
}

ExitStatus writeResults(std::string_view text) {
  Result<OutputFile> out = OutputFile::create("-");
  if (!out) return report(out.error());
  out->write(text);
  const Status written = out->publish();
  return written ? kDone : report(written.error());
}

}  // namespace srjit

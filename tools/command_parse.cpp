#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/commands.h"
#include "tools/data_file.h"
#include "tools/options.h"

namespace srjit {
namespace {

struct Options {
  ExpressionOptions expressions;
  Language to = Language::kInfix;
  std::vector<std::string> columns;
  bool json = false;
};

/// One line that `--exprs` reads back.
std::string textLine(const SourceLine& line, const Options& options, const ColumnNames& columns) {
  std::string text = print(*line.expression, options.to, columns);
  for (std::size_t i = 0; i < line.parameters.size(); ++i) {
    text += i == 0 ? '\t' : ' ';
    appendNumber(text, line.parameters[i], Precision::kF64);
  }
  return text + '\n';
}

nlohmann::ordered_json jsonObject(std::size_t index, const SourceLine& line, const Options& options,
                                  const ColumnNames& columns) {
  nlohmann::ordered_json object{{"index", index}};
  if (!line.ok()) {
    object["status"] = statusWord(line.expression.error().code);
    object["message"] = line.expression.error().message;
    return object;
  }
  const Expression& expression = *line.expression;
  object["status"] = "ok";
  const std::string text = print(expression, options.to, columns);
  if (options.to == Language::kJson) {
    object["expression"] = nlohmann::ordered_json::parse(text);
  } else {
    object["expression"] = text;
  }
  object["tokens"] = expression.size();
  object["stack_height"] = expression.stackHeight();
  object["variables"] = expression.variableCount();
  object["parameters"] = expression.parameterCount();
  return object;
}

ExitStatus run(const Options& options) {
  const ColumnNames columns(options.columns);
  const Result<std::vector<SourceLine>> list = readExpressions(options.expressions, columns);
  if (!list) return report(list.error());
  std::string text;
  auto objects = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < list->size(); ++i) {
    const SourceLine& line = (*list)[i];
    if (options.json) {
      objects.push_back(jsonObject(i, line, options, columns));
    } else if (line.ok()) {
      text += textLine(line, options, columns);
    }
  }
  if (options.json) text = objects.dump(2) + '\n';
  return std::max(writeResults(text), batchStatus(*list, options.expressions));
}

}  // namespace

Runner defineParse(CLI::App& app) {
  auto options = std::make_shared<Options>();
  addExpressionOptions(app, options->expressions);
  addChoice(app, "--to", options->to,
            {{"infix", Language::kInfix},
             {"postfix", Language::kPostfix},
             {"prefix", Language::kPrefix},
             {"json", Language::kJson}},
            "the form to print");
  addColumnsOption(app, options->columns);
  addJsonOption(app, options->json);
  app.footer(
      "Examples:\n"
      "  sr-jit parse 'x0 * (x1 + 1)^2' --to postfix\n"
      "  sr-jit parse --from postfix --to json 'mass speed square *' --columns mass,speed\n"
      "  sr-jit parse --exprs population.txt.xz --from prefix > population.infix");
  return [options] { return run(*options); };
}

}  // namespace srjit

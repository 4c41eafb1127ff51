#include <fmt/format.h>

#include "ir/text/latex.h"
#include "tools/commands.h"
#include "tools/files/data.h"
#include "tools/options.h"

namespace srjit {
namespace {

struct ParseOptions {
  ExpressionOptions expressions;
  std::optional<Language> to = Language::kInfix;  ///< none: LaTeX, which no command reads
  std::string columns;
  bool json = false;
};

std::string printed(const Expression& expression, const ParseOptions& options, const ColumnNames& columns) {
  return options.to ? print(expression, *options.to, columns) : text::latexText(expression, columns);
}

/// One line, which `--exprs` reads back unless it is LaTeX.
std::string textLine(const SourceLine& line, const ParseOptions& options, const ColumnNames& columns) {
  std::string text = printed(*line.expression, options, columns);
  char separator = '\t';
  for (const double value : line.parameters()) {
    text += std::exchange(separator, ' ');
    appendNumber(text, value, Precision::kF64);
  }
  return text + '\n';
}

std::string jsonText(std::size_t index, const SourceLine& line, const ParseOptions& options,
                     const ColumnNames& columns) {
  if (!line.ok()) return jsonObject(index, line);
  const Expression& expression = *line.expression;
  const std::string text = printed(expression, options, columns);
  // Its JSON stays text: a tree of it would be as deep as the expression, and nlohmann's printer recurses.
  return jsonObject(index, line,
                    fmt::format(R"("expression":{},"tokens":{},"stack_height":{},"variables":{},"parameters":{})",
                                options.to == Language::kJson ? text : jsonString(text), expression.size(),
                                expression.stackHeight(), expression.variableCount(), expression.parameterCount()));
}

ExitStatus runParse(const ParseOptions& options) {
  const ColumnNames columns = readColumns(options.columns);
  const std::vector<SourceLine> list = readExpressions(options.expressions, columns);
  std::string text;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (options.json) {
      text += (i == 0 ? "[\n" : ",\n") + jsonText(i, list[i], options, columns);
    } else if (list[i].ok()) {
      text += textLine(list[i], options, columns);
    }
  }
  if (options.json) text += "\n]\n";
  return std::max(writeResults(text), batchStatus(list, options.expressions));
}

}  // namespace

Runner defineParse(CLI::App& app) {
  auto options = std::make_shared<ParseOptions>();
  addExpressionOptions(app, options->expressions);
  std::vector<std::pair<std::string, std::optional<Language>>> forms;
  for (const char* word : {"infix", "postfix", "prefix", "json"}) forms.emplace_back(word, findLanguage(word));
  forms.emplace_back("latex", std::nullopt);
  addChoice(app, "--to", options->to, forms, "the form to print");
  addColumnsOption(app, options->columns);
  addJsonOption(app, options->json);
  app.footer(
      "Examples:\n"
      "  sr-jit parse 'x0 * (x1 + 1)^2' --to postfix\n"
      "  sr-jit parse --from postfix --to json 'mass speed square *' --columns mass,speed\n"
      "  sr-jit parse --exprs population.txt.xz --from prefix > population.infix");
  return [options] { return runParse(*options); };
}

}  // namespace srjit

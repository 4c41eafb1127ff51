#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ir/lexer.h"
#include "passes/dag.h"
#include "passes/pass.h"
#include "tools/commands.h"
#include "tools/options.h"

namespace srjit {
namespace {

struct Options {
  ExpressionOptions expressions;
  Math math = Math::kPrecise;
  Precision precision = Precision::kF32;
  std::string columns;
  std::string passes = "standard";
  std::string print_after;
  bool list = false, json = false;
};

/// What one pass made of the graph.
struct Step {
  std::string pass;
  std::size_t nodes;
  double seconds;
  std::string graph;  // only if asked for
};

std::string_view exactnessWord(Exactness exactness) { return exactness == Exactness::kExact ? "exact" : "bounded"; }

ExitStatus listPasses(bool json) {
  std::string text;
  auto objects = nlohmann::ordered_json::array();
  for (const Pass& pass : allPasses()) {
    text += fmt::format("{:<18}{:<9}{}\n", pass.name, exactnessWord(pass.exactness), pass.doc);
    objects.push_back({{"name", pass.name}, {"exactness", exactnessWord(pass.exactness)}, {"doc", pass.doc}});
  }
  return writeResults(json ? objects.dump(2) + '\n' : text);
}

Status checkPrintAfter(const Options& options, const Pipeline& pipeline) {
  if (options.print_after.empty() || options.print_after == "all") return okStatus();
  std::string names;
  for (const Pass& pass : pipeline.passes()) {
    if (pass.name == options.print_after) return okStatus();
    names += (names.empty() ? "" : ", ") + pass.name;
  }
  return Error{Errc::kInvalid,
               fmt::format("--print-after {}: no such pass runs; these do: {}", text::inQuotes(options.print_after),
                           names.empty() ? "none" : names),
               {}};
}

std::string textReport(std::size_t nodes, const std::vector<Step>& steps, const Dag& result) {
  std::string text =
      fmt::format("; {:<18}{:>10}{:>14}\n; {:<18}{:>10}\n", "pass", "nodes", "microseconds", "(input)", nodes);
  for (const Step& step : steps) {
    text += fmt::format("; {:<18}{:>10}{:>14.1f}\n", step.pass, step.nodes, step.seconds * 1e6);
  }
  for (const Step& step : steps) {
    if (!step.graph.empty()) text += fmt::format("; after {}\n{}", step.pass, step.graph);
  }
  return text + "; result\n" + printDag(result);
}

std::string jsonReport(std::size_t nodes, const std::vector<Step>& steps, const Dag& result) {
  nlohmann::ordered_json object{{"nodes", nodes}, {"passes", nlohmann::ordered_json::array()}};
  for (const Step& step : steps) {
    nlohmann::ordered_json entry{{"name", step.pass}, {"nodes", step.nodes}, {"seconds", step.seconds}};
    if (!step.graph.empty()) entry["graph"] = step.graph;
    object["passes"].push_back(std::move(entry));
  }
  object["graph"] = printDag(result);
  return object.dump(2) + '\n';
}

ExitStatus run(const Options& options) {
  if (options.list) return listPasses(options.json);
  const Result<Pipeline> pipeline = Pipeline::parse(options.passes, options.math);
  if (!pipeline) return report(showPlace(pipeline.error(), options.passes, "--passes", 1));
  if (const Status known = checkPrintAfter(options, *pipeline); !known) return report(known.error());
  const Result<ColumnNames> columns = readColumns(options.columns);
  if (!columns) return report(columns.error());
  const Result<std::vector<SourceLine>> list = readExpressions(options.expressions, *columns);
  if (!list) return report(list.error());
  std::vector<Expression> batch;
  for (const SourceLine& line : *list) {
    if (line.ok()) batch.push_back(*line.expression);
  }
  if (batch.empty()) return batchStatus(*list, options.expressions);
  Dag input = Dag::fromExpressions(batch, options.precision);
  const std::size_t nodes = input.size();
  std::vector<Step> steps;
  const auto observe = [&](const Pass& pass, const Dag& dag, double seconds) {
    const bool shown = options.print_after == "all" || options.print_after == pass.name;
    steps.push_back({pass.name, dag.size(), seconds, shown ? printDag(dag) : std::string()});
  };
  const Dag result = pipeline->run(std::move(input), PassContext{options.math}, observe);
  const std::string text = options.json ? jsonReport(nodes, steps, result) : textReport(nodes, steps, result);
  return std::max(writeResults(text), batchStatus(*list, options.expressions));
}

}  // namespace

Runner definePasses(CLI::App& app) {
  auto options = std::make_shared<Options>();
  addExpressionOptions(app, options->expressions);
  app.add_option("--passes", options->passes,
                 "the passes to run, as fold,simplify; standard stands for those of every kernel, none for no pass")
      ->type_name("LIST")
      ->capture_default_str();
  app.add_option("--print-after", options->print_after, "also print the graph after this pass, or after all")
      ->type_name("NAME|all");
  app.add_flag("--list", options->list, "list the passes there are");
  addNumericOptions(app, options->math, options->precision);
  addColumnsOption(app, options->columns);
  addJsonOption(app, options->json);
  app.footer(
      "Examples:\n"
      "  sr-jit passes 'x0*x1 + x0*x1' 'x0*x1 - 2'\n"
      "  sr-jit passes --passes fold,simplify --print-after all '(x0 + 0) * 1'\n"
      "  sr-jit passes --list");
  return [options] { return run(*options); };
}

}  // namespace srjit

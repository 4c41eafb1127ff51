#include <fmt/format.h>

#include "ir/ops.h"
#include "ir/text/lexer.h"
#include "passes/dag.h"
#include "passes/pass.h"
#include "passes/rewrite_log.h"
#include "tools/commands.h"
#include "tools/explain/stages.h"
#include "tools/options.h"
#include "tools/report.h"

namespace srjit {
namespace {

struct PassesOptions {
  ExpressionOptions expressions;
  Math math = Math::kPrecise;
  Precision precision = Precision::kF32;
  std::string columns;
  std::string passes = "standard";
  std::string print_after;
  bool list = false, json = false, gradient = false, print_changed = false, dot = false;
};

/// What one pass made of the graph.
struct Step {
  std::string pass;
  std::size_t nodes;
  double seconds;
  std::string graph;                       ///< only if asked for
  std::vector<explain::DiffLine> changes;  ///< only if asked for; none where nothing changed
};

/// The graph from the expressions to the end.
struct Stages {
  std::size_t nodes;  ///< before the first pass
  std::string input;  ///< before the first pass; only with --print-after
  std::vector<Step> steps;
  std::string result;
  std::vector<std::string> roots;                   ///< what each root is; only with --gradient
  std::vector<std::pair<std::string, Dag>> graphs;  ///< only with --dot: those that are to be drawn, with names
};

std::string_view exactnessWord(Exactness exactness) { return exactness == Exactness::kExact ? "exact" : "bounded"; }

ExitStatus listPasses(bool json) {
  std::string text;
  Json objects = Json::array();
  for (const Pass& pass : allPasses()) {
    text += fmt::format("{:<18}{:<9}{}\n", pass.name, exactnessWord(pass.exactness), pass.doc);
    objects.push_back({{"name", pass.name}, {"exactness", exactnessWord(pass.exactness)}, {"doc", pass.doc}});
  }
  return writeResults(json ? dump(objects) : text);
}

void checkPrintAfter(const PassesOptions& options, const Pipeline& pipeline) {
  if (options.print_after.empty() || options.print_after == "all") return;
  std::string names;
  for (const Pass& pass : pipeline.passes()) {
    if (pass.name == options.print_after) return;
    names += (names.empty() ? "" : ", ") + pass.name;
  }
  refuse("--print-after {}: no such pass runs; these do: {}", text::inQuotes(options.print_after),
         names.empty() ? "none" : names);
}

/// Runs the passes. All graphs that are printed call an operator by the same number.
Stages stagesOf(std::span<const Expression> batch, const Pipeline& pipeline, const PassesOptions& options) {
  // The first run of a pass in a process also sets up its tables, which is none of the time that is shown.
  (void)pipeline.run(Dag::fromExpressions(batch.first(1), options.precision), PassContext{options.math});
  NodeNumbers numbers;
  Dag input = Dag::fromExpressions(batch, options.precision);
  Stages stages;
  stages.nodes = input.size();
  if (!options.print_after.empty() || options.print_changed) stages.input = printDag(input, numbers);
  std::vector<std::string> before = explain::splitLines(stages.input);
  const auto isShown = [&](const std::string& pass) {
    return options.print_after == "all" || options.print_after == pass;
  };
  if (options.dot && !options.print_after.empty()) stages.graphs.push_back({"input", input});
  const auto observe = [&](const Pass& pass, const Dag& dag, double seconds) {
    Step& step = stages.steps.emplace_back(Step{pass.name, dag.size(), seconds, {}, {}});
    if (isShown(pass.name)) step.graph = printDag(dag, numbers);
    if (options.dot && isShown(pass.name)) stages.graphs.push_back({"after " + pass.name, dag});
    if (!options.print_changed) return;
    std::vector<std::string> after = explain::splitLines(printDag(dag, numbers));
    if (after != before) step.changes = explain::lineDiff(before, after);
    before = std::move(after);
  };
  const Dag result = pipeline.run(std::move(input), PassContext{options.math}, observe);
  stages.result = printDag(result, numbers);
  if (options.dot && stages.graphs.empty()) stages.graphs.push_back({"result", result});
  return stages;
}

/// The statements of one graph, whose nodes begin with `prefix`.
std::string statementsOf(const Dag& dag, const std::string& prefix, explain::NodeNames& names) {
  const explain::Ids ids = names.of(dag);
  std::string text;
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    text += node.isOperator() ? fmt::format("    {}{} [label=\"{} {}\"];\n", prefix, id, ids[id], infoOf(node.op).name)
                              : fmt::format("    {}{} [label=\"{}\", shape=ellipse];\n", prefix, id, ids[id]);
    const bool exchangeable = node.isOperator() && node.arity() == 2 && infoOf(node.op).has(OpProps::kCommutative);
    const bool ordered = node.arity() > 1 && !exchangeable;
    for (std::size_t k = 0; k < node.inputs().size(); ++k) {
      text += fmt::format("    {0}{1} -> {0}{2}{3};\n", prefix, id, node.operands[k],
                          ordered ? fmt::format(" [label=\"{}\"]", k) : "");
    }
  }
  for (std::size_t root = 0; root < dag.roots().size(); ++root) {
    text += fmt::format("    {0}root{1} [label=\"root {1}\", shape=plaintext];\n    {0}root{1} -> {0}{2};\n", prefix,
                        root, dag.roots()[root]);
  }
  return text;
}

/// One digraph; of several graphs, each is a cluster. Operators have the numbers of printDag(), which are the same in
/// all of them; operands are numbered from 0 where their order matters.
std::string dotOf(std::span<const std::pair<std::string, Dag>> graphs) {
  explain::NodeNames names;
  std::string text = "digraph srjit {\n  node [shape=box, fontname=\"monospace\"];\n";
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    const std::string statements = statementsOf(graphs[g].second, fmt::format("g{}n", g), names);
    text += graphs.size() == 1
                ? statements
                : fmt::format("  subgraph cluster{} {{\n    label=\"{}\";\n{}  }}\n", g, graphs[g].first, statements);
  }
  return text + "}\n";
}

std::string textReport(const Stages& stages) {
  std::string text =
      fmt::format("; {:<18}{:>10}{:>14}\n; {:<18}{:>10}\n", "pass", "nodes", "microseconds", "(input)", stages.nodes);
  for (const Step& step : stages.steps) {
    text += fmt::format("; {:<18}{:>10}{:>14.1f}\n", step.pass, step.nodes, step.seconds * 1e6);
  }
  if (!stages.input.empty()) text += "; input\n" + stages.input;
  for (const Step& step : stages.steps) {
    if (!step.graph.empty()) text += fmt::format("; after {}\n{}", step.pass, step.graph);
    if (!step.changes.empty()) text += fmt::format("; changed by {}\n", step.pass);
    for (const auto& [sign, line] : step.changes) text += fmt::format("{} {}\n", sign, line);
  }
  text += "; result\n" + stages.result;
  for (std::size_t i = 0; i < stages.roots.size(); ++i) text += fmt::format("; root {}: {}\n", i, stages.roots[i]);
  return text;
}

std::string jsonReport(const Stages& stages) {
  Json object{{"nodes", stages.nodes}};
  if (!stages.input.empty()) object["input"] = stages.input;
  object["passes"] = Json::array();
  for (const Step& step : stages.steps) {
    Json entry{{"name", step.pass}, {"nodes", step.nodes}, {"seconds", step.seconds}};
    if (!step.graph.empty()) entry["graph"] = step.graph;
    for (const auto& [sign, line] : step.changes) entry["changes"].push_back(fmt::format("{} {}", sign, line));
    object["passes"].push_back(std::move(entry));
  }
  object["graph"] = stages.result;
  if (!stages.roots.empty()) object["roots"] = stages.roots;
  return dump(object);
}

ExitStatus runPasses(const PassesOptions& options) {
  if (options.list) return listPasses(options.json);
  Pipeline pipeline = readPasses(options.passes, options.math);
  if (options.gradient) pipeline = pipeline.withDerivatives();
  checkPrintAfter(options, pipeline);
  const std::vector<SourceLine> list = readExpressions(options.expressions, readColumns(options.columns));
  std::vector<Expression> batch;
  for (const SourceLine& line : list) {
    if (line.ok()) batch.push_back(*line.expression);
  }
  if (batch.empty()) return batchStatus(list, options.expressions);
  Stages stages = stagesOf(batch, pipeline, options);
  if (options.gradient) stages.roots = explain::derivativeRootNames(batch);
  const std::string text = options.dot ? dotOf(stages.graphs) : options.json ? jsonReport(stages) : textReport(stages);
  return std::max(writeResults(text), batchStatus(list, options.expressions));
}

}  // namespace

Runner definePasses(CLI::App& app) {
  auto options = std::make_shared<PassesOptions>();
  addExpressionOptions(app, options->expressions);
  app.add_option("--passes", options->passes,
                 "the passes to run, as simplify,fma; standard stands for those of every kernel, none for no pass")
      ->type_name("LIST")
      ->capture_default_str();
  CLI::Option* const print_after =
      app.add_option("--print-after", options->print_after,
                     "also print the graph before the first pass, and after this one or after all")
          ->type_name("NAME|all");
  app.add_flag(
         "--print-changed", options->print_changed,
         "also print the graph before the first pass, and for each pass that changed it the lines that it removed "
         "and added")
      ->excludes(print_after);
  CLI::Option* const dot = app.add_flag("--dot", options->dot,
                                        "print the graph as Graphviz's dot reads it; with --print-after those that it "
                                        "names, each as a cluster");
  app.add_flag("--gradient", options->gradient,
               "with derivatives by all parameters: adds the pass differentiate before hoist, or at the end");
  app.add_flag("--list", options->list, "list the passes there are");
  addNumericOptions(app, options->math, options->precision);
  addColumnsOption(app, options->columns);
  addJsonOption(app, options->json);
  dot->excludes(app.get_option("--json"))->excludes(app.get_option("--print-changed"));
  app.footer(
      "Prints one operator per line: its number, its name and its operands. x0 is a variable, p0@1 parameter p0 of\n"
      "expression 2 (numbers of parameters, expressions and roots in a graph count from 0), and #0(2.5) a literal\n"
      "that is passed to kernels as a parameter. With --print-after, an operator whose subtree is unchanged keeps\n"
      "its number.\n"
      "Examples:\n"
      "  sr-jit passes 'x0*x1 + x0*x1' 'x0*x1 - 2'\n"
      "  sr-jit passes --passes simplify,fma --print-after all '(x0 + 0) * 1'\n"
      "  sr-jit passes --print-changed 'x0^2 + x1/4'\n"
      "  sr-jit passes --dot --print-after all 'x0^2 + x1/4' | dot -Tsvg >graphs.svg\n"
      "  sr-jit passes --gradient 'p0 * exp(-p1 * x0)'\n"
      "  sr-jit passes --list");
  return [options] { return runPasses(*options); };
}

}  // namespace srjit

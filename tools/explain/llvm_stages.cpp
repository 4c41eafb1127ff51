#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "compiler/host/jit.h"
#include "compiler/nvptx/kernels.h"
#include "tools/explain/stages.h"

namespace srjit::explain {
namespace {

/// Line i + 1 is node i.
SourceMap numbersOfNodes(const FinalGraph& graph) {
  SourceMap map{"expressions", "", {}};
  for (unsigned id = 0; id < graph.dag.size(); ++id) map.places.push_back({id + 1, 1});
  return map;
}

/// The id of the node whose line begins `number`; none for line 0.
Ids nodesAt(std::string_view number, const FinalGraph& graph) {
  std::size_t line = 0;
  std::from_chars(number.data(), number.data() + number.size(), line);
  return line == 0 || line > graph.ids.size() ? Ids{} : Ids{graph.ids[line - 1]};
}

std::string_view withoutIndent(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : line.substr(first);
}

/// IR: the place is a comment behind the instruction.
std::vector<Line> irLines(std::string_view text, const FinalGraph& graph) {
  constexpr std::string_view kMark = " ; at ";
  std::vector<Line> lines;
  for (const std::string& line : splitLines(text)) {
    const bool is_instruction = line.starts_with("  ") && !withoutIndent(line).starts_with(';');
    Line& made = lines.emplace_back(Line{line, {}, is_instruction});
    const std::size_t at = line.rfind(kMark);
    if (at == std::string::npos) continue;
    made.nodes = nodesAt(line.substr(at + kMark.size()), graph);
    made.text.resize(at);
  }
  return lines;
}

/// Whether a line of assembly is there only since the code names its source.
bool isOfSource(std::string_view line) {
  constexpr std::string_view kBeginnings[] = {".Ltmp",          ".Lfunc_begin", ".cfi_",           "$L__tmp",
                                              "$L__func_begin", "$L__func_end", ".section\t.debug"};
  const bool numbered_file = line.starts_with(".file") && line.find_first_of("0123456789") < line.find('"');
  return numbered_file ||
         std::ranges::any_of(kBeginnings, [&](std::string_view beginning) { return line.starts_with(beginning); });
}

/// Assembly and PTX: a line `.loc FILE LINE COLUMN` is about the instructions up to the next one or the next label of a
/// function.
std::vector<Line> assemblyLines(std::string_view text, const FinalGraph& graph) {
  std::vector<Line> lines;
  Ids nodes;
  for (const std::string& line : splitLines(text)) {
    const std::string_view word = withoutIndent(line);
    if (word.starts_with(".loc")) {
      const std::size_t file = word.find_first_not_of(" \t", 4);
      const std::size_t number = word.find_first_not_of(" \t", word.find_first_of(" \t", file));
      nodes = nodesAt(word.substr(number), graph);
      continue;
    }
    if (isOfSource(word)) continue;
    const bool is_label = !line.empty() && line.front() != '\t' && line.front() != ' ' && word.find(':') != word.npos;
    if (is_label && line.front() != '.' && line.front() != '$') nodes.clear();
    const bool is_instruction =
        !word.empty() && !is_label && word.find_first_of(".#/{}();$") != 0 && line.front() == '\t';
    lines.push_back({line, is_instruction ? nodes : Ids{}, is_instruction});
  }
  return lines;
}

/// By name of a function of the module: the nodes of its calls.
using Callers = std::map<std::string, std::set<Id>>;

Callers callersIn(const std::vector<Line>& ir) {
  constexpr std::string_view kCall = " @srjit_";
  Callers callers;
  for (const Line& line : ir) {
    const std::size_t at = line.text.find(kCall);
    if (at == std::string::npos || !line.is_instruction) continue;
    const std::string name = line.text.substr(at + 2, line.text.find('(', at) - at - 2);
    callers[name].insert(line.nodes.begin(), line.nodes.end());
  }
  return callers;
}

/// Gives the lines of functions that are called the nodes of the calls. `begins(line, name)` and `ends(line)` say where
/// such a function is.
template <class Begins, class Ends>
void addCallees(std::vector<Line>& lines, const Callers& callers, const Begins& begins, const Ends& ends) {
  for (const auto& [name, nodes] : callers) {
    bool inside = false;
    for (Line& line : lines) {
      if (!inside && begins(line.text, name)) inside = true;
      if (inside && line.is_instruction && line.nodes.empty()) line.nodes.assign(nodes.begin(), nodes.end());
      if (inside && ends(line.text)) inside = false;
    }
  }
}

/// The stage with these lines and counts of them.
Json finished(Stage stage, std::vector<Line> lines, double rows) {
  stage.lines = std::move(lines);
  const auto instructions = static_cast<double>(std::ranges::count_if(stage.lines, &Line::is_instruction));
  const auto of_nodes = static_cast<double>(
      std::ranges::count_if(stage.lines, [](const Line& line) { return line.is_instruction && !line.nodes.empty(); }));
  stage.counts = {{"instructions", instructions},
                  {"instructions of nodes", of_nodes},
                  {"rows at once", rows},
                  {"instructions of nodes per row", of_nodes / rows}};
  return stage.json();
}

DeviceOptions deviceOptions(const Request& request) {
  DeviceOptions options;
  options.precision = request.precision;
  options.math = request.math;
  options.arch = request.architecture;
  return options;
}

/// Rows per vector of the processor.
double hostRows(const Request& request) {
  return detectHost().vector_bytes / static_cast<double>(bytesOf(request.precision));
}

Result<std::string> hostIr(const HostJit& jit, const FinalGraph& graph) {
  const SourceMap map = numbersOfNodes(graph);
  return jit.irOf({&graph.dag, 1}, true, {&map, 1});
}

Result<Json> irStage(const Stage& stage, const Result<std::string>& text, const FinalGraph& graph, double rows) {
  if (!text) return text.error();
  std::vector<Line> lines = irLines(*text, graph);
  addCallees(
      lines, callersIn(lines),
      [](const std::string& line, const std::string& name) {
        return line.starts_with("define ") && line.find('@' + name + '(') != std::string::npos;
      },
      [](const std::string& line) { return line == "}"; });
  return finished(stage, std::move(lines), rows);
}

}  // namespace

Result<Json> llvmIrStage(const Request& request, const FinalGraph& graph) {
  const SourceMap map = numbersOfNodes(graph);
  const DeviceOptions options = deviceOptions(request);
  return irStage({"llvm", "LLVM", "LLVM IR of the GPU's kernel", "as sr-jit llvm prints it; after LLVM's passes", ";"},
                 rowsIr({&graph.dag, 1}, options, true, {&map, 1}), graph, options.rows_per_thread);
}

Result<Json> hostIrStage(const Request& request, const FinalGraph& graph) {
  const HostJit jit(request.precision, request.math);
  return irStage({"host-llvm", "CPU LLVM", "LLVM IR of the processor's kernel", "as sr-jit llvm --host prints it", ";"},
                 hostIr(jit, graph), graph, hostRows(request));
}

Result<Json> ptxStage(const Request& request, const FinalGraph& graph) {
  const SourceMap map = numbersOfNodes(graph);
  const DeviceOptions options = deviceOptions(request);
  const Result<std::string> text = rowsPtx({&graph.dag, 1}, options, {&map, 1});
  if (!text) return text.error();
  return finished({"ptx", "PTX", "PTX", "as sr-jit ptx prints it; nvJitLink or ptxas makes machine code of it", "//"},
                  assemblyLines(*text, graph), options.rows_per_thread);
}

Result<Json> assemblyStage(const Request& request, const FinalGraph& graph) {
  const HostJit jit(request.precision, request.math);
  const SourceMap map = numbersOfNodes(graph);
  const Result<std::string> text = jit.assemblyOf({&graph.dag, 1}, {&map, 1});
  if (!text) return text.error();
  // Where code may lie anywhere, calls of assembly name no function.
  const Result<std::string> ir = hostIr(jit, graph);
  if (!ir) return ir.error();
  std::vector<Line> lines = assemblyLines(*text, graph);
  addCallees(
      lines, callersIn(irLines(*ir, graph)),
      [](const std::string& line, const std::string& name) { return line.starts_with(name + ':'); },
      [](const std::string& line) { return line.starts_with(".Lfunc_end"); });
  return finished({"asm", "assembly", "assembly of the processor's kernel", "as sr-jit asm prints it", "#"},
                  std::move(lines), hostRows(request));
}

}  // namespace srjit::explain

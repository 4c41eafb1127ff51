#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "tools/explain/output.h"

namespace srjit::explain {
namespace {

using Texts = std::map<Id, std::string>;

/// "%6 = sin x0"; of a leaf its id.
std::string meaningOf(const Id& id, const Texts& texts) {
  const auto found = texts.find(id);
  return found == texts.end() || found->second == id ? id : id + " = " + found->second;
}

/// "%6 = sin x0": a leaf that is the operand of an operator here is not said again.
std::string meaningsOf(const Ids& ids, const Texts& texts) {
  std::string text;
  std::set<Id> said;
  for (const Id& id : ids) {
    const auto found = texts.find(id);
    if (said.contains(id)) continue;
    text += (text.empty() ? "" : "; ") + meaningOf(id, texts);
    if (found == texts.end()) continue;
    std::string_view operands = found->second;
    while (!operands.empty()) {
      const std::size_t end = std::min(operands.find_first_of(" ,"), operands.size());
      said.emplace(operands.substr(0, end));
      operands.remove_prefix(std::min(end + 1, operands.size()));
    }
  }
  return text;
}

std::string textOf(const Graph& graph, const Texts& texts) {
  std::string text = fmt::format("; after {}: {}\n", graph.name, graph.doc);
  for (const Fired& rule : graph.fired) {
    text += fmt::format(";   {:{}}{} -> {} ({}): {} becomes {}\n", "", 2 * rule.depth, rule.pattern, rule.replacement,
                        rule.keeps, meaningOf(rule.before, texts), meaningOf(rule.after, texts));
  }
  for (const GraphLine& line : graph.lines) {
    const auto isOneOf = [&](const Ids& ids) { return std::ranges::find(ids, line.id) != ids.end(); };
    const char* const sign = isOneOf(graph.added)       ? "+"
                             : isOneOf(graph.moved)     ? "^"
                             : isOneOf(graph.respelled) ? "~"
                                                        : " ";
    text += fmt::format("{} {} = {}\n", sign, line.id, line.text);
  }
  for (const Id& id : graph.removed) text += fmt::format("- {}\n", meaningOf(id, texts));
  for (const auto& [name, id] : graph.roots) text += fmt::format("  {} = {}\n", name, id);
  return text;
}

std::string textOf(const MachineFacts& facts) {
  std::string waits = "-";
  for (const unsigned barrier : facts.waits) waits += std::to_string(barrier);
  const auto number = [](const std::optional<unsigned>& barrier) { return barrier ? std::to_string(*barrier) : "-"; };
  return fmt::format("{:<7} latency {}{:<3} stall {:<2} {} wait {} write {} read {} live {}", facts.pipe,
                     facts.variable_latency ? "~" : "", facts.latency, facts.stall, facts.yield ? "yield" : "     ",
                     facts.waits.empty() ? waits : waits.substr(1), number(facts.write_barrier),
                     number(facts.read_barrier), facts.live);
}

std::string textOf(const Stage& stage, const Texts& texts) {
  constexpr std::size_t kWidest = 72;
  std::size_t width = 0;
  for (const Line& line : stage.lines) width = std::max(width, std::min(line.text.size(), kWidest));
  std::string text = fmt::format("{} {}: {}\n", stage.comment, stage.title, stage.note);
  for (const Count& count : stage.counts) text += fmt::format("{}   {} {}\n", stage.comment, count.value, count.what);
  for (const Line& line : stage.lines) {
    text += line.text;
    if (line.machine || !line.nodes.empty()) {
      text += std::string(width - std::min(width, line.text.size()), ' ') + "  " + stage.comment;
    }
    if (line.machine) text += ' ' + textOf(*line.machine);
    if (!line.nodes.empty()) text += ' ' + meaningsOf(line.nodes, texts);
    text += '\n';
  }
  return text;
}

}  // namespace

std::string asText(const Explanation& explanation) {
  Texts texts;
  for (const NodeFacts& node : explanation.nodes) texts[node.id] = node.text;
  std::string text;
  for (std::size_t e = 0; e < explanation.sources.size(); ++e) {
    text += fmt::format("; expression {}: {}\n", e + 1, text::printable(explanation.sources[e].text));
  }
  for (const Graph& graph : explanation.graphs) text += '\n' + textOf(graph, texts);
  if (!explanation.gradient.roots.empty()) text += '\n' + textOf(explanation.gradient, texts);
  text += fmt::format("\n; error bounds ({})\n; {:<8}{:>14}{:>14}  {}\n", explanation.sample, "node", "relative",
                      "absolute", "instructions on a GPU, about");
  for (const NodeFacts& node : explanation.nodes) {
    if (!node.bound || node.kind != "operator") continue;
    text += fmt::format("  {:<8}{:>14.3g}{:>14.3g}  {:<4} {}\n", node.id, node.bound->relative, node.bound->absolute,
                        node.weight, node.text);
  }
  for (const Stage& stage : explanation.stages) text += '\n' + textOf(stage, texts);
  if (!explanation.times.empty()) text += "\n; times (of the processor: one thread)\n";
  for (const Time& time : explanation.times) {
    text += fmt::format(";   {} {:<10} {:>10.1f} us to compile {:>10.1f} us for {} rows\n", time.device, time.tier,
                        time.compile_seconds * 1e6, time.evaluate_seconds * 1e6, time.rows);
  }
  for (const std::string& notice : explanation.notices) text += "; " + notice + '\n';
  return text;
}

}  // namespace srjit::explain

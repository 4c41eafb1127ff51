#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "tools/explain/explanation.h"

namespace srjit::explain {
namespace {

using Text = const std::string&;

Text textIn(const Json& value) { return value.get_ref<Text>(); }

/// "%6 = sin x0"; of a leaf its id.
std::string meaningOf(Text id, const Json& nodes) {
  const auto found = nodes.find(id);
  return found == nodes.end() || found->at("text") == id ? id : id + " = " + textIn(found->at("text"));
}

/// "%6 = sin x0": a leaf that is the operand of an operator here is not said again.
std::string meaningsOf(const Json& ids, const Json& nodes) {
  std::string text;
  std::set<std::string> said;
  for (const Json& id : ids) {
    if (said.contains(textIn(id))) continue;
    text += (text.empty() ? "" : "; ") + meaningOf(textIn(id), nodes);
    const auto found = nodes.find(textIn(id));
    if (found == nodes.end()) continue;
    said.insert(textIn(id));
    for (const Json& operand : found->at("operands")) said.insert(textIn(operand));
  }
  return text;
}

std::string textOfGraph(const Json& graph, const Json& nodes) {
  std::string text = fmt::format("\n; after {}: {}\n", textIn(graph["name"]), textIn(graph["doc"]));
  for (const Json& rule : graph["fired"]) {
    text += fmt::format(";   {:{}}{} -> {} ({}): {} becomes {}\n", "", 2 * rule["depth"].get<int>(),
                        textIn(rule["pattern"]), textIn(rule["replacement"]), textIn(rule["keeps"]),
                        meaningOf(textIn(rule["before"]), nodes), meaningOf(textIn(rule["after"]), nodes));
  }
  for (const Json& line : graph["lines"]) {
    const auto isOneOf = [&](const char* list) {
      return std::ranges::find(graph[list], line["node"]) != graph[list].end();
    };
    const char* const sign = isOneOf("added") ? "+" : isOneOf("moved") ? "^" : isOneOf("respelled") ? "~" : " ";
    text += fmt::format("{} {} = {}\n", sign, textIn(line["node"]), textIn(line["text"]));
  }
  for (const Json& id : graph["removed"]) text += fmt::format("- {}\n", meaningOf(textIn(id), nodes));
  for (const Json& root : graph["roots"]) text += fmt::format("  {} = {}\n", textIn(root[0]), textIn(root[1]));
  return text;
}

std::string textOfMachine(const Json& facts) {
  std::string waits;
  for (const Json& barrier : facts["waits"]) waits += barrier.dump();
  const auto number = [&](const char* name) { return facts.contains(name) ? facts[name].dump() : "-"; };
  return fmt::format(" {:<7} latency {}{:<3} stall {:<2} {} wait {} write {} read {} live {}", textIn(facts["pipe"]),
                     facts["timing"] == "variable" ? "~" : "", number("latency"), number("stall"),
                     facts["yield"] == true ? "yield" : "     ", waits.empty() ? "-" : waits, number("write_barrier"),
                     number("read_barrier"), number("live"));
}

std::string textOfStage(const Json& stage, const Json& nodes) {
  constexpr std::size_t kWidest = 72;
  Text comment = textIn(stage["comment"]);
  std::size_t width = 0;
  for (const Json& line : stage["lines"]) width = std::max(width, std::min(textIn(line["text"]).size(), kWidest));
  std::string text = fmt::format("\n{} {}: {}\n", comment, textIn(stage["title"]), textIn(stage["note"]));
  for (const auto& [what, count] : stage["counts"].items()) {
    text += fmt::format("{}   {} {}\n", comment, count.get<double>(), what);
  }
  for (const Json& line : stage["lines"]) {
    std::string said = line.contains("machine") ? textOfMachine(line["machine"]) : "";
    if (line.contains("nodes")) said += ' ' + meaningsOf(line["nodes"], nodes);
    text += said.empty() ? textIn(line["text"]) + '\n'
                         : fmt::format("{:<{}}  {}{}\n", textIn(line["text"]), width, comment, said);
  }
  return text;
}

std::string textOfBound(const Json& bound) {
  return bound.is_string() ? textIn(bound) : fmt::format("{:.3g}", bound.get<double>());
}

}  // namespace

std::string asText(const Json& explanation) {
  const Json& nodes = explanation["nodes"];
  std::string text;
  for (std::size_t e = 0; e < explanation["sources"].size(); ++e) {
    text += fmt::format("; expression {}: {}\n", e + 1, text::printable(textIn(explanation["sources"][e]["text"])));
  }
  for (const Json& graph : explanation["graphs"]) text += textOfGraph(graph, nodes);
  if (explanation.contains("gradient")) text += textOfGraph(explanation["gradient"], nodes);
  text += fmt::format("\n; error bounds ({})\n; {:<8}{:>14}{:>14}  {}\n", textIn(explanation["sample"]), "node",
                      "relative", "absolute", "instructions on a GPU, about");
  for (const auto& [id, node] : nodes.items()) {
    if (!node.contains("bound") || node["kind"] != "operator") continue;
    text += fmt::format("  {:<8}{:>14}{:>14}  {:<4} {}\n", id, textOfBound(node["bound"]["relative"]),
                        textOfBound(node["bound"]["absolute"]), node.value("weight", 0), textIn(node["text"]));
  }
  for (const Json& stage : explanation["stages"]) text += textOfStage(stage, nodes);
  if (!explanation["times"].empty()) text += "\n; times (of the processor: one thread)\n";
  for (const Json& time : explanation["times"]) {
    text += fmt::format(";   {} {:<10} {:>10.1f} us to compile {:>10.1f} us for {} rows\n", textIn(time["device"]),
                        textIn(time["tier"]), time["compile_seconds"].get<double>() * 1e6,
                        time["evaluate_seconds"].get<double>() * 1e6, time["rows"].get<std::size_t>());
  }
  for (const Json& notice : explanation["notices"]) text += "; " + textIn(notice) + '\n';
  return text;
}

}  // namespace srjit::explain

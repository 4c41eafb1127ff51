#include <cmath>

#include <nlohmann/json.hpp>

#include "tools/explain/output.h"

namespace srjit::explain {
namespace {

using Json = nlohmann::ordered_json;

Json numberOf(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

Json pairsOf(const std::vector<std::pair<std::string, Id>>& pairs) {
  Json list = Json::array();
  for (const auto& [first, second] : pairs) list.push_back({first, second});
  return list;
}

Json jsonOf(const Source& source) {
  Json tokens = Json::array();
  for (const SourceToken& token : source.tokens) {
    tokens.push_back({{"first", token.first},
                      {"size", token.size},
                      {"node", token.node},
                      {"label", token.label},
                      {"operands", token.operands}});
  }
  return {{"text", source.text}, {"tokens", std::move(tokens)}};
}

Json jsonOf(const NodeFacts& node) {
  Json object{{"text", node.text}, {"kind", node.kind}, {"operands", node.operands}};
  if (!node.infix.empty()) object["infix"] = node.infix;
  if (node.weight != 0) object["weight"] = node.weight;
  if (node.bound) {
    object["bound"] = {{"absolute", numberOf(node.bound->absolute)}, {"relative", numberOf(node.bound->relative)}};
  }
  return object;
}

Json jsonOf(const Graph& graph) {
  Json lines = Json::array(), fired = Json::array();
  for (const GraphLine& line : graph.lines) lines.push_back({{"node", line.id}, {"text", line.text}});
  for (const Fired& rule : graph.fired) {
    fired.push_back({{"pattern", rule.pattern},
                     {"replacement", rule.replacement},
                     {"keeps", rule.keeps},
                     {"before", rule.before},
                     {"after", rule.after},
                     {"depth", rule.depth}});
  }
  return {{"name", graph.name},        {"doc", graph.doc},
          {"keeps", graph.keeps},      {"changed", graph.changed()},
          {"lines", std::move(lines)}, {"roots", pairsOf(graph.roots)},
          {"fired", std::move(fired)}, {"replaced", pairsOf(graph.replaced)},
          {"added", graph.added},      {"removed", graph.removed},
          {"moved", graph.moved},      {"respelled", graph.respelled}};
}

Json jsonOf(const MachineFacts& facts) {
  Json object{
      {"pipe", facts.pipe},   {"latency", facts.latency}, {"timing", facts.variable_latency ? "variable" : "fixed"},
      {"stall", facts.stall}, {"yield", facts.yield},     {"waits", facts.waits}};
  if (facts.write_barrier) object["write_barrier"] = *facts.write_barrier;
  if (facts.read_barrier) object["read_barrier"] = *facts.read_barrier;
  object["live"] = facts.live;
  return object;
}

Json jsonOf(const Stage& stage) {
  Json lines = Json::array(), counts = Json::object();
  for (const Line& line : stage.lines) {
    Json& object = lines.emplace_back(Json{{"text", line.text}});
    if (!line.nodes.empty()) object["nodes"] = line.nodes;
    if (line.machine) object["machine"] = jsonOf(*line.machine);
  }
  for (const Count& count : stage.counts) counts[count.what] = count.value;
  return {{"name", stage.name},       {"short_title", stage.short_title}, {"title", stage.title},
          {"note", stage.note},       {"comment", stage.comment},         {"counts", std::move(counts)},
          {"lines", std::move(lines)}};
}

Json jsonOf(const Time& time) {
  return {{"device", time.device},
          {"tier", time.tier},
          {"compile_seconds", time.compile_seconds},
          {"evaluate_seconds", time.evaluate_seconds},
          {"rows", time.rows}};
}

template <class T>
Json listOf(const std::vector<T>& items) {
  Json list = Json::array();
  for (const T& item : items) list.push_back(jsonOf(item));
  return list;
}

}  // namespace

std::string asJson(const Explanation& explanation, bool indent) {
  Json nodes = Json::object();
  for (const NodeFacts& node : explanation.nodes) nodes[node.id] = jsonOf(node);
  Json object{{"version", explanation.version},   {"precision", nameOf(explanation.precision)},
              {"math", nameOf(explanation.math)}, {"architecture", explanation.architecture},
              {"sample", explanation.sample},     {"sources", listOf(explanation.sources)},
              {"nodes", std::move(nodes)},        {"graphs", listOf(explanation.graphs)}};
  if (!explanation.gradient.roots.empty()) object["gradient"] = jsonOf(explanation.gradient);
  object["stages"] = listOf(explanation.stages);
  object["times"] = listOf(explanation.times);
  object["notices"] = explanation.notices;
  return object.dump(indent ? 1 : -1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace srjit::explain

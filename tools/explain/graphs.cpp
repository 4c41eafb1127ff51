#include "tools/explain/stages.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include <fmt/format.h>

#include "compiler/lowering/code_weights.h"
#include "ir/ops.h"
#include "ir/text/words.h"
#include "passes/rewrite_log.h"
#include "passes/working_dag.h"

namespace srjit::explain {
namespace {

constexpr std::size_t kMostCells = std::size_t{1} << 24;

/// Appends the difference of lists that are not long.
void addDifference(std::span<const std::string> a, std::span<const std::string> b, std::vector<DiffLine>& lines) {
  const std::size_t width = b.size() + 1;
  // By ends of both lists: the length of a longest common subsequence from there on.
  std::vector<std::uint32_t> longest((a.size() + 1) * width);
  for (std::size_t i = a.size(); i-- > 0;) {
    for (std::size_t j = b.size(); j-- > 0;) {
      longest[i * width + j] = a[i] == b[j] ? longest[(i + 1) * width + j + 1] + 1
                                            : std::max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      lines.push_back({' ', a[i]});
      ++i, ++j;
    } else if (j == b.size() || (i < a.size() && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      lines.push_back({'-', a[i++]});
    } else {
      lines.push_back({'+', b[j++]});
    }
  }
}

constexpr std::size_t kLongestInfix = 60;  // tokens

Id leafId(const Dag& dag, const Node& node) {
  if (node.kind == Token::Kind::kVariable) return fmt::format("x{}", node.index);
  if (node.kind == Token::Kind::kConstant) return text::numberText(node.value, dag.precision());
  const ParameterSource& source = dag.parameters()[node.index];
  if (source.isLiteral()) return text::numberText(source.literal, dag.precision());
  return fmt::format("p{}@{}", source.index, source.expression);
}

/// What a pass leaves: its result, and the graph that it worked on, which has all nodes and terms that rules saw.
struct PassTrace {
  const Pass* pass;
  Dag result;
  Dag worked;                 ///< with dead nodes, and a node for the term of each firing
  std::vector<NodeId> terms;  ///< by firing
  std::vector<RewriteLog::Firing> firings;
  std::vector<std::pair<NodeId, NodeId>> replaced;
};

// Not by Pipeline::run(), whose observer sees results: these have lost the dead nodes that rules saw.
std::vector<PassTrace> runPasses(const Pipeline& pipeline, Dag graph, Math math) {
  std::vector<PassTrace> traces;
  RewriteLog log;
  WorkingDag work(std::move(graph));
  for (const Pass& pass : pipeline.passes()) {
    log.clear();
    const PassContext context{math, &log};
    if (pass.rewrite != nullptr) {
      pass.rewrite(work, context);
    } else {
      work = WorkingDag(pass.run(work.result(), context));
    }
    PassTrace& trace =
        traces.emplace_back(PassTrace{&pass, work.result(), work.dag(), {}, log.firings(), log.replaced()});
    for (const RewriteLog::Firing& firing : trace.firings) {
      trace.terms.push_back(trace.worked.applyOrdered(firing.op, firing.operands));
    }
  }
  return traces;
}

Json graphOf(const Dag& dag, NodeNames& names, std::string_view name, std::string_view doc, std::string_view keeps) {
  const Ids ids = names.of(dag);
  Json lines = Json::array(), roots = Json::array();
  for (const auto& [id, text] : names.linesOf(dag)) lines.push_back({{"node", id}, {"text", text}});
  for (const NodeId root : dag.roots()) roots.push_back({fmt::format("root {}", roots.size()), ids[root]});
  Json graph{{"name", name}, {"doc", doc}, {"keeps", keeps}, {"changed", false}};
  graph["lines"] = std::move(lines);
  graph["roots"] = std::move(roots);
  for (const char* list : {"fired", "replaced", "added", "removed", "moved", "respelled"}) graph[list] = Json::array();
  return graph;
}

/// Sets what differs from the graph before.
void compare(const Json& before, Json& after) {
  std::map<Id, Json> old, now;
  for (const Json& line : before["lines"]) old[line["node"].get<Id>()] = line["text"];
  for (const Json& line : after["lines"]) now[line["node"].get<Id>()] = line["text"];
  Ids old_order, new_order;
  for (const Json& line : before["lines"]) {
    const Id id = line["node"];
    if (now.contains(id)) {
      old_order.push_back(id);
    } else {
      after["removed"].push_back(id);
    }
  }
  for (const Json& line : after["lines"]) {
    const Id id = line["node"];
    if (!old.contains(id)) {
      after["added"].push_back(id);
      continue;
    }
    new_order.push_back(id);
    if (old[id] != now[id]) after["respelled"].push_back(id);
  }
  for (const auto& [sign, id] : lineDiff(old_order, new_order)) {
    if (sign == '+') after["moved"].push_back(id);
  }
  for (const char* list : {"added", "removed", "moved", "respelled"}) {
    if (!after[list].empty()) after["changed"] = true;
  }
}

void addFirings(const PassTrace& trace, NodeNames& names, Json& to) {
  const Ids ids = names.of(trace.worked);
  for (std::size_t i = 0; i < trace.firings.size(); ++i) {
    const RewriteLog::Firing& firing = trace.firings[i];
    to["changed"] = true;
    to["fired"].push_back({{"pattern", firing.pattern},
                           {"replacement", firing.replacement},
                           {"keeps", firing.keeps},
                           {"before", ids[trace.terms[i]]},
                           {"after", ids[firing.result]},
                           {"depth", firing.depth}});
  }
  for (const auto& [before, after] : trace.replaced) to["replaced"].push_back({ids[before], ids[after]});
}

/// The facts about single nodes: those of `dag` that `nodes` does not have yet.
class NodeTable {
 public:
  NodeTable(const Request& request, NodeNames& names, Json& nodes)
      : names_(names),
        columns_(request.columns),
        weights_(codeWeights(request.precision, request.math)),
        nodes_(nodes) {}

  void add(const Dag& dag) {
    const Ids ids = names_.of(dag);
    const auto lines = names_.linesOf(dag);
    std::size_t next = 0;  // of the lines
    for (NodeId id = 0; id < dag.size(); ++id) {
      const Node& node = dag.node(id);
      const std::string& text = node.isOperator() ? lines[next++].second : ids[id];
      if (nodes_.contains(ids[id])) continue;
      Json operands = Json::array();
      for (const NodeId operand : node.inputs()) operands.push_back(ids[operand]);
      Json facts{{"text", text}, {"kind", kindOf(dag, node)}, {"operands", std::move(operands)}};
      const Result<Expression> subtree = dag.subtree(id, kLongestInfix);
      if (subtree) facts["infix"] = print(*subtree, Language::kInfix, columns_);
      const unsigned weight = node.isOperator() ? weights_[static_cast<std::size_t>(node.op)] : 0;
      if (weight != 0) facts["weight"] = weight;
      nodes_[ids[id]] = std::move(facts);
    }
  }

 private:
  static const char* kindOf(const Dag& dag, const Node& node) {
    if (node.isOperator()) return "operator";
    if (node.kind == Token::Kind::kVariable) return "variable";
    return node.kind == Token::Kind::kParameter && !dag.parameters()[node.index].isLiteral() ? "parameter" : "literal";
  }

  NodeNames& names_;
  const ColumnNames& columns_;
  CodeWeights weights_;
  Json& nodes_;
};

NodeId nodeOf(Dag& graph, const Token& token, std::size_t expression, const Operands& operands) {
  switch (token.kind) {
    case Token::Kind::kConstant:
      return graph.constant(token.value);
    case Token::Kind::kVariable:
      return graph.variable(token.index);
    case Token::Kind::kParameter:
      return graph.parameter(static_cast<std::uint32_t>(expression), token.index);
    case Token::Kind::kOp:
      return graph.applyOrdered(token.op, operands);
  }
  __builtin_unreachable();
}

/// Expression `e` and its tokens. Each token is also a node of `graph`, which has all expressions as they were given,
/// and so gains no node here.
Result<Json> sourceOf(const Request& request, std::size_t e, Dag graph, const Ids& ids) {
  const std::span<const Token> tokens = request.expressions[e].tokens();
  const std::string& text = request.texts[e];
  const Result<std::vector<TextRange>> places = tokenRanges(text, request.columns);
  if (!places) return places.error();
  if (places->size() != tokens.size()) {
    return Error{
        Errc::kInvalid, fmt::format("a text of {} tokens for an expression of {}", places->size(), tokens.size()), {}};
  }
  Json list = Json::array();
  std::vector<std::size_t> stack;
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto& [first, size] = (*places)[i];
    const auto base = stack.end() - tokens[i].arity();
    const std::vector<std::size_t> operands(base, stack.end());
    stack.erase(base, stack.end());
    stack.push_back(i);
    Operands inputs{};
    std::ranges::transform(operands, inputs.begin(), [&](std::size_t operand) { return nodes[operand]; });
    nodes.push_back(nodeOf(graph, tokens[i], e, inputs));
    const bool is_operator = tokens[i].kind == Token::Kind::kOp;
    list.push_back({{"first", first},
                    {"size", size},
                    {"node", ids[nodes[i]]},
                    {"label", is_operator ? std::string(infoOf(tokens[i].op).name) : text.substr(first, size)},
                    {"operands", operands}});
  }
  return Json{{"text", text}, {"tokens", std::move(list)}};
}

void addGradient(const Request& request, const Dag& input, NodeNames& names, NodeTable& nodes, Json& to) {
  if (std::ranges::all_of(request.expressions, [](const Expression& e) { return e.parameterCount() == 0; })) {
    return to["notices"].push_back("no expression has parameters, so there are no derivatives by them");
  }
  const Dag derived = request.pipeline.withDerivatives().run(input, PassContext{request.math});
  Json gradient = graphOf(derived, names, "gradient",
                          "the graph with derivatives by all parameters, as sr-jit passes --gradient makes it", "");
  compare(to["graphs"].back(), gradient);
  const std::vector<std::string> roots = derivativeRootNames(request.expressions);
  for (std::size_t i = 0; i < roots.size(); ++i) gradient["roots"].at(i)[0] = roots[i];
  to["gradient"] = std::move(gradient);
  nodes.add(derived);
}

}  // namespace

std::vector<DiffLine> lineDiff(std::span<const std::string> first, std::span<const std::string> second) {
  std::vector<DiffLine> lines;
  std::size_t same = 0;
  while (same < std::min(first.size(), second.size()) && first[same] == second[same]) {
    lines.push_back({' ', first[same++]});
  }
  std::span<const std::string> a = first.subspan(same), b = second.subspan(same);
  std::size_t tail = 0;
  while (tail < std::min(a.size(), b.size()) && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  const std::span<const std::string> end = a.last(tail);
  a = a.first(a.size() - tail);
  b = b.first(b.size() - tail);
  if ((a.size() + 1) * (b.size() + 1) <= kMostCells) {
    addDifference(a, b, lines);
  } else {
    for (const std::string& line : a) lines.push_back({'-', line});
    for (const std::string& line : b) lines.push_back({'+', line});
  }
  for (const std::string& line : end) lines.push_back({' ', line});
  return lines;
}

std::vector<std::string> splitLines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

Ids NodeNames::of(const Dag& dag) {
  const std::vector<std::size_t> numbers = numbers_.of(dag);
  Ids ids;
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    ids.push_back(node.isOperator() ? fmt::format("%{}", numbers[id]) : leafId(dag, node));
  }
  return ids;
}

std::vector<std::pair<Id, std::string>> NodeNames::linesOf(const Dag& dag) {
  std::vector<std::pair<Id, std::string>> lines;
  for (const std::string& line : splitLines(printDag(dag, numbers_))) {
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('%')) lines.emplace_back(line.substr(0, equals), line.substr(equals + 3));
  }
  return lines;
}

std::vector<std::string> derivativeRootNames(std::span<const Expression> batch) {
  std::vector<std::string> names;
  for (std::size_t e = 0; e < batch.size(); ++e) {
    names.push_back(fmt::format("expression {}", e + 1));
    for (std::uint32_t p = 0; p < batch[e].parameterCount(); ++p) {
      names.push_back(fmt::format("derivative of expression {} by p{}", e + 1, p));
    }
  }
  return names;
}

Result<FinalGraph> addGraphs(const Request& request, Json& to) {
  NodeNames names;
  const Dag input = Dag::fromExpressions(request.expressions, request.precision);
  Json graphs = Json::array(), table = Json::object();
  graphs.push_back(
      graphOf(input, names, "input", "the expressions as they were given: equal subtrees are one node", "exact"));
  const std::vector<PassTrace> traces = runPasses(request.pipeline, input, request.math);
  // The graphs first, then what rules saw in between: numbers are those of sr-jit passes.
  for (const auto& trace : traces) {
    const char* const keeps = trace.pass->exactness == Exactness::kExact ? "exact" : "bounded";
    Json graph = graphOf(trace.result, names, trace.pass->name, trace.pass->doc, keeps);
    compare(graphs.back(), graph);
    graphs.push_back(std::move(graph));
  }
  for (std::size_t i = 0; i < traces.size(); ++i) addFirings(traces[i], names, graphs[i + 1]);
  to["sources"] = Json::array();
  for (std::size_t e = 0; e < request.expressions.size(); ++e) {
    Result<Json> source = sourceOf(request, e, input, names.of(input));
    if (!source) return source.error();
    to["sources"].push_back(*std::move(source));
  }
  Dag last = traces.empty() ? input : traces.back().result;
  NodeTable nodes(request, names, table);
  nodes.add(input);
  for (const PassTrace& trace : traces) nodes.add(trace.worked);
  nodes.add(last);  // of passes that do not rewrite in place
  to["graphs"] = std::move(graphs);
  addGradient(request, input, names, nodes, to);
  to["nodes"] = std::move(table);
  Ids ids = names.of(last);
  return FinalGraph{std::move(last), std::move(ids)};
}

}  // namespace srjit::explain

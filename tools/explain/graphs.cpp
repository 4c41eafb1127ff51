#include "tools/explain/graphs.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "compiler/lowering/code_weights.h"
#include "ir/ops.h"
#include "passes/rewrite_log.h"
#include "passes/working_dag.h"
#include "tools/line_diff.h"

namespace srjit::explain {
namespace {

/// What a pass leaves: its result, and the graph that it worked on, which has all nodes and terms that rules saw.
struct PassTrace {
  const Pass* pass;
  Dag result;
  Dag worked;                 ///< with dead nodes, and a node for the term of each firing
  std::vector<NodeId> terms;  ///< by firing
  std::vector<RewriteLog::Firing> firings;
  std::vector<std::pair<NodeId, NodeId>> replaced;
};

PassTrace traceOf(const Pass& pass, WorkingDag& work, const RewriteLog& log) {
  PassTrace trace{&pass, work.result(), work.dag(), {}, log.firings(), log.replaced()};
  for (const RewriteLog::Firing& firing : log.firings()) {
    trace.terms.push_back(trace.worked.applyOrdered(firing.op, firing.operands));
  }
  return trace;
}

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
    traces.push_back(traceOf(pass, work, log));
  }
  return traces;
}

/// Sets what differs from the graph before.
void compare(const Graph& before, Graph& after) {
  std::map<Id, std::string> old, now;
  for (const GraphLine& line : before.lines) old[line.id] = line.text;
  for (const GraphLine& line : after.lines) now[line.id] = line.text;
  Ids old_order, new_order;
  for (const GraphLine& line : before.lines) (now.contains(line.id) ? old_order : after.removed).push_back(line.id);
  for (const GraphLine& line : after.lines) (old.contains(line.id) ? new_order : after.added).push_back(line.id);
  for (const Id& id : new_order) {
    if (old[id] != now[id]) after.respelled.push_back(id);
  }
  for (const DiffLine& line : lineDiff(old_order, new_order)) {
    if (line.sign == '+') after.moved.push_back(line.text);
  }
}

/// Facts of nodes, each once.
class NodeTable {
 public:
  explicit NodeTable(std::vector<NodeFacts>& facts) : facts_(facts) {}

  void add(const Dag& dag, NodeNames& names) {
    for (NodeFacts& fact : names.factsOf(dag)) {
      if (seen_.insert(fact.id).second) facts_.push_back(std::move(fact));
    }
  }

 private:
  std::vector<NodeFacts>& facts_;
  std::set<Id> seen_;
};

Result<Source> sourceOf(const Expression& expression, const std::string& text, const ColumnNames& columns) {
  Source source{text, {}};
  const Result<std::vector<TextRange>> places = tokenRanges(text, columns);
  if (!places) return places.error();
  const std::span<const TextRange> ranges = *places;
  if (ranges.size() != expression.tokens().size()) {
    return Error{Errc::kInvalid,
                 fmt::format("a text of {} tokens for an expression of {}", ranges.size(), expression.tokens().size()),
                 {}};
  }
  std::vector<std::size_t> stack;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const Token& token = expression.tokens()[i];
    const auto arity = static_cast<std::size_t>(token.arity());
    SourceToken& made = source.tokens.emplace_back();
    made.first = ranges[i].first;
    made.size = ranges[i].size;
    made.label =
        token.kind == Token::Kind::kOp ? std::string(infoOf(token.op).name) : text.substr(made.first, made.size);
    made.operands.assign(stack.end() - static_cast<std::ptrdiff_t>(arity), stack.end());
    stack.resize(stack.size() - arity);
    stack.push_back(i);
  }
  return source;
}

/// Sets the nodes of the tokens of expression number `number`. `graph` is that of all expressions as they were given,
/// and so gains no node here.
void setNodes(Source& source, const Expression& expression, std::uint32_t number, Dag& graph, NodeNames& names) {
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < source.tokens.size(); ++i) {
    const Token& token = expression.tokens()[i];
    Operands operands{};
    for (std::size_t k = 0; k < source.tokens[i].operands.size(); ++k) {
      operands[k] = nodes[source.tokens[i].operands[k]];
    }
    switch (token.kind) {
      case Token::Kind::kConstant:
        nodes.push_back(graph.constant(token.value));
        break;
      case Token::Kind::kVariable:
        nodes.push_back(graph.variable(token.index));
        break;
      case Token::Kind::kParameter:
        nodes.push_back(graph.parameter(number, token.index));
        break;
      case Token::Kind::kOp:
        nodes.push_back(graph.applyOrdered(token.op, operands));
        break;
    }
  }
  const std::vector<Id> ids = names.of(graph);
  for (std::size_t i = 0; i < source.tokens.size(); ++i) source.tokens[i].node = ids[nodes[i]];
}

Graph graphOf(const PassTrace& trace, NodeNames& names) {
  Graph graph = names.print(trace.result);
  graph.name = trace.pass->name;
  graph.doc = trace.pass->doc;
  graph.keeps = trace.pass->exactness == Exactness::kExact ? "exact" : "bounded";
  return graph;
}

void addFirings(const PassTrace& trace, NodeNames& names, Graph& to) {
  const std::vector<Id> ids = names.of(trace.worked);
  for (std::size_t i = 0; i < trace.firings.size(); ++i) {
    const RewriteLog::Firing& firing = trace.firings[i];
    to.fired.push_back({std::string(firing.pattern), std::string(firing.replacement), std::string(firing.keeps),
                        ids[trace.terms[i]], ids[firing.result], firing.depth});
  }
  for (const auto& [before, after] : trace.replaced) to.replaced.emplace_back(ids[before], ids[after]);
}

void addGradient(const Request& request, const Dag& input, NodeNames& names, NodeTable& nodes, Explanation& to) {
  const bool any = std::ranges::any_of(request.expressions, [](const Expression& e) { return e.parameterCount() > 0; });
  if (!any) {
    to.notices.emplace_back("no expression has parameters, so there are no derivatives by them");
    return;
  }
  const Dag derived = request.pipeline.withDerivatives().run(input, PassContext{request.math});
  to.gradient = names.print(derived);
  to.gradient.name = "gradient";
  to.gradient.doc = "the graph with derivatives by all parameters, as sr-jit passes --gradient makes it";
  if (!to.graphs.empty()) compare(to.graphs.back(), to.gradient);
  const std::vector<std::string> roots = derivativeRootNames(request.expressions);
  for (std::size_t i = 0; i < roots.size(); ++i) to.gradient.roots.at(i).first = roots[i];
  nodes.add(derived, names);
}

}  // namespace

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

Result<FinalGraph> addGraphs(const Request& request, Explanation& to) {
  NodeNames names(request.columns);
  NodeTable nodes(to.nodes);
  Dag input = Dag::fromExpressions(request.expressions, request.precision);
  to.graphs.push_back(names.print(input));
  to.graphs.back().name = "input";
  to.graphs.back().doc = "the expressions as they were given: equal subtrees are one node";
  to.graphs.back().keeps = "exact";
  std::vector<PassTrace> traces = runPasses(request.pipeline, input, request.math);
  // The graphs first, then what rules saw in between: numbers are those of sr-jit passes.
  for (const PassTrace& trace : traces) {
    to.graphs.push_back(graphOf(trace, names));
    compare(to.graphs[to.graphs.size() - 2], to.graphs.back());
  }
  for (std::size_t i = 0; i < traces.size(); ++i) addFirings(traces[i], names, to.graphs[i + 1]);
  Dag last = traces.empty() ? input : traces.back().result;
  for (std::size_t e = 0; e < request.expressions.size(); ++e) {
    Result<Source> source = sourceOf(request.expressions[e], request.texts[e], request.columns);
    if (!source) return source.error();
    Dag graph = input;
    setNodes(*source, request.expressions[e], static_cast<std::uint32_t>(e), graph, names);
    to.sources.push_back(*std::move(source));
  }
  nodes.add(input, names);
  for (const PassTrace& trace : traces) nodes.add(trace.worked, names);
  nodes.add(last, names);  // of passes that do not rewrite in place
  addGradient(request, input, names, nodes, to);
  const CodeWeights weights = codeWeights(request.precision, request.math);
  for (NodeFacts& fact : to.nodes) {
    if (fact.kind != "operator") continue;
    const std::optional<Op> op = findOp(fact.text.substr(0, fact.text.find(' ')));
    if (op) fact.weight = weights[static_cast<std::size_t>(*op)];
  }
  std::vector<Id> ids = names.of(last);
  return FinalGraph{std::move(last), std::move(ids)};
}

}  // namespace srjit::explain

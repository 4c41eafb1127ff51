#include "tools/explain/explanation.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/explain/stages.h"
#include "tools/page/html.h"

namespace srjit {

extern const PageFile kExplainCss, kExplainJs;

namespace explain {
namespace {

Status checkRequest(const Request& request) {
  std::size_t tokens = 0, variables = 0;
  for (const Expression& expression : request.expressions) {
    tokens += expression.size();
    variables = std::max<std::size_t>(variables, expression.variableCount());
  }
  if (tokens > kMostTokens) {
    return Error{Errc::kInvalid,
                 fmt::format("the expressions have {} tokens, but at most {} are explained", tokens, kMostTokens),
                 {}};
  }
  if (!request.data.empty() && request.data.size() < variables) {
    return Error{Errc::kInvalid,
                 fmt::format("the expressions need {} variables, but the data have {}", variables, request.data.size()),
                 {}};
  }
  return okStatus();
}

void addStage(Json& to, const char* what, Result<Json> stage) {
  if (stage) {
    to["stages"].push_back(*std::move(stage));
  } else {
    to["notices"].push_back(fmt::format("no {}: {}", what, stage.error().message));
  }
}

}  // namespace

Result<Json> explain(const Request& request) {
  if (const Status good = checkRequest(request); !good) return good.error();
  const Sample sample = sampleFor(request);
  Json made{{"version", request.version},   {"precision", nameOf(request.precision)},
            {"math", nameOf(request.math)}, {"architecture", request.architecture},
            {"sample", sample.description}, {"notices", Json::array()}};
  const Result<FinalGraph> graph = addGraphs(request, made);
  if (!graph) return graph.error();
  made["stages"] = Json::array();
  addStage(made, "program of the GPU's interpreter", bytecodeStage(request, *graph));
  addStage(made, "program of the processor's interpreter", hostProgramStage(*graph));
  addStage(made, "machine code of the direct tier", directStage(request, *graph));
  addStage(made, "LLVM IR", llvmIrStage(request, *graph));
  addStage(made, "PTX", ptxStage(request, *graph));
  addStage(made, "LLVM IR of the processor's kernel", hostIrStage(request, *graph));
  addStage(made, "assembly", assemblyStage(request, *graph));
  addErrorBounds(request, *graph, sample, made);
  made["times"] = Json::array();
  if (request.times) {
    if (const Status measured = addTimes(request, sample, made); !measured) return measured.error();
  }
  return made;
}

Json Stage::json() const {
  Json list = Json::array(), numbers = Json::object();
  for (const Line& line : lines) {
    Json& object = list.emplace_back(Json{{"text", line.text}});
    if (!line.nodes.empty()) object["nodes"] = line.nodes;
    if (!line.machine.is_null()) object["machine"] = line.machine;
  }
  for (const auto& [what, count] : counts) numbers[what] = count;
  return {{"name", name},       {"short_title", short_title},   {"title", title},          {"note", note},
          {"comment", comment}, {"counts", std::move(numbers)}, {"lines", std::move(list)}};
}

std::string asJson(const Json& explanation, bool indent) {
  return explanation.dump(indent ? 1 : -1, ' ', false, Json::error_handler_t::replace);
}

std::string asPage(const Json& explanation) { return makePage("explain", kExplainCss, kExplainJs, explanation); }

}  // namespace explain
}  // namespace srjit

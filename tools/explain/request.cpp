#include "tools/explain/request.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/explain/graphs.h"
#include "tools/explain/sample.h"
#include "tools/explain/stages.h"

namespace srjit::explain {
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

void addStage(Explanation& to, const char* what, Result<Stage> stage) {
  if (stage) {
    to.stages.push_back(std::move(*stage));
  } else {
    to.notices.push_back(fmt::format("no {}: {}", what, stage.error().message));
  }
}

}  // namespace

Result<Explanation> explain(const Request& request) {
  if (const Status good = checkRequest(request); !good) return good.error();
  Explanation made;
  made.precision = request.precision;
  made.math = request.math;
  made.architecture = request.architecture;
  const Result<FinalGraph> graph = addGraphs(request, made);
  if (!graph) return graph.error();
  addStage(made, "program of the GPU's interpreter", bytecodeStage(request, *graph));
  addStage(made, "program of the processor's interpreter", hostProgramStage(*graph));
  addStage(made, "machine code of the direct tier", directStage(request, *graph));
  addStage(made, "LLVM IR", llvmIrStage(request, *graph));
  addStage(made, "PTX", ptxStage(request, *graph));
  addStage(made, "LLVM IR of the processor's kernel", hostIrStage(request, *graph));
  addStage(made, "assembly", assemblyStage(request, *graph));
  const Sample sample = sampleFor(request);
  made.sample = sample.description;
  addErrorBounds(request, *graph, sample, made);
  if (request.times) {
    if (const Status measured = addTimes(request, sample, made); !measured) return measured.error();
  }
  return made;
}

}  // namespace srjit::explain

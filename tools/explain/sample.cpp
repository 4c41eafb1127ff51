#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "ir/numbers/random.h"
#include "ir/reference.h"
#include "runtime/platform/clock.h"
#include "tools/explain/stages.h"

namespace srjit::explain {
namespace {

constexpr std::size_t kBoundRows = 256;          // for error bounds
constexpr std::size_t kTimedRows = 65'536;       // if no data are given
constexpr std::size_t kLongestBounded = 10'000;  // tokens of what a node computes
constexpr int kRepetitions = 5;

/// The parameters of expression `e`, where missing ones are 1.
std::vector<double> parametersOf(const Request& request, std::size_t e) {
  std::vector<double> values(request.expressions[e].parameterCount(), 1.0);
  const std::vector<double> given = e < request.parameters.size() ? request.parameters[e] : std::vector<double>{};
  std::copy_n(given.begin(), std::min(given.size(), values.size()), values.begin());
  return values;
}

/// By node, the expression whose parameters it has: Dag::subtree() numbers them as that expression does.
std::vector<std::size_t> expressionsOf(const Dag& dag) {
  std::vector<std::size_t> expressions(dag.size());
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    const bool is_parameter = node.kind == Token::Kind::kParameter && !dag.parameters()[node.index].isLiteral();
    if (is_parameter) expressions[id] = dag.parameters()[node.index].expression;
    for (const NodeId operand : node.inputs()) expressions[id] = std::max(expressions[id], expressions[operand]);
  }
  return expressions;
}

struct ErrorBound {
  double absolute, relative;
};

/// What a row of this value and error adds to the bounds; infinite where nothing is promised.
ErrorBound boundOf(const Bounded& result) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  if (!std::isfinite(result.error)) return {kNone, kNone};
  if (result.error == 0 || !std::isfinite(result.value)) return {0, 0};  // kernels give the same value if not finite
  return {result.error, result.value == 0 ? kNone : result.error / std::fabs(result.value)};
}

Json numberOf(double value) { return std::isfinite(value) ? Json(value) : Json("inf"); }

/// The seconds that `run` took, the least of several.
template <class Run>
Result<double> leastSeconds(const Run& run) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepetitions; ++i) {
    const Stopwatch watch;
    if (const Status done = run(); !done) return done.error();
    least = std::min(least, watch.seconds());
  }
  return least;
}

/// The times of one tier: to compile, and to evaluate all rows.
template <class T>
Result<std::pair<double, double>> secondsOf(const Engine& engine, const Dataset& data, Tier tier,
                                            const Request& request) {
  std::vector<double> parameters;
  for (std::size_t e = 0; e < request.expressions.size(); ++e) {
    const std::vector<double> values = parametersOf(request, e);
    parameters.insert(parameters.end(), values.begin(), values.end());
  }
  CompileOptions compile;
  compile.tier = tier;
  compile.pipeline = request.pipeline;
  std::optional<Program> program;
  const Result<double> compiled = leastSeconds([&]() -> Status {
    program.emplace(engine.compile(request.expressions, compile));
    return engine.prepare(*program, data, {});
  });
  if (!compiled) return compiled.error();
  std::vector<T> out(request.expressions.size() * data.rows());
  const Result<double> evaluated = leastSeconds([&]() -> Status {
    const auto failures = engine.evaluate(*program, data, parameters, std::span<T>(out));
    if (!failures) return failures.error();
    return failures->empty() ? okStatus() : Status(failures->front().error);
  });
  if (!evaluated) return evaluated.error();
  return std::pair{*compiled, *evaluated};
}

}  // namespace

Status addTimesOf(const Engine& engine, const std::string& device, const Request& request, const Sample& sample,
                  Json& to) {
  DataView view;
  for (const std::vector<double>& column : sample.columns) view.columns.emplace_back(column);
  const Result<Dataset> data = engine.upload(view);
  if (!data) return data.error();
  for (const Tier tier : {Tier::kInterpret, Tier::kDirect, Tier::kCompile}) {
    if (device == "cpu" && tier == Tier::kDirect) continue;  // which is the interpreter there
    const auto seconds = isDouble(request.precision) ? secondsOf<double>(engine, *data, tier, request)
                                                     : secondsOf<float>(engine, *data, tier, request);
    if (seconds) {
      to["times"].push_back({{"device", device},
                             {"tier", nameOf(tier)},
                             {"compile_seconds", seconds->first},
                             {"evaluate_seconds", seconds->second},
                             {"rows", sample.rows}});
    } else {
      to["notices"].push_back(fmt::format("no time of {} on {}: {}", nameOf(tier), device, seconds.error().message));
    }
  }
  return okStatus();
}

Sample sampleFor(const Request& request) {
  std::size_t columns = 1;  // data have at least one
  for (const Expression& expression : request.expressions) {
    columns = std::max<std::size_t>(columns, expression.variableCount());
  }
  if (!request.data.empty()) {
    const std::size_t rows = request.data.front().size();
    return {
        request.data, rows,
        fmt::format("{} of the data, of which the first {} at most count for error bounds; parameters without values "
                    "are 1",
                    rows, kBoundRows)};
  }
  Sample sample{{},
                kTimedRows,
                fmt::format("variables drawn uniformly from [0.5, 2), the same in every run: {} rows for error bounds, "
                            "{} for times; parameters without values are 1",
                            kBoundRows, kTimedRows)};
  Random random(1);
  for (std::size_t c = 0; c < columns; ++c) {
    std::vector<double>& column = sample.columns.emplace_back(sample.rows);
    for (double& value : column) value = random.between(0.5, 2.0);
  }
  return sample;
}

void addErrorBounds(const Request& request, const FinalGraph& graph, const Sample& sample, Json& to) {
  const Arithmetic arithmetic{request.precision, request.math};
  const std::size_t rows = std::min(kBoundRows, sample.rows);
  const std::vector<std::size_t> expressions = expressionsOf(graph.dag);
  std::vector<double> row(sample.columns.size());
  for (NodeId id = 0; id < graph.dag.size(); ++id) {
    const Result<Expression> subtree = graph.dag.subtree(id, kLongestBounded);
    if (!subtree) continue;
    std::vector<double> parameters = parametersOf(request, expressions[id]);
    for (double& value : parameters) value = roundTo(request.precision, value);
    ErrorBound bound{0, 0};
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < row.size(); ++c) row[c] = roundTo(request.precision, sample.columns[c][r]);
      const ErrorBound of_row = boundOf(evaluateBounded(*subtree, row, parameters, arithmetic));
      bound.absolute = std::max(bound.absolute, of_row.absolute);
      bound.relative = std::max(bound.relative, of_row.relative);
    }
    to["nodes"][graph.ids[id]]["bound"] = {{"absolute", numberOf(bound.absolute)},
                                           {"relative", numberOf(bound.relative)}};
  }
}

Status addTimes(const Request& request, const Sample& sample, Json& to) {
  const auto add = [&](const char* device) -> Status {
    EngineOptions options;
    options.device = device;
    options.precision = request.precision;
    options.math = request.math;
    options.threads = 1;
    const Result<Engine> engine = Engine::create(options);
    if (!engine) return engine.error();
    return addTimesOf(*engine, device, request, sample, to);
  };
  if (Status cpu = add("cpu"); !cpu) return cpu;
  if (const Status gpu = add("cuda:0"); !gpu) {
    to["notices"].push_back("no times of a GPU: " + gpu.error().message);
  }
  return okStatus();
}

}  // namespace srjit::explain

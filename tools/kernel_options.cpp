#include "tools/kernel_options.h"

#include <set>

#include "passes/pass.h"
#include "runtime/loss_value.h"

namespace srjit {

DeviceOptions KernelOptions::device() const {
  DeviceOptions device;
  device.precision = precision;
  device.math = math;
  device.arch = arch;
  device.rows_per_thread = rows_per_thread != 0 ? rows_per_thread : kind == KernelKind::kInterpreter ? 8 : 4;
  if (kind == KernelKind::kLoss || loss_given) device.loss = lossSpec({loss, nan}, weighted);
  return device;
}

void addGraphOptions(CLI::App& app, KernelOptions& options) {
  addExpressionOptions(app, options.expressions);
  addNumericOptions(app, options.math, options.precision);
  addColumnsOption(app, options.columns);
  app.add_option("--passes", options.passes, "the passes to run, as fold,simplify")
      ->type_name("LIST")
      ->capture_default_str();
}

void addDeviceOptions(CLI::App& app, KernelOptions& options) {
  addChoice(app, "--kernel", options.kind,
            {{"values", KernelKind::kValues}, {"loss", KernelKind::kLoss}, {"interpreter", KernelKind::kInterpreter}},
            "predictions, a fused loss, or the interpreter for the operators of the expressions");
  const auto known = [](const std::string& arch) {
    std::string names;
    for (const std::string_view name : deviceArchitectures()) {
      if (name == arch) return std::string();
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return text::inQuotes(arch) + " is none of " + names;
  };
  app.add_option("--arch", options.arch, "the GPU architecture")
      ->check(known, "")
      ->type_name("ARCH")
      ->capture_default_str();
  addChoice(app, "--rows-per-thread", options.rows_per_thread, {{"4", 4u}, {"8", 8u}, {"16", 16u}},
            "rows that a thread computes (4; the interpreter 8)");
  app.add_option("--depth", options.depth, "registers of the interpreter's stack")
      ->check(CLI::Range(3u, 16u).description(""))
      ->type_name("3..16")
      ->capture_default_str();
  auto* loss = addLossChoice(app, options.loss, "the loss of --kernel loss, or of an interpreter that computes losses");
  app.parse_complete_callback([&options, loss] { options.loss_given = loss->count() > 0; });
  addNanChoice(app, options.nan, "what a loss does with rows whose prediction is NaN or infinite");
  app.add_flag("--weighted", options.weighted, "the loss has weights");
}

Result<KernelInput> kernelInput(const KernelOptions& options) {
  const Result<Pipeline> pipeline = Pipeline::parse(options.passes, options.math);
  if (!pipeline) return showPlace(pipeline.error(), options.passes, "--passes", 1);
  const Result<ColumnNames> columns = readColumns(options.columns);
  if (!columns) return columns.error();
  Result<std::vector<SourceLine>> lines = readExpressions(options.expressions, *columns);
  if (!lines) return lines.error();
  std::vector<Expression> batch;
  for (const SourceLine& line : *lines) {
    if (line.ok()) batch.push_back(*line.expression);
  }
  Dag graph = Dag::fromExpressions(batch, options.precision);
  graph = pipeline->run(std::move(graph), PassContext{options.math});
  return KernelInput{std::move(*lines), std::move(graph)};
}

HandlerTable interpreterFor(const Dag& graph, const KernelOptions& options) {
  std::set<Op> ops;
  for (const Node& node : graph.nodes()) {
    if (node.kind == Token::Kind::kOp) ops.insert(node.op);
  }
  InterpreterSpec spec;
  spec.precision = options.precision;
  spec.math = options.math;
  spec.ops.assign(ops.begin(), ops.end());
  spec.rows_per_thread = options.device().rows_per_thread;
  spec.depth = options.depth;
  return HandlerTable(std::move(spec));
}

}  // namespace srjit

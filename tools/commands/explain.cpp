#include "tools/explain/explanation.h"

#include "compiler/target/architecture.h"
#include "tools/commands.h"
#include "tools/evaluation.h"
#include "tools/files/data.h"
#include "tools/files/output.h"
#include "tools/kernel_options.h"

namespace srjit {
namespace {

struct ExplainOptions {
  KernelOptions kernel;
  std::string data, out;
  bool json = false, no_times = false;
};

/// The good lines as a request.
explain::Request requestOf(const std::vector<SourceLine>& lines, const ExplainOptions& options,
                           const ColumnNames& columns) {
  explain::Request request;
  for (const SourceLine& line : lines) {
    if (!line.ok()) continue;
    const bool is_infix = options.kernel.expressions.from == Language::kInfix;
    request.expressions.push_back(*line.expression);
    request.texts.push_back(is_infix ? line.text : print(*line.expression, Language::kInfix, columns));
    const std::span<const double> values = line.parameters();
    request.parameters.emplace_back(values.begin(), values.end());
  }
  request.columns = columns;
  request.precision = options.kernel.precision;
  request.math = options.kernel.math;
  request.architecture = options.kernel.arch;
  request.times = !options.no_times;
  request.version = SRJIT_VERSION;
  return request;
}

ExitStatus runExplain(const ExplainOptions& options) {
  const KernelOptions& kernel = options.kernel;
  checkStandardInput(options.data, kernel.expressions);
  const Pipeline pipeline = readPasses(kernel.passes, kernel.math);
  ColumnNames columns = readColumns(kernel.columns);
  std::vector<std::vector<double>> data;
  if (!options.data.empty()) {
    DataTable table = readData(options.data, kernel.expressions.limits.max_bytes).value();
    if (table.named) columns = ColumnNames(table.names);
    data = std::move(table.columns);
  }
  const std::vector<SourceLine> lines = readExpressions(kernel.expressions, columns);
  explain::Request request = requestOf(lines, options, columns);
  if (request.expressions.empty()) return batchStatus(lines, kernel.expressions);
  request.pipeline = pipeline;
  request.data = std::move(data);
  std::optional<OutputFile> out;  // before the work, so that a bad place costs none
  if (!options.out.empty()) out = OutputFile::create(options.out).value();
  const explain::Json explanation = explain::explain(request).value();
  const std::string text = options.json ? explain::asJson(explanation, true) + '\n'
                           : out        ? explain::asPage(explanation)
                                        : explain::asText(explanation);
  const ExitStatus all_read = batchStatus(lines, kernel.expressions);
  if (!out) return std::max(writeResults(text), all_read);
  out->write(text);
  const Status written = out->publish();
  return std::max(written ? kDone : report(written.error()), all_read);
}

}  // namespace

Runner defineExplain(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  addGraphOptions(app, options->kernel);
  app.add_option("--arch", options->kernel.arch, "the GPU architecture")->type_name("ARCH")->capture_default_str();
  app.add_option("--data", options->data,
                 "a table of the variables, for error bounds and times; else numbers are drawn")
      ->type_name("FILE")
      ->excludes(app.get_option("--columns"));
  app.add_option("-o,--out", options->out,
                 "the page to write; without, the explanation is printed as text. With --json, the file to write")
      ->type_name("FILE");
  app.add_flag("--no-times", options->no_times, "measure nothing, so that the same is written every time");
  addJsonOption(app, options->json);
  app.footer(
      "Shows every stage from the text to machine code, and which lines of each belong to the same node: tree, graph\n"
      "after each pass with the rules that fired, derivatives, programs of both interpreters, LLVM IR, PTX, direct\n"
      "machine code, assembly. Also error bounds, counts of instructions, registers, and times of this machine. The\n"
      "page is one file and needs no network.\n"
      "Examples:\n"
      "  sr-jit explain 'sin(x0)^2 + x1/4' --out page.html\n"
      "  sr-jit explain 'p0 * exp(-p1 * x0)' --precision f64 --json");
  return [options] {
    checkPtxArchitecture(options->kernel.arch);
    return runExplain(*options);
  };
}

}  // namespace srjit

#include "tools/kernel_options.h"

#include <set>

#include <fmt/format.h>

#include "compiler/lowering/source_map.h"
#include "compiler/target/architecture.h"
#include "passes/gradient/deriver.h"
#include "passes/pass.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/evaluation/ranges.h"
#include "tools/report.h"

namespace srjit {
namespace {

constexpr const char *kLengthOption = "--max-length", *kListingOption = "--listing";

/// Makes an error of every expression whose code is too long for a kernel, and reports it.
void refuseLong(std::vector<SourceLine>& lines, const KernelOptions& options, KernelCode code) {
  const CodeWeights weights = codeWeights(options.precision, options.math);
  for (SourceLine& line : lines) {
    if (!line.ok()) continue;
    const bool device = code == KernelCode::kDevice;
    Population alone;
    alone.add(*line.expression);
    const std::size_t length = device ? deviceCodeLength(alone[0], weights) : hostCodeLength(alone[0]);
    if (length <= options.longest) continue;
    line.fail(failure(Errc::kInvalid, "the expression has {} {}, but a kernel has at most {}; {} {} allows it", length,
                      device ? "instructions" : "tokens", options.longest, kLengthOption, length));
    report(line.expression.error());
  }
}

/// Places of the first and last line of every kernel.
using Places = std::vector<std::pair<std::size_t, std::size_t>>;

Places divided(const std::vector<SourceLine>& lines, const KernelOptions& options, KernelCode code) {
  ProgramSource good{.precision = options.precision, .math = options.math};
  std::vector<std::size_t> places;
  std::vector<std::uint32_t> order;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].ok()) continue;
    order.push_back(static_cast<std::uint32_t>(good.expressions.size()));
    good.expressions.add(*lines[i].expression);
    places.push_back(i);
  }
  Places kernels;
  if (code == KernelCode::kOneGraph) {
    if (!places.empty()) kernels.emplace_back(places.front(), places.back());
  } else if (code == KernelCode::kDevice) {
    const CodeWeights weights = codeWeights(options.precision, options.math);
    std::vector<std::uint32_t> too_long;
    for (const Range& range : rangesForDevice(good, order, weights, too_long, options.longest)) {
      kernels.emplace_back(places[range.expressions.front()], places[range.expressions.back()]);
    }
  } else {
    const Tier tier = code == KernelCode::kHost ? Tier::kCompile : Tier::kInterpret;
    for (const Range& range : rangesForHost(good, tier, options.longest)) {
      kernels.emplace_back(places[range.expressions.front()], places[range.expressions.back()]);
    }
  }
  return kernels;
}

Dag writtenGraph(std::span<const Expression> members, const KernelOptions& options) {
  BatchOptimizer batch(options.precision, options.math, {}, false);
  const Population population(members);
  for (std::size_t e = 0; e < population.size(); ++e) batch.add(population[e]);
  return batch.take();
}

/// Throws for an architecture that `tier` has not. Of those that LLVM writes PTX for, the direct tier itself refuses
/// what it has not: they are known, so naming one is no wrong usage.
void checkArchitecture(const std::string& arch, Tier tier) {
  std::vector<std::string_view> own;
  for (const Architecture& row : allArchitectures()) {
    const bool has = tier == Tier::kDirect ? row.has_direct_code : row.has_ptx;
    if (row.name == arch && (has || row.has_ptx)) return;
    if (has) own.push_back(row.name);
  }
  throw CLI::ValidationError("--arch", fmt::format("{} is none of {}", text::inQuotes(arch), fmt::join(own, ", ")));
}

}  // namespace

DeviceOptions KernelOptions::device() const {
  DeviceOptions device;
  device.precision = precision;
  device.math = math;
  device.arch = arch;
  device.rows_per_thread = rows_per_thread != 0 ? rows_per_thread : kind == ShownKernel::kInterpreter ? 8 : 4;
  if (kind == ShownKernel::kLoss || loss_given) device.loss = lossSpec({loss, nan}, weighted);
  return device;
}

void addGraphOptions(CLI::App& app, KernelOptions& options) {
  addExpressionOptions(app, options.expressions);
  addNumericOptions(app, options.math, options.precision);
  addColumnsOption(app, options.columns);
  app.add_option("--passes", options.passes, "the passes to run, as simplify,fma")
      ->type_name("LIST")
      ->capture_default_str();
}

void addCodeOptions(CLI::App& app, KernelOptions& options) {
  addGraphOptions(app, options);
  addSimplifyOption(app, options.simplify)->excludes(app.get_option("--passes"));
}

void addDeviceOptions(CLI::App& app, KernelOptions& options) {
  addChoice(
      app, "--kernel", options.kind,
      {{"values", ShownKernel::kValues}, {"loss", ShownKernel::kLoss}, {"interpreter", ShownKernel::kInterpreter}},
      "predictions, a fused loss, or an interpreter, of which expressions only say which operators it has");
  app.add_option("--arch", options.arch, "the GPU architecture")->type_name("ARCH")->capture_default_str();
  addChoice(app, "--rows-per-thread", options.rows_per_thread, {{"4", 4u}, {"8", 8u}, {"16", 16u}},
            "rows that a thread computes (4; the interpreter 8)");
  addDepthOption(app, options);
  auto* loss = addLossChoice(app, options.loss, "the loss of --kernel loss, or of an interpreter that computes losses");
  app.parse_complete_callback([&options, loss] { options.loss_given = loss->count() > 0; });
  addNanChoice(app, options.nan, "what a loss does with rows whose prediction is NaN or infinite");
  app.add_flag("--weighted", options.weighted, "the loss has weights");
}

CLI::Option* addDepthOption(CLI::App& app, KernelOptions& options) {
  return addCount(app, "--depth", options.depth, "registers of the GPU interpreter's stack; engines use the default", 3,
                  16)
      ->type_name("3..16");
}

void addLengthOption(CLI::App& app, KernelOptions& options, const std::string& unit) {
  addCount(app, kLengthOption, options.longest, "the longest expression that gets a kernel, in " + unit, 1);
}

void addListingOption(CLI::App& app, KernelOptions& options) {
  app.add_option(kListingOption, options.listing,
                 "write the graphs to FILE, one operator per line; the code names the line of each instruction, as "
                 "profilers show it")
      ->check([](const std::string& name) { return name == "-" ? "code cannot name standard output" : ""; }, "")
      ->type_name("FILE");
}

void checkPtxArchitecture(const std::string& arch) { checkArchitecture(arch, Tier::kCompile); }

void checkDeviceOptions(const CLI::App& app, const KernelOptions& options, Tier tier) {
  const bool direct = tier == Tier::kDirect, interpreter = options.kind == ShownKernel::kInterpreter;
  const bool loss = options.kind == ShownKernel::kLoss || options.loss_given;
  checkArchitecture(options.arch, tier);
  if (direct && interpreter) {
    throw CLI::ValidationError("--kernel", "the direct tier has kernels for values and losses only");
  }
  const struct {
    const char* option;
    bool has_effect;
    const char* reason;
  } rules[] = {
      {"--depth", interpreter, "only --kernel interpreter has a stack"},
      {"--rows-per-thread", !direct, "the direct tier chooses the rows that a thread computes"},
      {kLengthOption, !direct && !interpreter, "only kernels of expressions that LLVM compiles have a length limit"},
      {kListingOption, !direct && !interpreter, "only kernels of expressions that LLVM compiles name their lines"},
      {"--nan", loss, "it is for losses: give --loss or --kernel loss"},
      {"--weighted", loss, "it is for losses: give --loss or --kernel loss"},
  };
  for (const auto& rule : rules) {
    const CLI::Option* const option = app.get_option_no_throw(rule.option);
    if (!rule.has_effect && option != nullptr && option->count() > 0) {
      throw CLI::ValidationError(rule.option, rule.reason);
    }
  }
}

std::string KernelInput::describe(std::size_t index) const {
  const auto [first, last] = expressions[index];
  return first == last ? fmt::format("expression {}", first + 1)
                       : fmt::format("expressions {} to {}", first + 1, last + 1);
}

std::string KernelInput::comment(std::string_view mark) const {
  std::string text;
  for (std::size_t i = 0; graphs.size() > 1 && i < graphs.size(); ++i) {
    text += fmt::format("{} {}: {}\n", mark, rowsKernelName(i), describe(i));
  }
  return text;
}

KernelInput kernelInput(const KernelOptions& options, KernelCode code) {
  const Pipeline pipeline = readPasses(options.passes, options.math);
  KernelInput input{readExpressions(options.expressions, readColumns(options.columns)), {}, {}};
  if (code == KernelCode::kDevice || code == KernelCode::kHost) refuseLong(input.lines, options, code);
  for (const auto& [first, last] : divided(input.lines, options, code)) {
    std::vector<Expression> members;
    for (std::size_t i = first; i <= last; ++i) {
      if (input.lines[i].ok()) members.push_back(*input.lines[i].expression);
    }
    input.graphs.push_back(
        options.simplify ? pipeline.run(Dag::fromExpressions(members, options.precision), PassContext{options.math})
                         : writtenGraph(members, options));
    input.expressions.emplace_back(first, last);
  }
  return input;
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

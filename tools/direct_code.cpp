#include "tools/direct_code.h"

#include <optional>
#include <vector>

#include <fmt/format.h>

#include "compiler/direct/emitter.h"
#include "compiler/sass/cubin_writer.h"
#include "compiler/target/architecture.h"
#include "ir/ops.h"
#include "ir/text/lexer.h"

namespace srjit {
namespace {

/// For every node, an operator in what it computes that the direct tier has no code for; none if it has all.
std::vector<std::optional<Op>> operatorsWithoutCode(const Dag& graph, Math math) {
  std::vector<std::optional<Op>> found(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    for (const NodeId operand : node.inputs()) {
      if (!found[id]) found[id] = found[operand];
    }
    const bool lacks = node.kind == Token::Kind::kOp && !isDirect(node.op, math, graph.precision());
    if (lacks && !found[id]) found[id] = node.op;
  }
  return found;
}

/// Why there is no direct code for a root, which has the operator `op` without code or none such, and what to do.
std::string refusalOf(std::optional<Op> op, const DirectOptions& options) {
  if (!op) {
    return fmt::format("its code of the direct tier needs more than {} registers; use --tier compile",
                       options.registers);
  }
  const bool fast = isDirect(*op, Math::kFast, options.precision);
  return fmt::format("the direct tier has no code for {} in {} {}; use --tier compile{}",
                     text::inQuotes(infoOf(*op).name), nameOf(options.math), nameOf(options.precision),
                     fast ? " or --math fast" : "");
}

/// Makes errors of the lines whose roots have no code, and reports them.
void refuse(KernelInput& input, std::span<const std::uint32_t> roots, const DirectOptions& options) {
  if (roots.empty()) return;
  const Dag& graph = input.graphs[0];
  std::vector<SourceLine*> lines;  // of the roots, in order
  for (SourceLine& line : input.lines) {
    if (line.ok()) lines.push_back(&line);
  }
  const std::vector<std::optional<Op>> operators = operatorsWithoutCode(graph, options.math);
  for (const std::uint32_t root : roots) {
    SourceLine& line = *lines[root];
    const std::string why = refusalOf(operators[graph.roots()[root]], options);
    line.expression = Error{Errc::kUnsupported, fmt::format("{}:{}: {}", line.origin, line.line, why), {}};
    report(line.expression.error());
  }
}

}  // namespace

Result<Cubin> directCubin(KernelInput& input, const KernelOptions& options) {
  DirectOptions direct;
  direct.architecture = architectureOf(options.arch).number;
  direct.precision = options.precision;
  direct.math = options.math;
  direct.loss = options.device().loss;
  Result<DirectEmitter> emitter = DirectEmitter::create(direct);
  if (!emitter) return Error{emitter.error().code, emitter.error().message + "; use --tier compile", {}};
  const DirectPart part = emitter->emit(input.graphs[0]);
  refuse(input, part.refused, direct);
  if (part.groups.empty()) return Cubin{};
  const Result<DirectImage> image = joinDirect({&part, 1}, direct);
  if (!image) return image.error();
  const KernelDescription kernel = directKernel(*image);
  return Cubin{writeCubin({&kernel, 1}, direct.architecture), {{.name = kernel.name, .registers = kernel.registers}}};
}

}  // namespace srjit

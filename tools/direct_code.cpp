#include "tools/direct_code.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compiler/direct/emitter.h"
#include "compiler/sass/cubin_writer.h"
#include "compiler/target/architecture.h"

namespace srjit {
namespace {

/// Why there is no direct code for a root, of which the tier lacks `operators`, and what to do.
std::string refusalOf(std::span<const Op> operators, const DirectOptions& options) {
  if (operators.empty()) {
    return fmt::format("its code of the direct tier {}; use --tier compile", tooLongText(options));
  }
  std::string names;
  for (const Op op : operators) {
    names += (names.empty() ? "" : ", ") + gapText(op, options.math, options.precision);
  }
  return fmt::format("in {} {} the direct tier has no code for {}; use --tier compile", nameOf(options.math),
                     nameOf(options.precision), names);
}

/// Makes errors of the lines whose roots have no code, and reports them.
void refuse(KernelInput& input, std::span<const std::uint32_t> roots, const DirectOptions& options) {
  if (roots.empty()) return;
  const Dag& graph = input.graphs[0];
  std::vector<SourceLine*> lines;  // of the roots, in order
  for (SourceLine& line : input.lines) {
    if (line.ok()) lines.push_back(&line);
  }
  for (const std::uint32_t root : roots) {
    SourceLine& line = *lines[root];
    const std::string why = refusalOf(operatorsWithoutCode(graph, root, options.math), options);
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

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

/// Makes errors of the lines whose roots have no code, and reports them.
void refuse(KernelInput& input, std::span<const std::uint32_t> roots, const DirectOptions& options) {
  if (roots.empty()) return;
  std::vector<SourceLine*> lines;  // of the roots, in order
  for (SourceLine& line : input.lines) {
    if (line.ok()) lines.push_back(&line);
  }
  for (const std::uint32_t root : roots) {
    SourceLine& line = *lines[root];
    line.expression = Error{Errc::kUnsupported,
                            fmt::format("{}:{}: its code of the direct tier {}; use --tier compile", line.origin,
                                        line.line, tooLongText(options)),
                            {}};
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

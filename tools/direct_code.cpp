#include "tools/direct_code.h"

#include <span>
#include <vector>

#include "compiler/direct/emitter.h"
#include "compiler/sass/cubin_writer.h"
#include "compiler/target/architecture.h"
#include "tools/failure.h"

namespace srjit {
namespace {

/// Makes errors of the lines whose roots have no code, and reports them.
void refuseRoots(KernelInput& input, std::span<const std::uint32_t> roots, const DirectOptions& options) {
  std::vector<SourceLine*> lines;  // of the roots, in order
  for (SourceLine& line : input.lines) {
    if (line.ok()) lines.push_back(&line);
  }
  for (const std::uint32_t root : roots) {
    lines[root]->fail(
        failure(Errc::kUnsupported, "its code of the direct tier {}; use --tier compile", tooLongText(options)));
    report(lines[root]->expression.error());
  }
}

}  // namespace

Cubin directCubin(KernelInput& input, const KernelOptions& options) {
  DirectOptions direct;
  direct.architecture = architectureOf(options.arch).number;
  direct.precision = options.precision;
  direct.math = options.math;
  direct.loss = options.device().loss;
  Result<DirectEmitter> emitter = DirectEmitter::create(direct);
  if (!emitter) throwError(failure(emitter.error().code, "{}; use --tier compile", emitter.error().message));
  const DirectPart part = emitter->emit(input.graphs[0]);
  refuseRoots(input, part.refused, direct);
  if (part.groups.empty()) return {};
  const DirectImage image = joinDirect({&part, 1}, direct).value();
  const KernelDescription kernel = directKernel(image);
  return {writeCubin({&kernel, 1}, direct.architecture), {{.name = kernel.name, .registers = kernel.registers}}};
}

}  // namespace srjit

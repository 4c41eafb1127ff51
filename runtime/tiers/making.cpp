// Makes the code of a program, of every kind, and records the time that it takes.
#include <numeric>
#include <optional>

#include "runtime/code/compile.h"
#include "runtime/code/direct.h"
#include "runtime/code/interpreted/encode.h"
#include "runtime/platform/clock.h"
#include "runtime/platform/guarded.h"
#include "runtime/platform/trace.h"
#include "runtime/tiers/selection.h"

namespace srjit {

std::vector<std::uint32_t> TierSelection::allOf(const ProgramSource& source) {
  std::vector<std::uint32_t> all(source.expressions.size());
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

CodeRequest TierSelection::request(const GraphSource& source, std::span<const std::uint32_t> chosen) const {
  return {source.program, chosen, *queue_, *store_, threads_, source.filter, source.deadline};
}

// The kernels that encode populations on the device are loaded or made in the background: no population waits for the
// assembler, which may be the driver's. Where that fails, the host encodes. Making begins with the second population:
// the end of an engine waits for the assembler, and an engine that encodes a single population would wait in vain.
void TierSelection::prepareFrontEnd(const ProgramSource& source) {
  if (!isEncodedOnDevice(source) || source.is_continued) return;
  (void)guarded([&] {
    const bool is_first = !has_had_population_for_device_.exchange(true);
    if ((is_first && !store_->hasFrontEndImage()) || asked_for_front_end_.exchange(true)) return okStatus();
    jobs_.post([store = store_, queue = queue_] {
      (void)guarded([&] {
        const CurrentContext current(*queue->cuda);
        return store->makeFrontEnd(queue->uploads);
      });
    });
    return okStatus();
  });
}

TierSelection::Code TierSelection::interpreted(const GraphSource& source) const {
  TraceSpan span(TraceKind::kCompile, kInterpreterCode, queue_->name);
  span.add("expressions", source.program.expressions.size());
  span.add("tokens", source.program.tokens);
  const std::vector<std::uint32_t> all = allOf(source.program);
  return arena_.execute([&] { return std::make_shared<const DeviceCode>(encodeForDevice(request(source, all))); });
}

// On the calling thread's arena.
Graphs TierSelection::graphsFor(CodeKind code, const GraphSource& source, std::span<const std::uint32_t> chosen,
                                const std::atomic<bool>& cancelled) const {
  if (code == CodeKind::kDirect) {
    TraceSpan span(TraceKind::kCompile, "graphs", queue_->name);
    span.add("expressions", source.program.expressions.size());
    return directGraphs(source, threads_);
  }
  const CodeRequest planned = request(source, chosen);
  Graphs graphs = planKernels(planned);
  addGraphs(graphs, planned, cancelled);
  return graphs;
}

// Machine code. `program` is null in the background, where kCompiledRefused is never made: it serves only an evaluation
// that waits. Other programs need the self-test, too, so the end of this one does not cancel it.
Result<TierSelection::Code> TierSelection::make(CodeKind code, const GraphSource& source, const DeviceProgram* program,
                                                const KernelKind& kind, std::size_t rows,
                                                const std::atomic<bool>& cancelled) {
  const CurrentContext current(*queue_->cuda);
  const Graphs* const graphs = program != nullptr ? program->graphs(code) : nullptr;
  if (code != CodeKind::kDirect) {
    const auto chosen = code == CodeKind::kCompiledRefused ? program->refused() : allOf(source.program);
    return compiled(source, chosen, graphs, kind, cancelled);
  }
  if (auto failure = self_test_.ensure(jobs_.isShutDown())) return std::move(*failure);
  return direct(source, graphs, kind, rows, cancelled);
}

TierSelection::Code TierSelection::compiled(const GraphSource& source, std::span<const std::uint32_t> chosen,
                                            const Graphs* graphs, const KernelKind& kind,
                                            const std::atomic<bool>& cancelled) {
  TraceSpan span(TraceKind::kCompile, kCompiledCode, queue_->name);
  span.add("expressions", chosen.size());
  std::optional<Graphs> own;
  if (graphs == nullptr) graphs = &own.emplace(graphsFor(CodeKind::kCompiled, source, chosen, cancelled));
  auto made = std::make_shared<const DeviceCode>(compileForDevice(request(source, chosen), *graphs, kind, cancelled));
  costs_.addMaking(&DeviceCosts::compile, static_cast<double>(made->report.made_tokens), made->report.made_seconds);
  return made;
}

TierSelection::Code TierSelection::direct(const GraphSource& source, const Graphs* graphs, const KernelKind& kind,
                                          std::size_t rows, const std::atomic<bool>& cancelled) {
  TraceSpan span(TraceKind::kCompile, kDirectCode, queue_->name);
  const std::size_t expressions = source.program.expressions.size(), tokens = source.program.tokens;
  span.add("expressions", expressions);
  span.add("tokens", tokens);
  const Stopwatch watch;
  std::optional<Graphs> own;
  if (graphs == nullptr) graphs = &own.emplace(directGraphs(source, threads_));
  const DirectShape shape = directShape(expressions, rows, queue_->cuda->limits().multiprocessors);
  auto made = std::make_shared<const DeviceCode>(directForDevice(request(source), *graphs, kind, shape, cancelled));
  const double seconds = own ? watch.seconds() : graphs->seconds + watch.seconds();
  if (made->direct) costs_.addMaking(&DeviceCosts::write, static_cast<double>(tokens), seconds * threads_);
  return made;
}

}  // namespace srjit

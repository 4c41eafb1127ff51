#include "runtime/tiers/code_maker.h"

#include <numeric>
#include <optional>

#include "runtime/code/interpreted/encode.h"
#include "runtime/platform/clock.h"
#include "runtime/platform/guarded.h"
#include "runtime/platform/trace.h"

namespace srjit {

std::vector<std::uint32_t> CodeMaker::allOf(const ProgramSource& source) {
  std::vector<std::uint32_t> all(source.expressions.size());
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

CodeRequest CodeMaker::request(const GraphSource& source, std::span<const std::uint32_t> chosen) const {
  return {source.program, chosen, *queue_, *store_, threads_, source.subtrees, source.deadline};
}

CodeMaker::Code CodeMaker::interpreted(const GraphSource& source) const {
  TraceSpan span(TraceKind::kCompile, kInterpreterCode, queue_->name);
  span.add("expressions", source.program.expressions.size());
  span.add("tokens", source.program.tokens);
  const std::vector<std::uint32_t> all = allOf(source.program);
  return arena_.execute([&] { return std::make_shared<const DeviceCode>(encodeForDevice(request(source, all))); });
}

Graphs CodeMaker::directGraphs(const GraphSource& source) const {
  TraceSpan span(TraceKind::kCompile, "graphs", queue_->name);
  span.add("expressions", source.program.expressions.size());
  return arena_.execute([&] { return srjit::directGraphs(source, threads_); });
}

Graphs CodeMaker::compilePlan(const GraphSource& source, const std::atomic<bool>& cancelled) const {
  return arena_.execute([&] { return planOf(source, allOf(source.program), cancelled); });
}

Graphs CodeMaker::planOf(const GraphSource& source, std::span<const std::uint32_t> chosen,
                         const std::atomic<bool>& cancelled) const {
  const CodeRequest planned = request(source, chosen);
  Graphs plan = planKernels(planned);
  addGraphs(plan, planned, cancelled);
  return plan;
}

CodeMaker::Code CodeMaker::compiled(const GraphSource& source, std::span<const std::uint32_t> chosen,
                                    const Graphs* plan, const KernelKind& kind,
                                    const std::atomic<bool>& cancelled) const {
  TraceSpan span(TraceKind::kCompile, kCompiledCode, queue_->name);
  span.add("expressions", chosen.size());
  std::optional<Graphs> own;
  if (plan == nullptr) plan = &own.emplace(planOf(source, chosen, cancelled));
  auto made = std::make_shared<const DeviceCode>(compileForDevice(request(source, chosen), *plan, kind, cancelled));
  costs_.addMaking(&DeviceCosts::compile, static_cast<double>(made->report.made_tokens), made->report.made_seconds);
  return made;
}

CodeMaker::Code CodeMaker::direct(const GraphSource& source, const Graphs* graphs, const KernelKind& kind,
                                  std::size_t rows, const std::atomic<bool>& cancelled) const {
  TraceSpan span(TraceKind::kCompile, kDirectCode, queue_->name);
  span.add("expressions", source.program.expressions.size());
  span.add("tokens", source.program.tokens);
  const Stopwatch watch;
  std::optional<Graphs> own;
  if (graphs == nullptr) graphs = &own.emplace(srjit::directGraphs(source, threads_));
  const DirectShape shape =
      directShape(source.program.expressions.size(), rows, queue_->cuda->limits().multiprocessors);
  auto made = std::make_shared<const DeviceCode>(directForDevice(request(source), *graphs, kind, shape, cancelled));
  const double seconds = own ? watch.seconds() : graphs->seconds + watch.seconds();
  if (made->direct) {
    costs_.addMaking(&DeviceCosts::write, static_cast<double>(source.program.tokens), seconds * threads_);
  }
  return made;
}

MissingKernels CodeMaker::missing(const GraphSource& source, const KernelKind& kind,
                                  const std::function<bool(const MissingKernels&)>& pays,
                                  const std::atomic<bool>& cancelled) const {
  const auto found = guarded([&]() -> Result<MissingKernels> {
    return findMissing(request(source, allOf(source.program)), kind, pays, cancelled);
  });
  return found ? *found : MissingKernels{source.program.expressions.size(), source.program.tokens};
}

}  // namespace srjit

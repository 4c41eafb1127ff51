// Machine code for batches of expressions; device_code.h says what is made.
#include <algorithm>

#include <tbb/parallel_for.h>

#include "runtime/clock.h"
#include "runtime/device_code.h"
#include "runtime/optimized_dag.h"

namespace srjit {
namespace {

/// A kernel while it is being made.
struct Draft {
  std::vector<std::uint32_t> expressions;
  std::shared_ptr<const LoadedImage> image;
  ParameterTable parameters;
  unsigned rows_per_thread = 4;
  std::size_t nodes = 0;
};

bool spills(const KernelImage& image) {
  return std::any_of(image.kernels.begin(), image.kernels.end(), [](const KernelFacts& facts) {
    return facts.stack_bytes + facts.spill_store_bytes + facts.spill_load_bytes != 0;
  });
}

/// Adjacent chosen expressions, and what came of them.
class Batch {
 public:
  Batch(const CodeRequest& request, const KernelKind& kind, unsigned rows_per_thread,
        const std::atomic<bool>& cancelled)
      : request_(request), kind_(kind), rows_per_thread_(rows_per_thread), cancelled_(cancelled) {}

  void make(std::span<const std::uint32_t> expressions) { make(expressions, rows_per_thread_); }

  std::vector<Draft> drafts;
  std::vector<std::uint32_t> interpreted;  ///< ascending
  std::vector<Failure> failures;
  std::optional<Error> trouble;

 private:
  void make(std::span<const std::uint32_t> expressions, unsigned rows_per_thread) {
    if (cancelled_.load(std::memory_order_relaxed)) return;
    const ProgramSource& source = request_.source;
    std::vector<Expression> members;
    for (const std::uint32_t e : expressions) members.push_back(source.expressions[e]);
    Result<Dag> dag = optimizedDag(members, source.pipeline, source.precision, source.math);
    if (!dag) {
      if (halve(expressions, rows_per_thread)) return;
      failures.push_back({expressions[0], std::move(dag).error()});
      return;
    }
    auto image = request_.store.rows({&*dag, 1}, kind_, rows_per_thread);
    const bool fits = image && !spills(*(*image)->image);
    if (!fits) {
      if (halve(expressions, rows_per_thread)) return;
      if (image && rows_per_thread > 4) return make(expressions, 4);
      if (!image) {
        trouble = std::move(image).error();
        interpreted.push_back(expressions[0]);
        return;
      }
    }
    Draft draft{.expressions = {expressions.begin(), expressions.end()},
                .image = std::move(*image),
                .parameters = {},
                .rows_per_thread = rows_per_thread,
                .nodes = dag->size()};
    for (const ParameterSource& parameter : dag->parameters()) {
      draft.parameters.add(parameter,
                           parameter.isLiteral() ? 0 : source.parameter_offsets[expressions[parameter.expression]]);
    }
    drafts.push_back(std::move(draft));
  }

  bool halve(std::span<const std::uint32_t> expressions, unsigned rows_per_thread) {
    if (expressions.size() == 1) return false;
    make(expressions.first(expressions.size() / 2), rows_per_thread);
    make(expressions.subspan(expressions.size() / 2), rows_per_thread);
    return true;
  }

  const CodeRequest& request_;
  const KernelKind& kind_;
  unsigned rows_per_thread_;
  const std::atomic<bool>& cancelled_;
};

/// Neighbours that are tried as one kernel.
std::vector<std::vector<std::uint32_t>> groupsOf(const CodeRequest& request, std::vector<std::uint32_t>& too_long) {
  std::vector<std::vector<std::uint32_t>> groups;
  std::size_t tokens = 0;
  for (const std::uint32_t e : request.chosen) {
    const std::size_t size = request.source.expressions[e].size();
    if (size > kMaxCompiledDeviceTokens) {
      too_long.push_back(e);
      continue;
    }
    if (groups.empty() || groups.back().size() == kExpressionsPerKernel || tokens + size > kMaxCompiledDeviceTokens) {
      groups.emplace_back();
      tokens = 0;
    }
    groups.back().push_back(e);
    tokens += size;
  }
  return groups;
}

void uploadOutputs(DeviceCode& code, const DeviceQueue& queue) {
  if (code.compiled.empty()) return;
  const std::size_t bytes = code.compiled.size() * sizeof(std::uint32_t);
  code.outputs = DeviceBuffer(queue.uploads, bytes);
  for (CompiledKernel& kernel : code.kernels) kernel.outputs += code.outputs.address();
  queue.uploads->copyToDevice(code.outputs.address(), code.compiled.data(), bytes);
  queue.uploads->synchronize();
}

}  // namespace

DeviceCode compileForDevice(const CodeRequest& request, const KernelKind& kind, unsigned rows_per_thread,
                            const std::atomic<bool>& cancelled) {
  const Stopwatch watch;
  std::vector<std::uint32_t> interpreted;
  const auto groups = groupsOf(request, interpreted);
  std::vector<Batch> batches(groups.size(), Batch(request, kind, rows_per_thread, cancelled));
  tbb::parallel_for(std::size_t{0}, groups.size(), [&](std::size_t g) { batches[g].make(groups[g]); });

  DeviceCode code;
  for (const std::uint32_t e : request.chosen) code.tokens += request.source.expressions[e].size();
  for (const Batch& batch : batches) {
    interpreted.insert(interpreted.end(), batch.interpreted.begin(), batch.interpreted.end());
    code.failures.insert(code.failures.end(), batch.failures.begin(), batch.failures.end());
    if (batch.trouble) code.trouble = batch.trouble;
  }
  if (cancelled.load()) return code;
  std::sort(interpreted.begin(), interpreted.end());
  if (!interpreted.empty()) {
    DeviceCode rest = encodeForDevice({request.source, interpreted, request.queue, request.store, request.threads});
    code.interpreter = std::move(rest.interpreter);
    code.parameters = std::move(rest.parameters);
    code.nodes = rest.nodes;
    code.failures.insert(code.failures.end(), rest.failures.begin(), rest.failures.end());
  }
  const CurrentContext current(*request.queue.cuda);
  for (const Batch& batch : batches) {
    for (const Draft& draft : batch.drafts) {
      code.kernels.push_back({.kernel = draft.image->module.kernel(rowsKernelName(0)),
                              .rows_per_thread = draft.rows_per_thread,
                              .outputs = code.compiled.size() * sizeof(std::uint32_t),  // in the buffer that comes
                              .first_parameter = code.parameters.size()});
      code.images.push_back(draft.image);
      code.compiled.insert(code.compiled.end(), draft.expressions.begin(), draft.expressions.end());
      code.parameters.append(draft.parameters);
      code.nodes += draft.nodes;
    }
  }
  uploadOutputs(code, request.queue);
  std::sort(code.failures.begin(), code.failures.end(),
            [](const Failure& a, const Failure& b) { return a.expression < b.expression; });
  code.seconds_codegen = watch.seconds();
  return code;
}

}  // namespace srjit

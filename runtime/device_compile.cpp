// Machine code for batches of expressions; device_code.h says what is made.
#include <algorithm>

#include <tbb/parallel_for.h>

#include "runtime/clock.h"
#include "runtime/device_code.h"
#include "runtime/optimized_dag.h"

namespace srjit {
namespace {

// Blocks a multiprocessor of f32 and of f64, as measured on an H200 (docs/performance.md).
constexpr unsigned kMinBlocks = 4, kMinBlocksWide = 2;

// Instructions a row (codeWeight()) of one kernel, at most: more do not stay in the instruction cache.
constexpr std::size_t kMaxWeight = 1600;

std::size_t weightOf(const Expression& expression, Precision precision, Math math) {
  std::size_t weight = 0;
  for (const Token& token : expression.tokens()) {
    if (token.kind == Token::Kind::kOp) weight += codeWeight(token.op, precision, math);
  }
  return weight;
}

/// A kernel while it is being made.
struct Draft {
  std::vector<std::uint32_t> expressions;
  std::shared_ptr<const LoadedImage> image;
  ParameterTable parameters;
  std::size_t nodes = 0;
};

// A stack frame is what registers were spilled to; the driver, which assembles PTX, reports no more than that.
bool spills(const LoadedImage& loaded) { return loaded.module.kernel(rowsKernelName(0)).facts().stack_bytes != 0; }

/// Adjacent chosen expressions, and what came of them.
class Batch {
 public:
  Batch(const CodeRequest& request, const KernelKind& kind, const std::atomic<bool>& cancelled)
      : request_(request), kind_(kind), cancelled_(cancelled) {}

  void make(std::span<const std::uint32_t> expressions) {
    make(expressions, request_.source.precision == Precision::kF32 ? kMinBlocks : kMinBlocksWide);
  }

  std::vector<Draft> drafts;
  std::vector<std::uint32_t> interpreted;  ///< ascending
  std::vector<Failure> failures;
  std::optional<Error> trouble;
  std::size_t made_tokens = 0;  ///< of expressions whose kernels did not come from the cache
  double made_seconds = 0;      ///< of one core, for those

 private:
  void make(std::span<const std::uint32_t> expressions, unsigned min_blocks) {
    if (cancelled_.load(std::memory_order_relaxed)) return;
    const ProgramSource& source = request_.source;
    std::vector<Expression> members;
    for (const std::uint32_t e : expressions) members.push_back(source.expressions[e]);
    Result<Dag> dag = optimizedDag(members, source.pipeline, source.precision, source.math);
    if (!dag) {
      if (halve(expressions, min_blocks)) return;
      failures.push_back({expressions[0], std::move(dag).error()});
      return;
    }
    double seconds = 0;
    auto image = request_.store.rows({&*dag, 1}, kind_, kCompiledRowsPerThread, min_blocks, seconds);
    made_seconds += seconds;
    const bool fits = image && !spills(**image);
    if (!image && image.error().code == Errc::kMachine) {
      // Smaller kernels would not help.
      trouble = std::move(image).error();
      interpreted.insert(interpreted.end(), expressions.begin(), expressions.end());
      return;
    }
    if (!fits) {
      if (halve(expressions, min_blocks)) return;
      if (image && min_blocks > 1) return make(expressions, 1);
      if (!image) {
        trouble = std::move(image).error();
        interpreted.push_back(expressions[0]);
        return;
      }
    }
    Draft draft{.expressions = {expressions.begin(), expressions.end()},
                .image = std::move(*image),
                .parameters = {},
                .nodes = dag->size()};
    for (const ParameterSource& parameter : dag->parameters()) {
      draft.parameters.add(parameter,
                           parameter.isLiteral() ? 0 : source.parameter_offsets[expressions[parameter.expression]]);
    }
    if (seconds > 0) {
      for (const Expression& member : members) made_tokens += member.size();
    }
    drafts.push_back(std::move(draft));
  }

  bool halve(std::span<const std::uint32_t> expressions, unsigned min_blocks) {
    if (expressions.size() == 1) return false;
    make(expressions.first(expressions.size() / 2), min_blocks);
    make(expressions.subspan(expressions.size() / 2), min_blocks);
    return true;
  }

  const CodeRequest& request_;
  const KernelKind& kind_;
  const std::atomic<bool>& cancelled_;
};

/// Neighbours that are tried as one kernel.
std::vector<std::vector<std::uint32_t>> groupsOf(const CodeRequest& request, std::vector<std::uint32_t>& too_long) {
  std::vector<std::vector<std::uint32_t>> groups;
  std::size_t weight = 0;
  for (const std::uint32_t e : request.chosen) {
    const Expression& expression = request.source.expressions[e];
    if (expression.size() > kMaxCompiledDeviceTokens) {
      too_long.push_back(e);
      continue;
    }
    const std::size_t own = weightOf(expression, request.source.precision, request.source.math);
    if (groups.empty() || groups.back().size() == kExpressionsPerKernel || weight + own > kMaxWeight) {
      groups.emplace_back();
      weight = 0;
    }
    groups.back().push_back(e);
    weight += own;
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

DeviceCode compileForDevice(const CodeRequest& request, const KernelKind& kind, const std::atomic<bool>& cancelled) {
  const Stopwatch watch;
  std::vector<std::uint32_t> interpreted(request.beside.begin(), request.beside.end());
  const auto groups = groupsOf(request, interpreted);
  std::vector<Batch> batches(groups.size(), Batch(request, kind, cancelled));
  tbb::parallel_for(std::size_t{0}, groups.size(), [&](std::size_t g) { batches[g].make(groups[g]); });

  DeviceCode code;
  for (const auto& expressions : {request.chosen, request.beside}) {
    for (const std::uint32_t e : expressions) code.tokens += request.source.expressions[e].size();
  }
  for (const Batch& batch : batches) {
    code.made_tokens += batch.made_tokens;
    code.made_seconds += batch.made_seconds;
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

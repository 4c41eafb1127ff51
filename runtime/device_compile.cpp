// Machine code for batches of expressions; device_code.h says what is made.
#include <algorithm>

#include <tbb/parallel_for.h>

#include "runtime/clock.h"
#include "runtime/device_code.h"
#include "runtime/optimized_dag.h"
#include "runtime/sharing_order.h"

namespace srjit {
namespace {

// Measured on an H200 (docs/performance.md). More rows a thread overlap more instructions, but take twice the
// registers, twice the time to assemble, and more than the instruction cache holds.
constexpr unsigned kRowsPerThread = 4;
constexpr unsigned kMinBlocks = 4, kMinBlocksWide = 2;  // of f32, of f64

/// Expressions and instructions a row (codeWeight()) of one kernel, at most. More expressions share more of what they
/// compute, and the columns they load; more instructions do not stay in the instruction cache.
constexpr std::size_t kMaxMembers = kExpressionsPerKernel, kMaxWeight = 1600;

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

/// Some of the chosen expressions, and what came of them.
class Batch {
 public:
  Batch(const CodeRequest& request, const KernelKind& kind, const std::atomic<bool>& cancelled)
      : request_(request), kind_(kind), cancelled_(cancelled) {}

  void make(std::span<const std::uint32_t> expressions) {
    make(expressions, request_.source.precision == Precision::kF32 ? kMinBlocks : kMinBlocksWide);
  }

  std::vector<Draft> drafts;
  std::vector<std::uint32_t> interpreted;
  std::vector<Failure> failures;
  std::optional<Error> trouble;

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
    auto image = request_.store.rows({&*dag, 1}, kind_, kRowsPerThread, min_blocks);
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

/// Expressions that are tried as one kernel.
std::vector<std::vector<std::uint32_t>> groupsOf(const CodeRequest& request, std::vector<std::uint32_t>& too_long) {
  std::vector<std::vector<std::uint32_t>> groups;
  std::size_t weight = 0;
  const ProgramSource& source = request.source;
  std::vector<std::uint32_t> order(request.chosen.begin(), request.chosen.end());
  if (source.group_by_sharing) order = orderedBySharing(source.expressions, order, source.precision, source.math);
  for (const std::uint32_t e : order) {
    const Expression& expression = source.expressions[e];
    if (expression.size() > kMaxCompiledDeviceTokens) {
      too_long.push_back(e);
      continue;
    }
    const std::size_t own = weightOf(expression, source.precision, source.math);
    if (groups.empty() || groups.back().size() == kMaxMembers || weight + own > kMaxWeight) {
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
  std::vector<std::uint32_t> interpreted;
  const auto groups = groupsOf(request, interpreted);
  std::vector<Batch> batches(groups.size(), Batch(request, kind, cancelled));
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
                              .rows_per_thread = kRowsPerThread,
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

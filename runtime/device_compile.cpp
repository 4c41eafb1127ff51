// Machine code for batches of expressions; device_code.h says what is made.
#include <algorithm>
#include <functional>
#include <iterator>
#include <mutex>
#include <ranges>

#include <tbb/parallel_for.h>

#include "runtime/aligned_buffer.h"
#include "runtime/clock.h"
#include "runtime/device_code.h"
#include "runtime/optimized_dag.h"
#include "runtime/sharing_order.h"

namespace srjit {
namespace {

// Blocks a multiprocessor of f32 and of f64, as measured on an H200 (docs/performance.md).
constexpr unsigned kMinBlocks = 4, kMinBlocksWide = 2;

// Instructions a row (codeWeight()) of one kernel, at most: more do not stay in the instruction cache.
constexpr std::size_t kMaxWeight = 1600;

/// Kernels of one module, at most: the driver loads modules one after another, and each takes it a while. As long as
/// there are kModulesPerThread for every thread, so that all of them compile to the end.
constexpr std::size_t kKernelsPerModule = 8, kModulesPerThread = 2;

/// What spilling may cost, as a part of a kernel's instructions, before it is made again in halves. The assembler
/// spills a few registers of most kernels to keep within the limit; halves share less of what they compute.
constexpr double kMaxSpilling = 0.02;

unsigned minBlocksOf(Precision precision) { return precision == Precision::kF32 ? kMinBlocks : kMinBlocksWide; }

std::size_t weightOf(const Expression& expression, Precision precision, Math math) {
  std::size_t weight = 0;
  for (const Token& token : expression.tokens()) {
    if (token.kind == Token::Kind::kOp) weight += codeWeight(token.op, precision, math);
  }
  return weight;
}

/// Expressions that are tried as one kernel.
struct Group {
  std::vector<std::uint32_t> expressions;
  std::size_t weight = 0;
};

std::size_t tokensOf(const Group& group, const ProgramSource& source) {
  std::size_t tokens = 0;
  for (const std::uint32_t e : group.expressions) tokens += source.expressions[e].size();
  return tokens;
}

Result<Dag> graphOf(const Group& group, const ProgramSource& source) {
  std::vector<Expression> members;
  for (const std::uint32_t e : group.expressions) members.push_back(source.expressions[e]);
  return optimizedDag(members, source, Tier::kCompile);
}

/// A kernel while it is being made.
struct Draft {
  std::vector<std::uint32_t> expressions;
  std::shared_ptr<const LoadedImage> image;
  Kernel kernel;
  ParameterTable parameters;
  std::size_t nodes = 0;
};

// A stack frame is what registers were spilled to, a word being stored and loaded at least once; the driver, which
// assembles PTX, reports no more than that.
bool spills(const Kernel& kernel, std::size_t weight) {
  const double spilling = 2.0 * kernel.facts().stack_bytes / sizeof(float);
  return spilling > kMaxSpilling * static_cast<double>(weight * kCompiledRowsPerThread);
}

/// Groups whose kernels are tried as one module, and what came of them.
class Batch {
 public:
  Batch(const CodeRequest& request, const KernelKind& kind, const std::atomic<bool>& cancelled)
      : request_(request), kind_(kind), cancelled_(cancelled) {}

  void make(std::span<const Group> groups) { make(groups, minBlocksOf(request_.source.precision)); }

  std::vector<Draft> drafts;
  std::vector<std::uint32_t> interpreted;
  std::vector<Failure> failures;
  std::optional<Error> trouble;
  std::size_t made_tokens = 0;  ///< of expressions whose kernels did not come from the cache
  double made_seconds = 0;      ///< of one core, for those

 private:
  void make(std::span<const Group> groups, unsigned min_blocks) {
    if (cancelled_.load(std::memory_order_relaxed)) return;
    std::vector<Dag> dags;
    for (const Group& group : groups) {
      Result<Dag> dag = graphOf(group, request_.source);
      if (!dag && divide(groups, min_blocks)) return;
      if (!dag) {
        failures.push_back({group.expressions[0], std::move(dag).error()});
        return;
      }
      dags.push_back(std::move(*dag));
    }
    double seconds = 0;
    auto image = request_.store.rows(dags, kind_, kCompiledRowsPerThread, min_blocks, seconds);
    made_seconds += seconds;
    if (!image) {
      // Where it is the machine that fails, smaller kernels would not help.
      if (image.error().code != Errc::kMachine && divide(groups, min_blocks)) return;
      trouble = std::move(image).error();
      for (const Group& group : groups) {
        interpreted.insert(interpreted.end(), group.expressions.begin(), group.expressions.end());
      }
      return;
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const Kernel kernel = (*image)->module.kernel(rowsKernelName(i));
      if (spills(kernel, groups[i].weight)) {
        if (divide(groups.subspan(i, 1), min_blocks)) continue;
        if (min_blocks > 1) {
          make(groups.subspan(i, 1), 1);
          continue;
        }
      }
      if (seconds > 0) made_tokens += tokensOf(groups[i], request_.source);
      keep(groups[i], dags[i], *image, kernel);
    }
  }

  void keep(const Group& group, const Dag& dag, const std::shared_ptr<const LoadedImage>& image, const Kernel& kernel) {
    Draft draft{
        .expressions = group.expressions, .image = image, .kernel = kernel, .parameters = {}, .nodes = dag.size()};
    for (const ParameterSource& parameter : dag.parameters()) {
      draft.parameters.add(parameter, parameter.isLiteral()
                                          ? 0
                                          : request_.source.parameter_offsets[group.expressions[parameter.expression]]);
    }
    drafts.push_back(std::move(draft));
  }

  /// Makes the groups one by one, or the halves of a single one; not if that has a single expression.
  bool divide(std::span<const Group> groups, unsigned min_blocks) {
    if (groups.size() > 1) {
      for (const Group& group : groups) make({&group, 1}, min_blocks);
      return true;
    }
    const std::vector<std::uint32_t>& all = groups[0].expressions;
    if (all.size() == 1) return false;
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    const std::size_t weight = (groups[0].weight + 1) / 2;
    for (const Group& half : {Group{{all.begin(), middle}, weight}, Group{{middle, all.end()}, weight}}) {
      make({&half, 1}, min_blocks);
    }
    return true;
  }

  const CodeRequest& request_;
  const KernelKind& kind_;
  const std::atomic<bool>& cancelled_;
};

/// What is tried first.
struct Plan {
  std::vector<Group> groups;
  std::vector<std::uint32_t> too_long;  ///< expressions that are not tried
  std::size_t kernels_per_module = 1;

  std::size_t modules() const { return ceilDivide(groups.size(), kernels_per_module); }
  std::span<const Group> module(std::size_t m) const {
    const auto rest = std::span(groups).subspan(m * kernels_per_module);
    return rest.first(std::min(kernels_per_module, rest.size()));
  }
};

Plan planOf(const CodeRequest& request) {
  const ProgramSource& source = request.source;
  std::vector<std::uint32_t> order(request.chosen.begin(), request.chosen.end());
  if (source.group_by_sharing) order = orderedBySharing(source.expressions, order, source.precision, source.math);
  Plan plan;
  std::vector<Group>& groups = plan.groups;
  for (const std::uint32_t e : order) {
    const Expression& expression = source.expressions[e];
    if (expression.size() > kMaxCompiledDeviceTokens) {
      plan.too_long.push_back(e);
      continue;
    }
    const std::size_t weight = weightOf(expression, source.precision, source.math);
    if (groups.empty() || groups.back().expressions.size() == kExpressionsPerKernel ||
        groups.back().weight + weight > kMaxWeight) {
      groups.emplace_back();
    }
    groups.back().expressions.push_back(e);
    groups.back().weight += weight;
  }
  plan.kernels_per_module =
      std::clamp<std::size_t>(groups.size() / (kModulesPerThread * request.threads), 1, kKernelsPerModule);
  return plan;
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
  std::ranges::set_difference(std::views::iota(0U, static_cast<std::uint32_t>(request.source.expressions.size())),
                              request.chosen, std::back_inserter(interpreted));
  const Plan plan = planOf(request);
  interpreted.insert(interpreted.end(), plan.too_long.begin(), plan.too_long.end());
  std::vector<Batch> batches(plan.modules(), Batch(request, kind, cancelled));
  tbb::parallel_for(std::size_t{0}, batches.size(), [&](std::size_t b) { batches[b].make(plan.module(b)); });

  DeviceCode code;
  code.tokens = request.source.tokens;
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
      code.kernels.push_back({.kernel = draft.kernel,
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

MissingKernels findMissing(const CodeRequest& request, const KernelKind& kind,
                           const std::function<bool(const MissingKernels&)>& worth,
                           const std::atomic<bool>& cancelled) {
  const Plan plan = planOf(request);
  const auto allOf = [&](std::span<const Group> groups) {
    MissingKernels all{.kernels = groups.size(), .tokens = 0};
    for (const Group& group : groups) all.tokens += tokensOf(group, request.source);
    return all;
  };
  std::mutex mutex;
  MissingKernels missing;
  std::atomic<bool> stopped = false;
  tbb::parallel_for(std::size_t{0}, plan.modules(), [&](std::size_t m) {
    if (stopped.load(std::memory_order_relaxed) || cancelled.load(std::memory_order_relaxed)) return;
    const std::span<const Group> groups = plan.module(m);
    std::vector<Dag> dags;
    for (const Group& group : groups) {
      Result<Dag> dag = graphOf(group, request.source);
      if (!dag) break;  // then its expressions are tried in another way
      dags.push_back(std::move(*dag));
    }
    if (dags.size() == groups.size() &&
        request.store.hasRows(dags, kind, kCompiledRowsPerThread, minBlocksOf(request.source.precision))) {
      return;
    }
    const MissingKernels more = allOf(groups);
    const std::lock_guard lock(mutex);
    missing.kernels += more.kernels;
    missing.tokens += more.tokens;
    if (!worth(missing)) stopped = true;
  });
  return stopped || cancelled.load() ? allOf(plan.groups) : missing;
}

}  // namespace srjit

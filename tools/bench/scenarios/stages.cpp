// Time to prepare expressions, by stage and by size: single stages on one core, the whole on all cores, and reads from
// the kernel cache. Only loading needs a device.
#include <algorithm>
#include <atomic>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "compiler/direct/emitter.h"
#include "compiler/kernels/assembler.h"
#include "compiler/kernels/identity.h"
#include "compiler/lowering/kernel_name.h"
#include "compiler/nvptx/options.h"
#include "compiler/nvptx/rows_kernel.h"
#include "compiler/sass/cubin_writer.h"
#include "runtime/cache/kernels.h"
#include "runtime/code/compile.h"
#include "runtime/code/parts.h"
#include "runtime/cuda/handles.h"
#include "runtime/evaluation/optimized_dag.h"
#include "tools/bench/baselines/device.h"
#include "tools/bench/gpu_context.h"
#include "tools/bench/scenarios/baseline_timer.h"
#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCompilePart = "compile";

struct Size {
  int nodes;
  std::size_t expressions;  ///< in the runs on all cores
  std::size_t batch;        ///< expressions per kernel
};

std::vector<Size> stageSizes(const BenchContext& context) {
  if (context.quick) return {{10, 32, 16}, {30, 16, 8}, {100, 4, 2}};
  return {{10, 2048, 32}, {30, 1024, 16}, {100, 320, 4}, {300, 96, 1}, {1000, 32, 1}};
}

std::vector<Expression> expressionsOf(const Size& size) {
  GeneratorOptions options = findPopulation("mixed").value();
  options.min_nodes = options.max_nodes = size.nodes;
  return ExpressionGenerator(options).batch(size.expressions);
}

/// Seconds per expression of each stage, one number per kernel.
using Stages = std::vector<std::pair<std::string, std::vector<double>>>;

/// The options of an engine's first attempt at a kernel.
DeviceOptions kernelOptions(const BenchContext& context) {
  DeviceOptions options;
  options.math = Math::kFast;
  options.loss = LossSpec{};
  options.rows_per_thread = kCompiledRowsPerThread;
  options.min_blocks = 4;
  if (!context.onGpu()) return options;
  const auto cuda = must(Cuda::open(must(loadDriver()), static_cast<int>(context.ordinal())));
  options.arch = cuda->limits().arch;
  if (cuda->limits().needs_ptx) options.machine = fmt::format("sm_{}", cuda->limits().capability);
  return options;
}

/// Kernels of `batch` expressions each, on one core.
class OneCore {
 public:
  OneCore(const BenchContext& context, const std::string& scratch)
      : context_(context), cache_directory_(scratch), identity_(compilerIdentity()), options_(kernelOptions(context)) {
    direct_.math = Math::kFast;
    direct_.loss = LossSpec{};
    emitter_.emplace(must(DirectEmitter::create(direct_)));
    if (!context.onGpu()) return;
    auto cuda = must(Cuda::open(must(loadDriver()), static_cast<int>(context.ordinal())));
    // A device newer than all known architectures cannot load their machine code.
    if (!cuda->limits().needs_ptx) cuda_ = std::move(cuda);
    loads_direct_ = cuda_ != nullptr && hasDirect(context.engine(Math::kFast));
    if (!loads_direct_) return;
    direct_.architecture = cuda_->limits().capability;
    emitter_.emplace(must(DirectEmitter::create(direct_)));
  }

  Stages run(std::span<const Expression> expressions, std::size_t batch, double limit) {
    stages_.clear();
    std::vector<KernelKey> keys;
    {
      const auto cache = KernelCache::open({.directory = cache_directory_});
      const Stopwatch watch;
      for (std::size_t first = 0; first + batch <= expressions.size(); first += batch) {
        keys.push_back(make(expressions.subspan(first, batch), *cache));
        if (keys.size() >= (context_.quick ? 2 : 9) || watch.seconds() > limit) break;
      }
    }
    // A second cache object of the same directory has no images in memory. It opens its file at first use.
    const auto cache = KernelCache::open({.directory = cache_directory_});
    cache->readFact("none");
    for (const KernelKey& key : keys) read("from disk", *cache, key, batch);
    return std::move(stages_);
  }

 private:
  template <class Body>
  auto timed(const char* stage, std::size_t expressions, const Body& body) {
    const Stopwatch watch;
    auto result = body();
    const double seconds = watch.seconds() / static_cast<double>(expressions);
    auto found = std::ranges::find(stages_, stage, &Stages::value_type::first);
    if (found == stages_.end()) found = stages_.insert(stages_.end(), {stage, {}});
    found->second.push_back(seconds);
    return result;
  }

  KernelKey make(std::span<const Expression> members, KernelCache& cache) {
    const std::string text = textOf(members, Language::kPostfix);
    const auto parsed = timed("parse", members.size(), [&] { return parseLines(text, Language::kPostfix); });
    const Dag dag = timed("passes", members.size(), [&] {
      return must(optimizedDag(parsed, Pipeline::standard(Math::kFast), Precision::kF32, Math::kFast));
    });
    const KernelKey key = timed("key", members.size(), [&] { return keyOfRows({&dag, 1}, options_, identity_); });
    const std::string ptx = timed("LLVM", members.size(), [&] { return must(rowsPtx({&dag, 1}, options_)); });
    KernelImage image;
    if (assemblerName().empty()) {
      const auto bytes = std::as_bytes(std::span(ptx.c_str(), ptx.size() + 1));
      image = {.code = {bytes.begin(), bytes.end()}, .is_ptx = true, .kernels = {}};
    } else {
      Cubin cubin = timed("assembler", members.size(), [&] { return must(assemble(ptx, options_.arch)); });
      image = {.code = std::move(cubin.image), .is_ptx = false, .kernels = std::move(cubin.kernels)};
    }
    if (cuda_ != nullptr) {
      const CurrentContext current(*cuda_);
      timed("load", members.size(), [&] { return Module(cuda_, image).kernel(rowsKernelName(0)); });
    }
    timed("store", members.size(), [&] { return must(cache.get(key, [&] { return Result(image); })); });
    read("from memory", cache, key, members.size());
    makeDirect(dag, members.size());
    return key;
  }

  void makeDirect(const Dag& dag, std::size_t expressions) {
    const DirectPart part = timed("direct code", expressions, [&] { return emitter_->emit(dag); });
    if (part.groups.empty()) return;
    const KernelImage image = timed("direct image", expressions, [&] {
      const DirectImage joined = must(joinDirect({&part, 1}, direct_));
      const KernelDescription kernel = directKernel(joined);
      KernelImage made;
      made.code = writeCubin({&kernel, 1}, direct_.architecture);
      return made;
    });
    if (!loads_direct_) return;
    const CurrentContext current(*cuda_);
    timed("direct load", expressions, [&] { return Module(cuda_, image).kernel(kDirectKernel); });
  }

  void read(const char* stage, KernelCache& cache, const KernelKey& key, std::size_t expressions) {
    timed(stage, expressions, [&] {
      return must(cache.get(key, []() -> Result<KernelImage> {
        return Error{Errc::kMachine, "the cache has lost an image that it was given", {}};
      }));
    });
  }

  const BenchContext& context_;
  const std::string cache_directory_;
  const std::string identity_;
  const DeviceOptions options_;
  DirectOptions direct_;
  std::optional<DirectEmitter> emitter_;
  std::shared_ptr<const Cuda> cuda_;
  bool loads_direct_ = false;
  Stages stages_;
};

Json jsonOf(const Stages& stages) {
  Json json;
  for (const auto& [stage, seconds] : stages) {
    json[stage] = {medianOf(seconds), quantileOf(seconds, 0.25), quantileOf(seconds, 0.75)};
  }
  return json;
}

/// Seconds per expression for graph, LLVM and assembler, with kernels of `batch` expressions, on all cores.
double allCores(const BenchContext& context, std::span<const Expression> expressions, std::size_t batch) {
  const DeviceOptions options = kernelOptions(context);
  const auto maker = llvmImageMaker();
  std::atomic<bool> failed = false;
  const Stopwatch watch;
  tbb::parallel_for(std::size_t{0}, expressions.size() / batch, [&](std::size_t i) {
    const auto dag = optimizedDag(expressions.subspan(i * batch, batch), Pipeline::standard(Math::kFast),
                                  Precision::kF32, Math::kFast);
    if (!dag || !maker->rows({&*dag, 1}, options)) failed = true;
  });
  if (failed) throw BenchFailure{{Errc::kCompile, "a kernel failed to compile", {}}};
  return watch.seconds() / static_cast<double>(expressions.size());
}

/// Seconds per expression until an engine without cached kernels can evaluate all, on `device`. 0 if the direct tier is
/// requested and not available.
double engineSeconds(const BenchContext& context, const std::string& device, std::span<const Expression> expressions,
                     Tier tier) {
  const Engine engine = must(Engine::create({.device = device, .math = Math::kFast, .cache_directory = ""}));
  const Dataset data = must(engine.upload(BenchData(10, 4096).view()));
  // Compiles the interpreter before the clock starts.
  must(engine.loss(engine.compile(expressions.first(1), {.tier = Tier::kInterpret}), data, {}));
  if (tier == Tier::kDirect && !hasDirect(engine)) return 0;
  const std::vector<double> seconds = context.sample(tier == Tier::kCompile ? 1 : 5, 1, [&] {
    const Stopwatch watch;
    const Program program = engine.compile(expressions, {.tier = tier});
    must(engine.prepare(program, data, LossOptions{}));
    return watch.seconds();
  });
  return medianOf(seconds) / static_cast<double>(expressions.size());
}

/// Preparation times of the published designs that compile.
Json compilingBaselines(const BenchContext& context) {
  Json rows = Json::array();
  if (!context.baselines) return rows;
  constexpr int kNodes = 30;
  const std::vector<Expression> expressions = expressionsOf({kNodes, kNvrtcModuleExpressions, 1});
  const BenchData data(10, 128);
  for (const BaselineInfo& info : allBaselines()) {
    const std::string_view name = info.name;
    if (name != "ptx-each" && name != "nvrtc") continue;
    std::optional<BaselineTimer> timer;
    if (const Status made = caught([&] { timer.emplace(context, info, data); }); !made) {
      context.report->addNotRun(kCompilePart, info.name, made.error().message);
      continue;
    }
    // The first kernel loads the compiler.
    timer->prepare(std::span(expressions).first(1));
    const double seconds = timer->prepare(expressions);
    context.report->add(kCompilePart,
                        {fmt::format("{} nodes, {} expressions made ready by {}", kNodes, expressions.size(), name),
                         "s",
                         {seconds},
                         {},
                         info.doc});
    rows.push_back(
        {{"name", name}, {"nodes", kNodes}, {"expressions", expressions.size()}, {"ready_seconds", seconds}});
  }
  return rows;
}

}  // namespace

void benchStages(const BenchContext& context) {
  const std::vector<Size> sizes = stageSizes(context);
  Json rows = Json::array();
  Progress progress(kCompilePart, sizes.size() * (context.onGpu() ? 6 : 4), false);
  for (const Size& size : sizes) {
    if (!context.mayBegin(kCompilePart, fmt::format("{} nodes", size.nodes))) continue;
    const std::vector<Expression> expressions = expressionsOf(size);
    Json row = {{"nodes", size.nodes}, {"batch", size.batch}, {"expressions", size.expressions}};
    for (const std::size_t batch : {std::size_t{1}, size.batch}) {
      const std::string name = batch == 1 ? "one_per_kernel" : "batched";
      if (row.contains(name)) continue;
      OneCore one(context, fmt::format("{}/stages-{}-{}", context.scratch, size.nodes, batch));
      const Stages stages = one.run(expressions, batch, context.quick ? 0.3 : 2);
      row[name] = jsonOf(stages);
      for (const auto& [stage, seconds] : stages) {
        std::vector<double> samples;
        for (const double value : seconds) samples.push_back(value * 1e6);
        context.report->add(kCompilePart,
                            {fmt::format("{} nodes, {} per kernel, one core: {}", size.nodes, batch, stage),
                             "us/expression", std::move(samples)});
      }
      progress.advance();
    }
    const auto add = [&](const char* key, const std::string& what, double seconds, bool has_target) {
      row[key] = seconds;
      Figure figure{fmt::format("{} nodes, all cores: {}", size.nodes, what), "us/expression", {seconds * 1e6}};
      if (has_target) figure.target = atMost(500);
      context.report->add(kCompilePart, std::move(figure));
      progress.advance();
    };
    add("image_seconds", fmt::format("graph to machine code of a GPU, {} per kernel", size.batch),
        allCores(context, expressions, size.batch), false);
    add("interpret_seconds", "encoded for the interpreter",
        engineSeconds(context, context.device, expressions, Tier::kInterpret), false);
    if (context.onGpu()) {
      const double direct = engineSeconds(context, context.device, expressions, Tier::kDirect);
      if (direct > 0) add("direct_seconds", "to loaded direct code", direct, false);
      add("engine_seconds", "to loaded kernels", engineSeconds(context, context.device, expressions, Tier::kCompile),
          size.nodes == 30);
    }
    add("host_seconds", "to the processor's machine code", engineSeconds(context, "cpu", expressions, Tier::kCompile),
        false);
    rows.push_back(std::move(row));
  }
  Json details = {{"assembler", assemblerName()}, {"sizes", std::move(rows)}};
  context.report->attach(kCompilePart, details);
  details["baselines"] = compilingBaselines(context);
  context.report->attach(kCompilePart, std::move(details));
}

}  // namespace srjit

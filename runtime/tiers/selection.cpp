#include "runtime/tiers/selection.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "runtime/evaluation/code_groups.h"
#include "runtime/gpu/compile.h"
#include "runtime/gpu/encode.h"
#include "runtime/platform/clock.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

/// Seconds that the proof of the direct tier takes, where its interpreter must be compiled first.
constexpr double kProofSeconds = 2;

/// Whether code may still be made; under the job's mutex. An engine that dies cancels what it makes, but another may
/// have the same program.
bool isOpen(const CompileJob& job) {
  return job.code == nullptr && !job.running && (!job.error || job.error->code == Errc::kCancelled);
}

Error cancellation() { return {Errc::kCancelled, "compiling was cancelled", {}}; }

std::vector<std::uint32_t> allOf(const ProgramSource& source) {
  std::vector<std::uint32_t> all(source.expressions.size());
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

double nodesOf(const ProgramSource& source) { return static_cast<double>(source.tokens); }

}  // namespace

DeviceTiers::DeviceTiers(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelCache> cache,
                         std::shared_ptr<KernelStore> store, tbb::task_arena& arena, unsigned threads)
    : queue_(std::move(queue)),
      store_(std::move(store)),
      threads_(threads),
      calibration_(cache,
                   fmt::format("{} ({}) {} {}", queue_->cuda->limits().name, queue_->cuda->limits().driver_version,
                               nameOf(store_->precision()), nameOf(store_->math()))),
      proof_(queue_, store_, cache, threads),
      arena_(arena),
      background_(static_cast<int>(std::max(threads, 2U)) - 1, 0) {}

DeviceTiers::~DeviceTiers() {
  ending_ = true;
  {
    const std::lock_guard lock(started_mutex_);
    for (const auto& started : started_) {
      if (const auto job = started.lock()) job->cancelled = true;
    }
  }
  background_.execute([&] { jobs_->wait(); });
}

CodeRequest DeviceTiers::request(const ProgramSource& source, std::span<const std::uint32_t> chosen) const {
  return {source, chosen, *queue_, *store_, threads_};
}

DeviceTiers::Code DeviceTiers::encode(const ProgramSource& source) {
  const std::vector<std::uint32_t> all = allOf(source);
  return arena_.execute([&] { return std::make_shared<const DeviceCode>(encodeForDevice(request(source, all))); });
}

// In the calling thread's arena.
KernelPlan DeviceTiers::planOf(const ProgramSource& source, std::span<const std::uint32_t> chosen,
                               const std::atomic<bool>& cancelled) const {
  const CodeRequest planned = request(source, chosen);
  KernelPlan plan = planKernels(planned);
  addGraphs(plan, planned, cancelled);
  return plan;
}

void DeviceTiers::begin(Program::State& state, const CompileOptions& options) {
  const ProgramSource& source = *state.source;
  const Tier tier = state.info.tier;
  auto program = std::make_shared<DeviceProgram>(tier, options.expected_passes);
  state.on_device = program;
  const auto directPays = [&] {
    const DeviceCosts costs = calibration_.costs();
    const double nodes = nodesOf(source);
    return makingPays(costs.interpret, costs.direct, options.expected_passes,
                      nodes * static_cast<double>(options.expected_rows), writingSeconds(costs, nodes, threads_));
  };
  const auto record = [&](const std::vector<Failure>& failures, std::size_t nodes, double seconds_passes) {
    state.failures = failures;
    state.info.nodes_after = nodes;
    state.info.seconds_passes = seconds_passes;
  };
  const bool usable = !proof_.known() && (tier == Tier::kDirect || !proof_.isOpen());
  if (usable && (tier == Tier::kDirect || (tier == Tier::kAuto && directPays()))) {
    ProgramGraphs graphs = arena_.execute([&] { return graphsOf(source, threads_); });
    record(graphs.failures, graphs.nodes, graphs.seconds);
    program->setGraphs(std::move(graphs));
  } else if (tier == Tier::kCompile) {
    KernelPlan plan = arena_.execute([&] { return planOf(source, allOf(source), ending_); });
    record(plan.failures, plan.nodes, plan.seconds_passes);
    program->setPlan(std::move(plan));
  } else {
    Code code = encode(source);
    record(code->failures, code->nodes, code->seconds_passes);
    state.info.seconds_codegen = code->seconds_codegen;
    // What the interpreter cannot run is left to machine code, where that may be made.
    if (tier == Tier::kAuto) std::erase_if(state.failures, isRefusal);
    program->setInterpreted(std::move(code));
  }
  if (source.subtrees == nullptr) return;
  source.subtrees->close();
  state.info.subtrees_read = source.subtrees->columns();
  state.info.nodes_spared = source.subtrees->sparedNodes();
}

DeviceTiers::Code DeviceTiers::interpreted(const Program::State& state) {
  DeviceProgram& program = *state.on_device;
  if (program.interpreted() == nullptr) program.setInterpreted(encode(*state.source));
  return program.interpreted();
}

Result<DeviceTiers::Code> DeviceTiers::codeFor(const Program::State& state, const KernelKind& kind,
                                               const DeviceData& data, bool counts) {
  DeviceProgram& program = *state.on_device;
  const double passes = counts ? program.countEvaluation() : 0;
  switch (program.tier()) {
    case Tier::kInterpret:
      return interpreted(state);
    case Tier::kCompile:
      return codeOf(state, {kind, Making::kCompiled});
    case Tier::kDirect: {
      auto refusal = directRefusal(data.layout(), store_->precision());
      program.setDirectRefusal(refusal);
      // Status::error tells why.
      if (refusal) return interpreted(state);
      auto code = codeOf(state, {kind, Making::kDirect, data.layout().rows});
      if (!code && code.error().code == Errc::kUnsupported) return interpreted(state);
      return code;
    }
    case Tier::kAuto:
      break;
  }
  return automatic(state, kind, data, passes);
}

Result<DeviceTiers::Code> DeviceTiers::automatic(const Program::State& state, const KernelKind& kind,
                                                 const DeviceData& data, double passes) {
  DeviceProgram& program = *state.on_device;
  const std::shared_ptr<CompileJob> direct = program.job(kind, Making::kDirect);
  const std::shared_ptr<CompileJob> compiled = program.job(kind, Making::kCompiled);
  const auto look = [](CompileJob& job) {
    const std::lock_guard lock(job.mutex);
    return std::pair(job.code, isOpen(job));
  };
  auto [direct_code, direct_open] = look(*direct);
  auto refusal = directRefusal(data.layout(), store_->precision());
  if (refusal) {
    direct_code = nullptr;
    direct_open = false;
  }
  program.setDirectRefusal(proof_.known() ? std::nullopt : std::move(refusal));
  if (program.graphs() != nullptr && direct_open) {
    // Whoever announces many passes waits for the direct code, which takes no longer than the interpreter's.
    if (auto made = codeOf(state, {kind, Making::kDirect, data.layout().rows})) direct_code = std::move(*made);
    direct_open = false;
  }
  // What neither this tier nor the interpreter can run is compiled: below, with the interpreter's code.
  if (direct_code != nullptr && std::ranges::any_of(direct_code->failures, isRefusal)) direct_code = nullptr;
  const auto [compiled_code, compiled_open] = look(*compiled);
  if (compiled_code != nullptr) return compiled_code;

  const DeviceCosts costs = calibration_.costs();
  const double nodes = nodesOf(*state.source), node_rows = nodes * static_cast<double>(data.layout().rows);
  double serving = direct_code != nullptr ? costs.direct : costs.interpret;
  if (passes > 0 && direct_open && program.refused().empty() && !proof_.known()) {
    const double seconds = writingSeconds(costs, nodes, threads_) + (proof_.isOpen() ? kProofSeconds : 0);
    if (makingPays(serving, costs.direct, passes, node_rows, seconds)) {
      startMaking(state, {kind, Making::kDirect, data.layout().rows});
      serving = costs.direct;
    }
  }
  if (passes > 0 && compiled_open) compileIfWorth(state, kind, serving, passes, node_rows);
  if (direct_code != nullptr) return direct_code;
  Code code = interpreted(state);
  return program.refused().empty() ? code : codeOf(state, {kind, Making::kCompiledRefused});
}

// Begins to make compiled code if that pays though all of it must be compiled, or if it would pay were all in the
// cache. Only the background can tell whether it is, since a kernel's key is that of its graph.
void DeviceTiers::compileIfWorth(const Program::State& state, const KernelKind& kind, double serving, double passes,
                                 double node_rows) {
  const DeviceCosts costs = calibration_.costs();
  const double nodes = nodesOf(*state.source);
  const auto pays = [=](double seconds) { return makingPays(serving, costs.compiled, passes, node_rows, seconds); };
  const auto worth = [=, this](const MissingKernels& missing) {
    return pays(loadingSeconds(costs, nodes, threads_) +
                compileSeconds(costs, static_cast<double>(missing.tokens), missing.kernels, threads_));
  };
  const std::size_t kernels = ceilDivide(state.source->expressions.size(), kExpressionsPerKernel);
  if (pays(compileSeconds(costs, nodes, kernels, threads_))) return startMaking(state, {kind, Making::kCompiled});
  if (!worth({})) return;
  const std::shared_ptr<CompileJob> job = state.on_device->job(kind, Making::kCompiled);
  std::optional<MissingKernels> missing;
  {
    const std::lock_guard lock(job->mutex);
    missing = job->missing;
  }
  if (!missing) return startMaking(state, {kind, Making::kCompiled}, worth);
  if (worth(*missing)) startMaking(state, {kind, Making::kCompiled});
}

// The code of a job, which is made now unless it was before.
Result<DeviceTiers::Code> DeviceTiers::codeOf(const Program::State& state, const Order& order) {
  const std::shared_ptr<CompileJob> job = state.on_device->job(order.kind, order.making);
  std::unique_lock lock(job->mutex);
  job->finished.wait(lock, [&] { return !job->running; });
  if (job->code == nullptr) {
    std::optional<RunningJob> running(job);
    lock.unlock();
    // Direct code is wanted at once, by all threads; LLVM's leaves one for what is evaluated meanwhile.
    tbb::task_arena& arena = order.making == Making::kDirect ? arena_ : background_;
    // Isolated: a task of the same arena that is taken up meanwhile may wait for this very job.
    arena.execute([&] { tbb::this_task_arena::isolate([&] { make(state.source, state.on_device, order, *job); }); });
    running.reset();
    lock.lock();
  }
  if (job->error) return *job->error;
  return job->code;
}

void DeviceTiers::startMaking(const Program::State& state, const Order& order, const Worth& worth) {
  const std::shared_ptr<CompileJob> job = state.on_device->job(order.kind, order.making);
  std::shared_ptr<RunningJob> running;
  {
    const std::lock_guard lock(job->mutex);
    if (!isOpen(*job)) return;
    running = std::make_shared<RunningJob>(job);
  }
  {
    const std::lock_guard lock(started_mutex_);
    std::erase_if(started_, [](const auto& started) { return started.expired(); });
    started_.push_back(job);
  }
  // The job ends with what is enqueued, run or not.
  background_.enqueue(jobs_->defer([this, source = state.source, order, worth, running = std::move(running)] {
    if (!worth || looksWorth(source, order.kind, worth, **running)) make(source, nullptr, order, **running);
  }));
}

// If it is not worth it, the job is open again, and knows what is missing.
bool DeviceTiers::looksWorth(const Source& source, const KernelKind& kind, const Worth& worth, CompileJob& job) {
  const auto found = guarded([&]() -> Result<MissingKernels> {
    return findMissing(request(*source, allOf(*source)), kind, worth, job.cancelled);
  });
  const MissingKernels missing = found ? *found : MissingKernels{source->expressions.size(), source->tokens};
  if (worth(missing) && !job.cancelled) return true;
  const std::lock_guard lock(job.mutex);
  if (job.cancelled) {
    job.error = cancellation();
  } else {
    job.missing = missing;
  }
  return false;
}

// `program` lives as long as the call, and is null in the background, where it need not.
void DeviceTiers::make(const Source& source, const std::shared_ptr<DeviceProgram>& program, const Order& order,
                       CompileJob& job) {
  const Stopwatch watch;
  auto code = guarded([&]() -> Result<Code> {
    const CurrentContext current(*queue_->cuda);
    Result<Code> made = [&]() -> Result<Code> {
      switch (order.making) {
        case Making::kDirect:
          return makeDirect(*source, program ? program->graphs() : nullptr, order, job);
        case Making::kCompiledRefused:
          return makeCompiled(*source, program->refused(), nullptr, order.kind, job);
        case Making::kCompiled:
          break;
      }
      return makeCompiled(*source, allOf(*source), program ? program->plan() : nullptr, order.kind, job);
    }();
    if (job.cancelled) return cancellation();
    return made;
  });
  const std::lock_guard lock(job.mutex);
  job.seconds = watch.seconds();
  if (code) {
    job.code = std::move(*code);
  } else {
    job.error = std::move(code).error();
  }
}

// Machine code of the chosen expressions, by their plan if they have one; the others are interpreted.
DeviceTiers::Code DeviceTiers::makeCompiled(const ProgramSource& source, std::span<const std::uint32_t> chosen,
                                            const KernelPlan* plan, const KernelKind& kind, const CompileJob& job) {
  std::optional<KernelPlan> own;
  if (plan == nullptr) plan = &own.emplace(planOf(source, chosen, job.cancelled));
  auto made = std::make_shared<const DeviceCode>(compileForDevice(request(source, chosen), *plan, kind, job.cancelled));
  calibration_.addMaking(&DeviceCosts::compile, static_cast<double>(made->made_tokens), made->made_seconds);
  writeCosts();
  return made;
}

Result<DeviceTiers::Code> DeviceTiers::makeDirect(const ProgramSource& source, const ProgramGraphs* graphs,
                                                  const Order& order, const CompileJob& job) {
  if (auto fault = proof_.fault(ending_)) return std::move(*fault);
  const Stopwatch watch;
  std::optional<ProgramGraphs> own;
  if (graphs == nullptr) graphs = &own.emplace(graphsOf(source, threads_));
  const DirectShape shape = directShape(source.expressions.size(), order.rows, queue_->cuda->limits().multiprocessors);
  auto made =
      std::make_shared<const DeviceCode>(directForDevice(request(source), *graphs, order.kind, shape, job.cancelled));
  const double seconds = own ? watch.seconds() : graphs->seconds + watch.seconds();
  if (made->direct) calibration_.addMaking(&DeviceCosts::write, nodesOf(source), seconds * threads_);
  writeCosts();
  return made;
}

void DeviceTiers::learn(const DeviceCode& code, std::size_t rows, double seconds) {
  const int parts = (code.interpreter ? 1 : 0) + (code.direct ? 1 : 0) + (code.kernels.empty() ? 0 : 1);
  if (parts != 1) return;
  const auto tier = code.interpreter ? &DeviceCosts::interpret
                    : code.direct    ? &DeviceCosts::direct
                                     : &DeviceCosts::compiled;
  calibration_.addRun(tier, static_cast<double>(code.tokens) * static_cast<double>(rows), seconds);
  writeCosts();
}

// In the background, since another process may keep the disk; the engine's end waits for it. Where that cannot be
// begun, the next news is as good.
void DeviceTiers::writeCosts() {
  if (!calibration_.hasNews() || is_writing_.exchange(true)) return;
  const Status begun = guarded([this] {
    background_.enqueue(jobs_->defer([this] {
      Status written = okStatus();
      do {
        written = guarded([this] { return calibration_.write(), okStatus(); });
        is_writing_ = false;
      } while (written && calibration_.hasNews() && !is_writing_.exchange(true));
    }));
    return okStatus();
  });
  if (!begun) is_writing_ = false;
}

}  // namespace srjit

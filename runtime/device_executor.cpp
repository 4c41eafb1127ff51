#include "runtime/device_executor.h"

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include "runtime/calibration.h"
#include "runtime/clock.h"
#include "runtime/device_data.h"
#include "runtime/device_program.h"
#include "runtime/device_queue.h"
#include "runtime/guarded.h"
#include "runtime/task_flight.h"

namespace srjit {
namespace {

// Memory of the device that one data set takes at most if nobody says.
constexpr double kShareForData = 0.8;
// What one evaluation takes at most; others may be in flight.
constexpr double kShareForWork = 0.4;
// What runs keep of the device's memory while nobody uses them, beside the one used last.
constexpr std::size_t kIdleDivisor = 8;

class DeviceExecutor final : public Executor {
 public:
  DeviceExecutor(std::shared_ptr<const Cuda> cuda, const EngineOptions& options, const EngineParts& parts)
      : cuda_(std::move(cuda)),
        device_(options.device),
        budget_(options.device_bytes),
        threads_(options.threads),
        queue_((CurrentContext(*cuda_), std::make_shared<DeviceQueue>(cuda_))),
        idle_(std::make_shared<IdleRuns>(budget_ != 0 ? budget_ : cuda_->limits().memory_bytes / kIdleDivisor)),
        cache_(KernelCache::open(cacheOptions(options))),
        store_(std::make_shared<KernelStore>(cuda_, parts.images, cache_, options.precision, options.math)),
        calibration_(cache_, fmt::format("{} ({}) {} {}", cuda_->limits().name, cuda_->limits().driver_version,
                                         nameOf(options.precision), nameOf(options.math))),
        arena_(static_cast<int>(threads_)),
        background_(static_cast<int>(std::max(threads_, 2U)) - 1, 0) {
    cuda_->setReclaim([idle = std::weak_ptr(idle_), queue = std::weak_ptr(queue_)] {
      const auto runs = idle.lock();
      const auto streams = queue.lock();
      if (runs == nullptr || streams == nullptr) return;
      runs->clear();
      streams->stream->synchronize();
    });
  }

  ~DeviceExecutor() override {
    {
      const std::lock_guard lock(started_mutex_);
      for (const auto& started : started_) {
        if (const auto job = started.lock()) job->cancelled = true;
      }
    }
    background_.execute([&] { jobs_->wait(); });
  }

  Result<std::shared_ptr<const Dataset::State>> upload(const DataView& data) override {
    auto state = Dataset::State::create(data, store_->precision());
    if (!state) return std::move(state).error();
    const CurrentContext current(*cuda_);
    (*state)->device = device_;
    (*state)->on_device = std::make_shared<DeviceData>(queue_, **state, budget(kShareForData));
    return std::shared_ptr<const Dataset::State>(std::move(*state));
  }

  Result<std::shared_ptr<const Dataset::State>> adopt(const DeviceDataView& view) override;

  void compile(Program::State& state, const CompileOptions& options) override {
    const std::vector<std::uint32_t> chosen = allOf(*state.source);
    auto code = arena_.execute([&] {
      return std::make_shared<const DeviceCode>(encodeForDevice({*state.source, chosen, *queue_, *store_, threads_}));
    });
    state.failures = code->failures;
    state.info.nodes_after = code->nodes;
    state.info.seconds_passes = code->seconds_passes;
    state.info.seconds_codegen = code->seconds_codegen;
    // What the interpreter cannot run is left to machine code, unless that is not wanted.
    if (state.info.tier != Tier::kInterpret) std::erase_if(state.failures, isRefusal);
    state.on_device = std::make_shared<DeviceProgram>(state.info.tier, options.expected_passes, std::move(code));
  }

  Status prepare(const Task& task) override {
    const CurrentContext current(*cuda_);
    auto run = takeRun(task, false);
    if (!run) return std::move(run).error();
    keepRun(task, std::move(*run));
    return okStatus();
  }

  Result<std::unique_ptr<Flight>> start(Task task) override;
  Result<Losses> run(const Task& task) override;
  CacheStats cacheStats() const override { return cache_->stats(); }

 private:
  friend class LossFlight;

  static CacheOptions cacheOptions(const EngineOptions& options) {
    CacheOptions cache;
    if (options.cache_directory) cache.directory = *options.cache_directory;
    return cache;
  }
  /// What is idle is given back when it is needed.
  std::size_t budget(double share) const {
    if (budget_ != 0) return budget_;
    return static_cast<std::size_t>(share * static_cast<double>(cuda_->freeMemory() + idle_->bytes()));
  }
  void keepRun(const Task& task, std::unique_ptr<DeviceRun> run) {
    task.program.state().on_device->keepRun(idle_, std::move(run));
  }

  /// Runs `body` on threads of the arena with the context current; the caller's thread may not be one of them.
  template <class Body>
  auto inArena(Body body) {
    return arena_.execute([&] {
      const CurrentContext current(*cuda_);
      return body();
    });
  }
  static std::vector<std::uint32_t> allOf(const ProgramSource& source) {
    std::vector<std::uint32_t> all(source.expressions.size());
    std::iota(all.begin(), all.end(), 0U);
    return all;
  }
  Result<std::shared_ptr<const DeviceCode>> codeFor(const Task& task, const KernelKind& kind, bool counts);
  void compileJob(const ProgramSource& source, std::span<const std::uint32_t> chosen, const KernelKind& kind,
                  CompileJob& job);
  Result<std::shared_ptr<const DeviceCode>> codeOfJob(const Task& task, const KernelKind& kind,
                                                      DeviceProgram::Scope scope);
  Result<std::unique_ptr<DeviceRun>> takeRun(const Task& task, bool counts);
  Result<Losses> evaluate(const Task& task, std::span<const double> parameters);
  Result<Losses> finish(const Task& task, std::unique_ptr<DeviceRun> run);
  void learn(const Task& task, const DeviceRun& run);

  std::shared_ptr<const Cuda> cuda_;
  std::string device_;
  std::size_t budget_;
  unsigned threads_;
  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<IdleRuns> idle_;
  std::shared_ptr<KernelCache> cache_;
  std::shared_ptr<KernelStore> store_;
  Calibration calibration_;
  tbb::task_arena arena_, background_;
  std::unique_ptr<tbb::task_group> jobs_ = std::make_unique<tbb::task_group>();
  std::mutex started_mutex_;
  std::vector<std::weak_ptr<CompileJob>> started_;  ///< in the background
};

/// A loss on the stream.
class LossFlight final : public Flight {
 public:
  LossFlight(DeviceExecutor& executor, Task task, std::unique_ptr<DeviceRun> run)
      : executor_(executor), task_(std::move(task)), run_(std::move(run)) {}
  ~LossFlight() override {
    if (run_ == nullptr) return;
    // The device may be lost; then nothing is in use.
    (void)guarded([&]() -> Status {
      wait();
      const CurrentContext current(*executor_.cuda_);
      executor_.keepRun(task_, std::move(run_));
      return okStatus();
    });
  }

  bool ready() override { return run_ == nullptr || run_->ready(); }
  void wait() override {
    if (run_ != nullptr) run_->wait();
  }
  Result<Losses> finish() override {
    task_.parameters = {};
    return executor_.finish(task_, std::move(run_));
  }

 private:
  DeviceExecutor& executor_;
  Task task_;
  std::unique_ptr<DeviceRun> run_;
};

Result<std::shared_ptr<const Dataset::State>> DeviceExecutor::adopt(const DeviceDataView& view) {
  const CurrentContext current(*cuda_);
  auto state = DeviceData::adopt(queue_, view, store_->precision());
  if (!state) return std::move(state).error();
  (*state)->device = device_;
  return std::shared_ptr<const Dataset::State>(std::move(*state));
}

// Makes machine code of the chosen expressions; the others are interpreted.
void DeviceExecutor::compileJob(const ProgramSource& source, std::span<const std::uint32_t> chosen,
                                const KernelKind& kind, CompileJob& job) {
  const Stopwatch watch;
  auto code = guarded([&]() -> Result<std::shared_ptr<const DeviceCode>> {
    const std::vector<std::uint32_t> all = allOf(source);
    std::vector<std::uint32_t> beside;
    std::set_difference(all.begin(), all.end(), chosen.begin(), chosen.end(), std::back_inserter(beside));
    auto made = std::make_shared<const DeviceCode>(
        compileForDevice({source, chosen, *queue_, *store_, threads_, beside}, kind, job.cancelled));
    if (job.cancelled) return Error{Errc::kCancelled, "compiling was cancelled", {}};
    if (made->made_tokens > 0) calibration_.addCompile(static_cast<double>(made->made_tokens), made->made_seconds);
    return made;
  });
  const std::lock_guard lock(job.mutex);
  job.running = false;
  job.seconds = watch.seconds();
  if (code) {
    job.code = std::move(*code);
  } else {
    job.error = std::move(code).error();
  }
  job.finished.notify_all();
}

// The code of a job, which is made now unless it was before.
Result<std::shared_ptr<const DeviceCode>> DeviceExecutor::codeOfJob(const Task& task, const KernelKind& kind,
                                                                    DeviceProgram::Scope scope) {
  DeviceProgram& program = *task.program.state().on_device;
  const std::shared_ptr<CompileJob> job = program.job(kind, scope);
  std::unique_lock lock(job->mutex);
  job->finished.wait(lock, [&] { return !job->running; });
  if (job->code == nullptr) {
    job->error.reset();
    job->running = true;
    lock.unlock();
    const ProgramSource& source = *task.program.state().source;
    background_.execute([&] {
      if (scope == DeviceProgram::Scope::kAll) {
        compileJob(source, allOf(source), kind, *job);
      } else {
        compileJob(source, program.refused(), kind, *job);
      }
    });
    lock.lock();
  }
  if (job->error) return *job->error;
  return job->code;
}

// Machine code if it is there or must be, else what the interpreter runs; may begin to make machine code.
Result<std::shared_ptr<const DeviceCode>> DeviceExecutor::codeFor(const Task& task, const KernelKind& kind,
                                                                  bool counts) {
  DeviceProgram& program = *task.program.state().on_device;
  const double passes = counts ? program.countEvaluation() : 0;
  if (program.tier() == Tier::kInterpret) return program.interpreted();
  if (program.tier() == Tier::kCompile) return codeOfJob(task, kind, DeviceProgram::Scope::kAll);
  const std::shared_ptr<CompileJob> job = program.job(kind, DeviceProgram::Scope::kAll);
  const auto meanwhile = [&]() -> Result<std::shared_ptr<const DeviceCode>> {
    if (program.refused().empty()) return program.interpreted();
    return codeOfJob(task, kind, DeviceProgram::Scope::kRefused);
  };
  const auto& source = task.program.state().source;
  const std::size_t rows = task.data.rows();
  std::unique_lock lock(job->mutex);
  if (job->code != nullptr) return job->code;
  if (job->running || job->error || passes == 0) {
    lock.unlock();
    return meanwhile();
  }
  const DeviceCosts costs = calibration_.costs();
  const auto nodes = static_cast<double>(program.interpreted()->tokens);
  const std::size_t kernels = (task.program.size() + kExpressionsPerKernel - 1) / kExpressionsPerKernel;
  if (!compilingPays(costs, passes, nodes * static_cast<double>(rows),
                     compileSeconds(costs, nodes, kernels, threads_))) {
    lock.unlock();
    return meanwhile();
  }
  job->running = true;
  lock.unlock();
  {
    const std::lock_guard started_lock(started_mutex_);
    std::erase_if(started_, [](const auto& started) { return started.expired(); });
    started_.push_back(job);
  }
  background_.enqueue(jobs_->defer([this, source, kind, job] { compileJob(*source, allOf(*source), kind, *job); }));
  return meanwhile();
}

Result<std::unique_ptr<DeviceRun>> DeviceExecutor::takeRun(const Task& task, bool counts) {
  const Dataset::State& data = task.data.state();
  if (!data.on_device->belongsTo(*queue_)) {
    return Error{Errc::kInvalid, "data that are streamed, made by another engine", {}};
  }
  KernelKind kind{.loss = {}, .strided_columns = data.on_device->isStrided()};
  if (task.loss) kind.loss = lossSpec(*task.loss, data.has_weights);
  auto code = codeFor(task, kind, counts);
  if (!code) return std::move(code).error();
  RunPlan plan{queue_, store_, std::move(*code), &data, data.serial, kind, task.program.size()};
  if (auto run = idle_->take(plan)) {
    run->use(data);
    return run;
  }
  return DeviceRun::create(std::move(plan), budget(kShareForWork));
}

void DeviceExecutor::learn(const Task& task, const DeviceRun& run) {
  const double seconds = run.kernelSeconds();
  task.program.state().on_device->setDeviceSeconds(seconds);
  // Storing predictions and copying rows are part of the time of others: only losses of resident data are compared.
  if (!task.loss || task.data.state().on_device->isStreamed()) return;
  const DeviceCode& code = *run.plan().code;
  const bool interpreted = code.kernels.empty();
  if (!interpreted && code.interpreter) return;
  const auto node_rows = static_cast<double>(code.tokens) * static_cast<double>(run.plan().data->rows);
  calibration_.addRun(!interpreted, node_rows, seconds);
}

Result<Losses> DeviceExecutor::finish(const Task& task, std::unique_ptr<DeviceRun> run) {
  run->wait();
  Losses losses = inArena([&] {
    Losses made = run->losses(*task.loss);
    learn(task, *run);
    return made;
  });
  losses.failures = run->plan().code->failures;
  keepRun(task, std::move(run));
  return losses;
}

Result<Losses> DeviceExecutor::evaluate(const Task& task, std::span<const double> parameters) {
  const CurrentContext current(*cuda_);
  auto run = takeRun(task, true);
  if (!run) return std::move(run).error();
  Losses losses;
  losses.failures = (*run)->plan().code->failures;
  inArena([&] {
    (*run)->evaluate(parameters, task.out);
    if (task.program.size() > 0) learn(task, **run);
  });
  keepRun(task, std::move(*run));
  return losses;
}

Result<Losses> DeviceExecutor::run(const Task& task) {
  if (!task.loss) return evaluate(task, task.parameters);
  auto flight = start(task);
  if (!flight) return std::move(flight).error();
  return (*flight)->finish();
}

Result<std::unique_ptr<Flight>> DeviceExecutor::start(Task task) {
  if (!task.loss) {
    std::vector<double> parameters(task.parameters.begin(), task.parameters.end());
    auto run = [this, task = std::move(task), parameters = std::move(parameters)] {
      return evaluate(task, parameters);
    };
    return std::unique_ptr<Flight>(std::make_unique<TaskFlight>(arena_, std::move(run)));
  }
  const CurrentContext current(*cuda_);
  auto run = takeRun(task, true);
  if (!run) return std::move(run).error();
  inArena([&] { (*run)->submitLoss(task.parameters); });
  return std::unique_ptr<Flight>(std::make_unique<LossFlight>(*this, std::move(task), std::move(*run)));
}

}  // namespace

Result<std::unique_ptr<Executor>> makeDeviceExecutor(const EngineOptions& options, unsigned ordinal,
                                                     const EngineParts& parts) {
  auto driver = parts.driver();
  if (!driver) {
    Error error = std::move(driver).error();
    error.message = fmt::format("device cuda:{}: {}", ordinal, error.message);
    return error;
  }
  auto cuda = Cuda::open(*driver, static_cast<int>(ordinal));
  if (!cuda) return std::move(cuda).error();
  return guarded([&]() -> Result<std::unique_ptr<Executor>> {
    return std::unique_ptr<Executor>(std::make_unique<DeviceExecutor>(std::move(*cuda), options, parts));
  });
}

EngineParts EngineParts::ofMachine() {
  return {.driver = [] { return loadDriver(); }, .images = llvmImageMaker()};
}

}  // namespace srjit

#include "runtime/tiers/device_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/gpu/data.h"
#include "runtime/gpu/queue.h"
#include "runtime/launch/device_loss.h"
#include "runtime/launch/lane_population.h"
#include "runtime/platform/guarded.h"
#include "runtime/platform/trace.h"
#include "runtime/subtrees/kept.h"
#include "runtime/tiers/device_program.h"
#include "runtime/tiers/selection.h"

namespace srjit {
namespace {

using MadeData = Result<std::shared_ptr<const Dataset::State>>;

// Memory of the device that one data set takes at most, if the options set no limit.
constexpr double kShareForData = 0.8;
// What one evaluation takes at most; others may be in flight.
constexpr double kShareForWork = 0.4;
// What idle runs keep of the device's memory, beside the one used last.
constexpr std::size_t kIdleDivisor = 8;

/// What keeps values with data of a GPU; null if nothing does.
DeviceSubtrees* keptWith(const Dataset::State& data) {
  const auto* const place = dynamic_cast<const DeviceData*>(data.residence.get());
  return place == nullptr ? nullptr : static_cast<DeviceSubtrees*>(place->kept().get());
}

class DeviceExecutor final : public Executor {
 public:
  DeviceExecutor(std::shared_ptr<const Cuda> cuda, const EngineOptions& options,
                 std::shared_ptr<const ImageMaker> images, std::shared_ptr<KernelCache> cache)
      : Executor(options.threads),
        cuda_(std::move(cuda)),
        device_(options.device),
        budget_(options.device_bytes),
        spare_bytes_(options.subtree_bytes),
        threads_(options.threads),
        queue_((CurrentContext(*cuda_), std::make_shared<DeviceQueue>(cuda_, device_))),
        idle_(std::make_shared<IdleRuns>(budget_ != 0 ? budget_ : cuda_->limits().memory_bytes / kIdleDivisor)),
        store_(std::make_shared<KernelStore>(queue_, std::move(images), std::move(cache), options.precision,
                                             options.math)),
        selection_(store_, arena_, threads_) {
    cuda_->setReclaim([idle = std::weak_ptr(idle_), queue = std::weak_ptr(queue_)] {
      const auto runs = idle.lock();
      const auto streams = queue.lock();
      if (runs == nullptr || streams == nullptr) return;
      runs->clear();
      streams->stream->synchronize();
      streams->pinned.clear();
    });
  }

  MadeData upload(const DataView& data) override {
    TraceSpan span(TraceKind::kTransfer, "upload", device_);
    auto state = Dataset::State::create(data, store_->precision());
    if (!state) return std::move(state).error();
    span.add("bytes", (*state)->storageBytes());
    const CurrentContext current(*cuda_);
    (*state)->device = device_;
    (*state)->residence = std::make_shared<DeviceData>(queue_, **state, budget(kShareForData), spare_bytes_);
    return withSpareColumns(std::move(*state));
  }

  MadeData adopt(const DeviceDataView& view) override;
  MadeData select(const Dataset& data, const Selection& selection) override;
  Result<Dataset> withTargetBehind(const Dataset& data) override;
  Result<AlignedBuffer> fetch(const char* what, const DeviceMatrix& column, std::size_t rows,
                              std::uint64_t stream) override;

  Status claimOutput(const DeviceMatrix& out, std::uint64_t stream) override;
  void writeOutput(const Task& task, std::size_t offset, const std::byte* from, std::size_t bytes) override;

  void compile(Program::State& state, const CompileOptions& options, const Deadline& deadline) override {
    const CurrentContext current(*cuda_);
    selection_.compileOnGpu(state, options, deadline, filterFor(state, options));
  }

  // With kept subtrees each program counts as a generation.
  Estimate estimate(std::size_t expressions, std::size_t tokens, const CompileOptions& options) const override {
    Estimate estimate = selection_.estimate(expressions, tokens, options);
    if (options.data != nullptr && keptWith(options.data->state()) != nullptr) estimate.parts = 1;
    return estimate;
  }

  Status prepare(const Task& task) override;
  Result<std::unique_ptr<Flight>> start(Task task) override {
    if (task.loss) return evaluateOnGpu(std::move(task));
    return flightOf(arena_, std::move(task), [this](const Task& own) { return predict(own); });
  }
  bool encodesAsWritten(const PopulationView& population, const Dataset& data, const LossOptions& loss,
                        const CompileOptions& options) override;
  Result<std::unique_ptr<Flight>> startAsWritten(const PopulationView& population, const PopulationSurvey& survey,
                                                 const Dataset& data, std::span<const double> parameters,
                                                 const LossOptions& loss) override;
  Result<DeviceLoss> deviceLoss(const Dataset& data, const DeviceLossOptions& options) override;
  CacheStats cacheStats() const override { return store_->cache()->stats(); }

  bool owns(std::uint64_t address) const override { return cuda_->owns(address); }
  bool isLost() const override;

 private:
  friend class LossFlight;

  /// Idle memory counts as free, since it is released when it is needed.
  std::size_t budget(double share) const {
    if (budget_ != 0) return budget_;
    return static_cast<std::size_t>(share * static_cast<double>(cuda_->freeMemory() + idle_->bytes()));
  }
  void keepRun(const Task& task, std::unique_ptr<DeviceRun> run) {
    deviceProgramOf(task.program.state()).keepRun(idle_, std::move(run));
  }

  std::shared_ptr<GraphFilter> filterFor(const Program::State& program, const CompileOptions& options);

  /// Runs `body` on threads of the arena with the context current; the caller's thread may not be one of them.
  template <class Body>
  auto inArena(Body body) {
    return arena_.execute([&] {
      const CurrentContext current(*cuda_);
      return body();
    });
  }
  /// Data that were uploaded or selected, with what keeps values in their spare columns, if any.
  std::shared_ptr<const Dataset::State> withSpareColumns(std::shared_ptr<Dataset::State> state) {
    DeviceData& data = deviceDataOf(*state);
    if (data.spareColumns() > 0) data.setKept(std::make_shared<DeviceSubtrees>(store_, *state));
    return state;
  }
  Result<std::unique_ptr<DeviceRun>> takeRun(const Task& task, bool is_evaluated);
  Result<std::unique_ptr<Flight>> evaluateOnGpu(Task task);
  Result<Losses> predict(const Task& task);
  void recordRunTime(const Task& task, const DeviceRun& run);

  std::shared_ptr<const Cuda> cuda_;
  std::string device_;
  std::size_t budget_;
  std::size_t spare_bytes_;
  unsigned threads_;
  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<IdleRuns> idle_;
  std::shared_ptr<KernelStore> store_;
  TierSelection selection_;
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

  /// Throws where the work could not be submitted.
  void submit() {
    try {
      executor_.inArena([&] { run_->submitLoss(task_.data.state(), task_.parameters, task_.deadline); });
    } catch (...) {
      run_.reset();
      throw;
    }
    task_.parameters = {};
  }
  /// Takes memory for finish(), while the device computes. Throws std::bad_alloc.
  void makeRoom() { losses_ = run_->emptyLosses(); }
  bool hasLosses() const override { return !isOfMoments(task_); }
  Result<Sums> sums() override {
    wait();
    const CurrentContext current(*executor_.cuda_);
    executor_.recordRunTime(task_, *run_);
    return Sums{run_->totals(), run_->plan().code->failures, {}};
  }
  bool ready() override { return run_ == nullptr || run_->ready(); }
  void wait() override {
    if (run_ != nullptr) run_->wait();
  }
  Result<Losses> finish() override {
    if (losses_.values.empty()) makeRoom();
    wait();
    executor_.inArena([&] {
      run_->readLosses(task_.data.state(), *task_.loss, losses_);
      executor_.recordRunTime(task_, *run_);
    });
    losses_.failures = run_->plan().code->failures;
    executor_.keepRun(task_, std::move(run_));
    return std::move(losses_);
  }

 private:
  DeviceExecutor& executor_;
  Task task_;
  std::unique_ptr<DeviceRun> run_;
  Losses losses_;
};

MadeData DeviceExecutor::adopt(const DeviceDataView& view) {
  const CurrentContext current(*cuda_);
  auto state = DeviceData::adopt(queue_, view, store_->precision());
  if (!state) return std::move(state).error();
  (*state)->device = device_;
  return std::shared_ptr<const Dataset::State>(std::move(*state));
}

MadeData DeviceExecutor::select(const Dataset& data, const Selection& selection) {
  const CurrentContext current(*cuda_);
  // Data that have no memory of the device are streamed, from host memory.
  const std::size_t bytes = selection.is_for_host ? 0 : budget(kShareForData);
  auto state = DeviceData::select(queue_, data.state(), selection, bytes, selection.is_for_host ? 0 : spare_bytes_);
  if (!state) return std::move(state).error();
  return withSpareColumns(std::move(*state));
}

Result<Dataset> DeviceExecutor::withTargetBehind(const Dataset& data) {
  const Dataset::State& state = data.state();
  if (deviceDataOf(state).hasTargetBehind(state.columns)) return data;
  const std::lock_guard lock(state.copy_mutex);
  if (state.copy_with_target == nullptr) {
    MadeData copied = select(data, {.runs = {{0, state.rows}}});
    if (!copied) return std::move(copied).error();
    state.copy_with_target = std::move(*copied);
  }
  return Dataset(state.copy_with_target);
}

Result<AlignedBuffer> DeviceExecutor::fetch(const char* what, const DeviceMatrix& column, std::size_t rows,
                                            std::uint64_t stream) {
  const CurrentContext current(*cuda_);
  waitForWriter(*queue_, stream);
  return fetchColumn(what, *queue_, column, rows, store_->precision());
}

Result<DeviceLoss> DeviceExecutor::deviceLoss(const Dataset& data, const DeviceLossOptions& options) {
  return inArena([&]() -> Result<DeviceLoss> {
    auto work = DeviceLoss::Work::create(store_, data, options);
    if (!work) return std::move(work).error();
    return DeviceLoss(std::move(*work));
  });
}

// Kept subtrees and calls that can be stopped have programs.
bool DeviceExecutor::encodesAsWritten(const PopulationView& population, const Dataset& data, const LossOptions& loss,
                                      const CompileOptions& options) {
  const Dataset::State& state = data.state();
  return !options.simplify && !options.pipeline && population.size() >= LaneFlight::kLeastExpressions &&
         population.size() <= UINT32_MAX && state.rows <= LaneFlight::kMostRows &&
         DeviceLoss::Work::takes(loss, state) && !deviceDataOf(state).isStreamed() &&
         deviceDataOf(state).belongsTo(*queue_) && keptWith(state) == nullptr &&
         selection_.interprets(population.size(), population.codes.size(), options) && selection_.hasLanes();
}

Result<std::unique_ptr<Flight>> DeviceExecutor::startAsWritten(const PopulationView& population,
                                                               const PopulationSurvey& survey, const Dataset& data,
                                                               std::span<const double> parameters,
                                                               const LossOptions& loss) {
  return inArena([&]() -> Result<std::unique_ptr<Flight>> {
    // Where memory is short, the host encodes, in parts.
    const Error lacks_memory{Errc::kUnsupported, "a population that is too large for lanes", {}};
    constexpr std::size_t kMostBytes = std::size_t{1} << 30;
    const std::size_t most = std::min(budget(kShareForWork), kMostBytes);
    const std::size_t own = LaneFlight::bytes(population, store_->precision());
    if (own > most / 2) return lacks_memory;
    try {
      auto flight = LaneFlight::start(store_, data, population, survey, parameters, loss, most - own);
      if (!flight) return std::move(flight).error();
      return std::unique_ptr<Flight>(std::move(*flight));
    } catch (const CudaFailure& failure) {
      if (failure.code() != CUDA_ERROR_OUT_OF_MEMORY) throw;
      return lacks_memory;
    }
  });
}

// Once a context is broken, every call in it fails with the same code.
bool DeviceExecutor::isLost() const {
  return !guarded([&]() -> Status {
    const CurrentContext current(*cuda_);
    queue_->stream->synchronize();
    return okStatus();
  });
}

Status DeviceExecutor::claimOutput(const DeviceMatrix& out, std::uint64_t stream) {
  const CurrentContext current(*cuda_);
  if (Status own = checkOwner("output", *queue_, out); !own) return own;
  waitForWriter(*queue_, stream);
  return okStatus();
}

void DeviceExecutor::writeOutput(const Task& task, std::size_t offset, const std::byte* from, std::size_t bytes) {
  if (task.device_out == 0) {
    std::memcpy(task.out + offset, from, bytes);
    return;
  }
  const CurrentContext current(*cuda_);
  queue_->uploads->complete([&] { queue_->uploads->copyToDevice(task.device_out + offset, from, bytes); });
}

// Only values of expressions are kept. Where reading them fails, everything is computed.
std::shared_ptr<GraphFilter> DeviceExecutor::filterFor(const Program::State& program, const CompileOptions& options) {
  if (options.data == nullptr || program.source->derivation) return nullptr;
  const Dataset::State& data = options.data->state();
  DeviceSubtrees* const kept = keptWith(data);
  if (kept == nullptr || !kept->belongsTo(*queue_)) return nullptr;
  std::shared_ptr<GraphFilter> filter;
  (void)guarded([&]() -> Status {
    filter =
        inArena([&] { return kept->open(*program.source, data, program.info.tier, selection_.costs(), threads_); });
    return okStatus();
  });
  return filter;
}

// Checks the task, chooses its code, or makes it, and takes memory and kernels.
Result<std::unique_ptr<DeviceRun>> DeviceExecutor::takeRun(const Task& task, bool is_evaluated) {
  const Dataset::State& data = task.data.state();
  const DeviceData& place = deviceDataOf(data);
  DeviceProgram& program = deviceProgramOf(task.program.state());
  if (!place.belongsTo(*queue_)) {
    return Error{Errc::kInvalid, "data that are streamed, made by another engine", {}};
  }
  if (task.program.info().subtrees_read > 0 && !keptWith(data)->belongsTo(*queue_)) {
    return Error{Errc::kInvalid, "a program that reads kept subtrees, made by another engine", {}};
  }
  KernelKind kind{.loss = {}, .strided_columns = place.isStrided()};
  if (task.loss) kind.loss = lossSpecOf(task);
  auto code = selection_.codeFor(task.program.state(), kind, place, is_evaluated, task.deadline);
  if (!code) return std::move(code).error();
  program.setServed((*code)->served(), device_);
  RunPlan plan{store_, std::move(*code), data.serial, kind, task.program.state().source->outputs()};
  if (auto run = idle_->take(plan)) return run;
  return inArena([&] { return DeviceRun::create(std::move(plan), data, budget(kShareForWork)); });
}

void DeviceExecutor::recordRunTime(const Task& task, const DeviceRun& run) {
  const double seconds = run.kernelSeconds();
  DeviceProgram& program = deviceProgramOf(task.program.state());
  program.setDeviceSeconds(seconds);
  run.trace();
  // Other evaluations also store predictions or copy rows, so only losses of resident data are recorded.
  if (!task.loss || deviceDataOf(task.data.state()).isStreamed()) return;
  // Costs are by the tokens of expressions. Not all of these are computed where subtrees are read, and more is where
  // something is derived, or where there are several sums.
  if (task.program.info().subtrees_read > 0 || task.program.state().source->derivation || isOfMoments(task)) return;
  selection_.recordRunTime(program, *run.plan().code, task.data.rows(), seconds);
}

Result<Losses> DeviceExecutor::predict(const Task& task) {
  const CurrentContext current(*cuda_);
  auto run = takeRun(task, true);
  if (!run) return std::move(run).error();
  Losses losses;
  losses.failures = (*run)->plan().code->failures;
  inArena([&] {
    const CopyEnd out = task.device_out != 0 ? CopyEnd(task.device_out, 0) : CopyEnd(task.out, 0);
    (*run)->evaluate(task.data.state(), task.parameters, out, task.deadline);
    if ((*run)->plan().outputs > 0) recordRunTime(task, **run);
  });
  keepRun(task, std::move(*run));
  return losses;
}

Status DeviceExecutor::prepare(const Task& task) {
  const CurrentContext current(*cuda_);
  auto run = takeRun(task, false);
  if (!run) return std::move(run).error();
  keepRun(task, std::move(*run));
  return okStatus();
}

// A loss. The flight waits for its sums, and computes the losses of them.
Result<std::unique_ptr<Flight>> DeviceExecutor::evaluateOnGpu(Task task) {
  const CurrentContext current(*cuda_);
  auto run = takeRun(task, true);
  if (!run) return std::move(run).error();
  const bool is_of_sums = task.program.state().source->derivation || isOfMoments(task);
  auto flight = std::make_unique<LossFlight>(*this, std::move(task), std::move(*run));
  flight->submit();
  if (!is_of_sums) flight->makeRoom();
  return std::unique_ptr<Flight>(std::move(flight));
}

}  // namespace

std::shared_ptr<KernelCache> openKernelCache(const EngineOptions& options) {
  CacheOptions cache;
  if (options.cache_directory) cache.directory = *options.cache_directory;
  return KernelCache::open(cache);
}

Result<std::unique_ptr<Executor>> makeDeviceExecutor(const EngineOptions& options, unsigned ordinal,
                                                     const std::shared_ptr<const Driver>& driver,
                                                     std::shared_ptr<const ImageMaker> images,
                                                     std::shared_ptr<KernelCache> cache) {
  auto cuda = Cuda::open(driver, static_cast<int>(ordinal));
  if (!cuda) return std::move(cuda).error();
  return guarded([&]() -> Result<std::unique_ptr<Executor>> {
    return std::unique_ptr<Executor>(
        std::make_unique<DeviceExecutor>(std::move(*cuda), options, std::move(images), std::move(cache)));
  });
}

}  // namespace srjit

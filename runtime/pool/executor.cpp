#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include "runtime/evaluation/program_state.h"
#include "runtime/platform/guarded.h"
#include "runtime/pool/program.h"

namespace srjit {
namespace {

using MadeData = Result<std::shared_ptr<const Dataset::State>>;

Error outputLost() { return {Errc::kMachine, "the device that has the output is lost", {}}; }

/// What a device does with the i-th share.
using ShareStep = std::function<Status(std::size_t i, const PoolShare& share, Executor& executor)>;

/// Calls `step` for each share of a task on these devices that has expressions, by PoolDevices::onEach(), whose errors
/// it has; also those of PoolProgram::sharesOn().
Status onShares(PoolDevices& pool, const Task& task, DeviceNumbers& devices, const ShareStep& step) {
  const auto shares = poolProgramOf(task.program).sharesOn(pool, devices, nullptr, task.deadline);
  if (!shares) return shares.error();
  return pool.onEach(devices, [&](std::size_t i, Executor& executor) {
    const PoolShare& share = (**shares)[i];
    return share.program ? step(i, share, executor) : okStatus();
  });
}

/// A loss whose shares are in flight on devices. If devices fail, the others evaluate all shares again: at once where a
/// share cannot be started, otherwise in finish(). Works on the threads of an arena.
class PoolFlight final : public Flight {
 public:
  /// `devices`, at least one, work and have the data. They and the arena must outlive it. The task's parameters are
  /// borrowed until keepParameters().
  PoolFlight(PoolDevices& pool, tbb::task_arena& arena, Task task, DeviceNumbers devices)
      : pool_(pool), arena_(arena), task_(std::move(task)), devices_(std::move(devices)) {}

  /// Called once, first. Errors: those of PoolDevices::retry().
  Status start() {
    Status begun = arena_.execute([&] { return pool_.retry(devices_, [&] { return begin(); }); });
    if (!begun) return begun;
    // While the devices compute.
    all_.valid_rows.resize(task_.program.state().source->outputs());
    all_.values.resize(all_.valid_rows.size() * (hasLosses() ? 1 : lossSpecOf(task_).channels()));
    return begun;
  }
  bool hasLosses() const override { return !isOfMoments(task_); }
  void keepParameters() {
    parameters_.assign(task_.parameters.begin(), task_.parameters.end());
    task_.parameters = parameters_;
  }

  // A failure ends a share, too; finish() deals with it.
  bool ready() override {
    return std::ranges::all_of(parts_, [](const Part& part) {
      const Result<bool> ready =
          guarded([&]() -> Result<bool> { return part.flight == nullptr || part.flight->ready(); });
      return !ready || *ready;
    });
  }
  void wait() override {
    for (const Part& part : parts_) {
      if (part.flight != nullptr) static_cast<void>(guarded([&] { return part.flight->wait(), okStatus(); }));
    }
  }
  // Devices are waited for outside of the arena, whose threads others may use meanwhile.
  Result<Losses> finish() override {
    wait();
    const Status finished = arena_.execute([&] {
      return pool_.retry(devices_, [&] {
        Status begun = parts_.empty() ? begin() : okStatus();
        return begun ? collect() : begun;
      });
    });
    if (!finished) return finished.error();
    return std::move(all_);
  }

 private:
  /// Of a device.
  struct Part {
    PoolShare share;
    std::unique_ptr<Flight> flight;  ///< null without expressions
    std::vector<Failure> failures;   ///< by the expression of the whole task
  };

  Status begin() {
    parts_.resize(devices_.size());
    Status begun = onShares(pool_, task_, devices_, [&](std::size_t i, const PoolShare& share, Executor& executor) {
      auto flight = executor.start(share.of(task_));
      if (!flight) return Status(std::move(flight).error());
      parts_[i] = {share, std::move(*flight), {}};
      return okStatus();
    });
    if (!begun) parts_.clear();
    return begun;
  }

  Status collect() {
    Status taken = pool_.onEach(devices_, [&](std::size_t i, Executor&) { return take(parts_[i]); });
    for (const Part& part : parts_) {
      if (taken) all_.failures.insert(all_.failures.end(), part.failures.begin(), part.failures.end());
    }
    parts_.clear();
    return taken;
  }

  Status take(Part& part) {
    if (part.flight == nullptr) return okStatus();
    if (!hasLosses()) return takeSums(part);
    const Result<Losses> some = part.flight->finish();
    if (!some) return some.error();
    const auto first = static_cast<std::ptrdiff_t>(part.share.output);
    std::ranges::copy(some->values, all_.values.begin() + first);
    std::ranges::copy(some->valid_rows, all_.valid_rows.begin() + first);
    part.share.addFailures(some->failures, part.failures);
    return okStatus();
  }

  Status takeSums(Part& part) {
    const Result<Sums> some = part.flight->sums();
    if (!some) return some.error();
    const std::size_t own = part.share.source->outputs(), all = all_.valid_rows.size();
    for (std::size_t from = 0, to = part.share.output; from < some->values.size(); from += own, to += all) {
      std::ranges::copy(some->values.subspan(from, own), all_.values.begin() + static_cast<std::ptrdiff_t>(to));
    }
    part.share.addFailures(some->failures, part.failures);
    return okStatus();
  }

  PoolDevices& pool_;
  tbb::task_arena& arena_;
  Task task_;
  std::vector<double> parameters_;
  DeviceNumbers devices_;    ///< that take part
  std::vector<Part> parts_;  ///< of these devices; empty if they must begin again
  Losses all_;
};

class PoolExecutor final : public Executor {
 public:
  PoolExecutor(const EngineOptions& options, std::vector<PoolDevice> devices)
      : Executor(options.threads), name_(options.device), precision_(options.precision), devices_(std::move(devices)) {}

  // Converted once.
  MadeData upload(const DataView& data) override {
    auto converted = Dataset::State::create(data, precision_);
    if (!converted) return std::move(converted).error();
    const Dataset host(std::move(*converted));
    return onEach(devices_.working(),
                  [&](std::size_t, Executor& executor) { return executor.select(host, {.runs = {{0, host.rows()}}}); });
  }

  // The other devices get copies, through the host.
  MadeData adopt(const DeviceDataView& view) override {
    const DeviceMatrix& some = view.columns.columns == 0 && view.target ? *view.target : view.columns;
    const Result<std::size_t> owner = ownerOf("columns", some.pointer);
    if (!owner) return owner.error();
    MadeData adopted = devices_.call(*owner, [&](Executor& executor) { return executor.adopt(view); });
    if (!adopted) return adopted;
    MadeData copy = devices_.call(*owner, [&](Executor& executor) {
      return executor.select(Dataset(*adopted), {.runs = {{0, adopted.value()->rows}}, .is_for_host = true});
    });
    if (!copy) return copy;
    const Dataset host(*copy);
    return onEach(devices_.working(), [&](std::size_t device, Executor& executor) {
      return device == *owner ? adopted : executor.select(host, {.runs = {{0, host.rows()}}});
    });
  }

  MadeData select(const Dataset& data, const Selection& selection) override {
    return onEachOf(data, [&](Executor& executor, const Dataset& own) { return executor.select(own, selection); });
  }

  Result<Dataset> withTargetBehind(const Dataset& data) override {
    const Dataset::State& state = data.state();
    const std::lock_guard lock(state.copy_mutex);
    if (state.copy_with_target == nullptr) {
      MadeData behind = onEachOf(data, [](Executor& executor, const Dataset& own) -> MadeData {
        Result<Dataset> made = executor.withTargetBehind(own);
        if (!made) return std::move(made).error();
        return made->handle();
      });
      if (!behind) return std::move(behind).error();
      if (std::ranges::equal(replicasOf(**behind), replicasOf(state))) return data;
      // A device may have failed only this once: the next call asks it again.
      if (devicesWith(**behind) != devicesWith(state)) return Dataset(std::move(*behind));
      state.copy_with_target = std::move(*behind);
    }
    return Dataset(state.copy_with_target);
  }

  Result<AlignedBuffer> fetch(const char* what, const DeviceMatrix& column, std::size_t rows,
                              std::uint64_t stream) override {
    return onOwner(what, column.pointer,
                   [&](Executor& executor) { return executor.fetch(what, column, rows, stream); });
  }

  Status claimOutput(const DeviceMatrix& out, std::uint64_t stream) override {
    return onOwner("output", out.pointer, [&](Executor& executor) { return executor.claimOutput(out, stream); });
  }

  void writeOutput(const Task& task, std::size_t offset, const std::byte* from, std::size_t bytes) override {
    if (task.device_out == 0) {
      std::memcpy(task.out + offset, from, bytes);
      return;
    }
    const std::optional<std::size_t> owner = devices_.ownerOf(task.device_out);
    if (!owner) throw ErrorException(outputLost());
    const Status written = devices_.call(*owner, [&](Executor& executor) {
      executor.writeOutput(task, offset, from, bytes);
      return okStatus();
    });
    if (!written) throw ErrorException(written.error());
  }

  void compile(Program::State& state, const CompileOptions& options, const Deadline& deadline) override {
    DeviceNumbers devices = devices_.working();
    if (devices.empty()) throw ErrorException(devices_.noneLeft());
    auto program = std::make_shared<PoolProgram>(state.source, state.info.tier, options);
    const auto shares = arena_.execute([&] {
      return devices_.retry(devices, [&] { return program->sharesOn(devices_, devices, options.data, deadline); });
    });
    if (!shares) throw ErrorException(shares.error());
    program->describe(state);
    state.code = std::move(program);
  }

  // About the share of a device.
  Estimate estimate(std::size_t expressions, std::size_t tokens, const CompileOptions& options) const override {
    if (options.data == nullptr) return {};
    const Result<DeviceNumbers> devices = devicesOf(*options.data);
    if (!devices) return {};
    const Dataset own(replicaOn(options.data->state(), devices->front()));
    CompileOptions for_device = options;
    for_device.data = &own;
    return devices_[devices->front()].estimate(ceilDivide(expressions, devices->size()),
                                               ceilDivide(tokens, devices->size()), for_device);
  }

  Status prepare(const Task& task) override {
    Result<DeviceNumbers> devices = devicesOf(task.data);
    if (!devices) return std::move(devices).error();
    return arena_.execute([&] {
      return devices_.retry(*devices, [&] {
        return onShares(devices_, task, *devices, [&](std::size_t, const PoolShare& share, Executor& executor) {
          return executor.prepare(share.of(task));
        });
      });
    });
  }
  Result<std::unique_ptr<Flight>> start(Task task) override {
    if (!task.loss) {
      return flightOf(arena_, std::move(task), [this](const Task& own) { return evaluate(own); });
    }
    const bool is_awaited = task.is_awaited;
    Result<DeviceNumbers> devices = devicesOf(task.data);
    if (!devices) return std::move(devices).error();
    auto flight = std::make_unique<PoolFlight>(devices_, arena_, std::move(task), std::move(*devices));
    if (Status started = flight->start(); !started) return std::move(started).error();
    // While the devices compute.
    if (!is_awaited) flight->keepParameters();
    return std::unique_ptr<Flight>(std::move(flight));
  }

  CacheStats cacheStats() const override { return devices_[0].cacheStats(); }  // the cache is that of all
  std::vector<std::string> notices() const override { return devices_.notices(); }

 private:
  /// Predictions.
  Result<Losses> evaluate(const Task& task) {
    Result<DeviceNumbers> devices = devicesOf(task.data);
    if (!devices) return std::move(devices).error();
    std::vector<std::vector<Failure>> failures(devices_.size());
    const Status done = arena_.execute([&] {
      return devices_.retry(*devices, [&] {
        if (task.device_out != 0 && !devices_.ownerOf(task.device_out)) return Status(outputLost());
        for (std::vector<Failure>& some : failures) some.clear();
        return onShares(devices_, task, *devices, [&](std::size_t i, const PoolShare& share, Executor& executor) {
          return predict(task, share, executor, failures[i]);
        });
      });
    });
    if (!done) return done.error();
    Losses all;
    for (const auto& some : failures) all.failures.insert(all.failures.end(), some.begin(), some.end());
    return all;
  }

  /// Data whose part on each device is made by `make`. Errors: those of `make` that are not of the device only,
  /// or that of every device.
  MadeData onEach(DeviceNumbers devices, const std::function<MadeData(std::size_t device, Executor& executor)>& make) {
    if (devices.empty()) return devices_.noneLeft();
    Replicas replicas(devices_.size());
    const Status placed = arena_.execute([&] {
      return devices_.onEach(devices, [&](std::size_t i, Executor& executor) -> Status {
        MadeData made = make(devices[i], executor);
        if (!made) return std::move(made).error();
        replicas[devices[i]] = std::move(*made);
        return okStatus();
      });
    });
    if (!placed && placed.error().code != Errc::kMachine) return placed.error();
    if (devices.empty()) return devices_.working().empty() ? devices_.noneLeft() : placed.error();
    const std::shared_ptr<Dataset::State> state = replicas[devices.front()]->withoutNumbers();
    state->device = name_;
    state->residence = residenceOf(std::move(replicas));
    return std::shared_ptr<const Dataset::State>(state);
  }

  /// The same of the data that each device has.
  MadeData onEachOf(const Dataset& data, const std::function<MadeData(Executor& executor, const Dataset& own)>& make) {
    Result<DeviceNumbers> devices = devicesOf(data);
    if (!devices) return std::move(devices).error();
    return onEach(std::move(*devices), [&](std::size_t device, Executor& executor) {
      return make(executor, Dataset(replicaOn(data.state(), device)));
    });
  }

  /// The devices that work and have the data. Errors: kMachine if none does.
  Result<DeviceNumbers> devicesOf(const Dataset& data) const {
    DeviceNumbers devices = devicesWith(data.state());
    if (!devices.empty()) return devices;
    if (devices_.working().empty()) return devices_.noneLeft();
    return Error{Errc::kMachine, "no device that works has the data", {}};
  }
  DeviceNumbers devicesWith(const Dataset::State& data) const {
    DeviceNumbers devices = devices_.working();
    std::erase_if(devices, [&](std::size_t device) { return replicaOn(data, device) == nullptr; });
    return devices;
  }

  /// The device whose memory this is. Errors: kUnsupported if it is no device's; kMachine if none works.
  Result<std::size_t> ownerOf(const char* what, std::uint64_t address) const {
    if (const std::optional<std::size_t> owner = devices_.ownerOf(address)) return *owner;
    if (devices_.working().empty()) return devices_.noneLeft();
    return Error{Errc::kUnsupported,
                 fmt::format("{} at {:#x}, which is not memory of a device of {}", what, address, name_),
                 {}};
  }

  /// body(executor of the device whose memory this is), by PoolDevices::call(). Errors: also those of ownerOf().
  template <class Body>
  auto onOwner(const char* what, std::uint64_t address, const Body& body) -> std::invoke_result_t<Body, Executor&> {
    const Result<std::size_t> owner = ownerOf(what, address);
    if (!owner) return owner.error();
    return devices_.call(*owner, body);
  }

  /// Predictions of a share, to their place in the output of the whole task: a device writes to the host or to its own
  /// memory; to another device's memory, the predictions go by way of the host.
  Status predict(const Task& task, const PoolShare& share, Executor& executor, std::vector<Failure>& failures) {
    Task own = share.of(task);
    const std::size_t row_bytes = task.data.rows() * static_cast<std::size_t>(bytesOf(precision_));
    const std::size_t offset = share.output * row_bytes;
    AlignedBuffer copy;
    if (task.device_out == 0) {
      own.out = task.out + offset;
    } else if (executor.owns(task.device_out)) {
      own.device_out = task.device_out + offset;
    } else {
      copy = AlignedBuffer(share.source->outputs() * row_bytes);
      own.out = copy.data();
    }
    const Result<Losses> done = executor.run(own);
    if (!done) return done.error();
    share.addFailures(done->failures, failures);
    if (copy.size() > 0) writeOutput(task, offset, copy.data(), copy.size());
    return okStatus();
  }

  const std::string name_;
  const Precision precision_;
  PoolDevices devices_;
};

}  // namespace

std::unique_ptr<Executor> makePoolExecutor(const EngineOptions& options, std::vector<PoolDevice> devices) {
  return std::make_unique<PoolExecutor>(options, std::move(devices));
}

}  // namespace srjit

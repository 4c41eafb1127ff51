#include "runtime/pool/executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include "runtime/evaluation/population_parts.h"
#include "runtime/evaluation/task_flight.h"
#include "runtime/platform/guarded.h"
#include "runtime/pool/flight.h"
#include "runtime/pool/parallel.h"
#include "runtime/pool/program.h"
#include "runtime/pool/rows.h"

namespace srjit {
namespace {

using MadeData = Result<std::shared_ptr<const Dataset::State>>;

class PoolExecutor final : public Executor {
 public:
  PoolExecutor(const EngineOptions& options, std::vector<PoolDevice> devices)
      : name_(options.device),
        precision_(options.precision),
        devices_(std::move(devices)),
        compiler_(devices_),
        arena_(static_cast<int>(options.threads)) {}

  void execute(const std::function<void()>& body) override { arena_.execute(body); }

  MadeData upload(const DataView& data) override;
  MadeData adopt(const DeviceDataView& view) override;
  MadeData select(const Dataset& data, const Selection& selection) override;
  Result<HostColumn> fetch(const char* what, const DeviceMatrix& column, std::size_t rows,
                           std::uint64_t stream) override;
  MadeData hostCopy(const Dataset& data) override;

  Status claimOutput(const DeviceMatrix& out, std::uint64_t stream) override;
  void writeOutput(const Task& task, std::size_t offset, const std::byte* from, std::size_t bytes) override;

  void compile(Program::State& state, const CompileOptions& options, const Deadline& deadline) override;
  Result<Dataset> withTargetBehind(const Dataset& data) override;
  std::size_t bestParts(const PopulationView& population, const CompileOptions& options) override;
  Status prepare(const Task& task) override;
  Result<std::unique_ptr<Flight>> start(Task task) override;
  Result<Losses> run(const Task& task) override;

  CacheStats cacheStats() const override { return devices_[0].cacheStats(); }  // the cache is that of all
  bool owns(std::uint64_t address) const override { return devices_.ownerOf(address).has_value(); }
  bool isLost() const override { return devices_.working().empty(); }
  std::vector<std::string> notices() const override { return devices_.notices(); }

 private:
  using OnDevice = std::function<MadeData(std::size_t device, Executor& executor)>;

  /// Data of which each device that works has what `make` gives. Errors: those of `make` that are not of the device
  /// alone, or that of every device.
  MadeData onEach(const OnDevice& make);
  /// The same of the data that each device has.
  MadeData onEachOf(const Dataset& data, const std::function<MadeData(Executor& executor, const Dataset& own)>& make);
  /// Data of these numbers in host memory: on each device, or, if they are too large for one, with their rows divided.
  MadeData place(const Dataset& host);
  MadeData placeOnEach(const Dataset& host);
  /// Null if the rows do not fit either.
  std::shared_ptr<const Dataset::State> placeDivided(const Dataset& host, const std::vector<std::size_t>& devices);
  Result<Losses> runDivided(const Task& task);
  Error notOurs(const char* what, std::uint64_t address) const;
  Status prepareShare(const Task& task, const std::shared_ptr<PoolShare>& share);

  const std::string name_;
  const Precision precision_;
  PoolDevices devices_;
  PoolCompiler compiler_;
  tbb::task_arena arena_;
};

MadeData PoolExecutor::onEach(const OnDevice& make) {
  const std::vector<std::size_t> working = devices_.working();
  if (working.empty()) return devices_.noneLeft();
  std::vector<std::shared_ptr<const Dataset::State>> replicas(devices_.size());
  std::vector<std::optional<Error>> errors(working.size());
  arena_.execute([&] {
    inParallel(working.size(), [&](std::size_t i) {
      MadeData made = devices_.call(working[i], [&](Executor& executor) { return make(working[i], executor); });
      if (made) {
        replicas[working[i]] = std::move(*made);
      } else {
        errors[i] = std::move(made).error();
      }
    });
  });
  for (const std::optional<Error>& error : errors) {
    if (error && error->code != Errc::kMachine) return *error;
  }
  const auto some = std::ranges::find_if(replicas, [](const auto& replica) { return replica != nullptr; });
  if (some == replicas.end()) return devices_.working().empty() ? devices_.noneLeft() : *errors[0];
  const std::shared_ptr<Dataset::State> state = (*some)->withoutNumbers();
  state->device = name_;
  state->replicas = std::move(replicas);
  return std::shared_ptr<const Dataset::State>(state);
}

MadeData PoolExecutor::onEachOf(const Dataset& data,
                                const std::function<MadeData(Executor& executor, const Dataset& own)>& make) {
  return onEach([&](std::size_t device, Executor& executor) -> MadeData {
    const auto replica = replicaOn(data.state(), device);
    if (replica == nullptr) {
      return Error{Errc::kMachine, fmt::format("device {} does not have the data", devices_.name(device)), {}};
    }
    return make(executor, Dataset(replica));
  });
}

// Converted once.
MadeData PoolExecutor::upload(const DataView& data) {
  auto converted = Dataset::State::create(data, precision_);
  if (!converted) return std::move(converted).error();
  return place(Dataset(std::move(*converted)));
}

MadeData PoolExecutor::place(const Dataset& host) {
  const std::vector<std::size_t> working = devices_.working();
  const std::size_t bytes = host.state().storageBytes();
  const auto has_room = [&](std::size_t device) {
    const Status room = devices_.call(device, [&](Executor& executor) -> Status {
      return executor.hasRoom(bytes) ? okStatus() : Error{Errc::kUnsupported, "too large", {}};
    });
    return room || room.error().code != Errc::kUnsupported;
  };
  if (!std::ranges::all_of(working, has_room)) {
    if (auto divided = placeDivided(host, working)) return divided;
  }
  return placeOnEach(host);
}

MadeData PoolExecutor::placeOnEach(const Dataset& host) {
  return onEach([&](std::size_t, Executor& executor) { return executor.select(host, {.runs = {{0, host.rows()}}}); });
}

std::shared_ptr<const Dataset::State> PoolExecutor::placeDivided(const Dataset& host,
                                                                 const std::vector<std::size_t>& devices) {
  const std::vector<std::size_t> firsts = divideRows(host.rows(), devices.size());
  const std::size_t count = firsts.size() - 1;
  if (count < 2) return nullptr;
  std::vector<std::shared_ptr<const Dataset::State>> placed(count);
  arena_.execute([&] {
    inParallel(count, [&](std::size_t i) {
      MadeData made = devices_.call(devices[i], [&](Executor& executor) {
        return executor.select(host, {.runs = {{firsts[i], firsts[i + 1] - firsts[i]}}});
      });
      if (made && !(*made)->isOnHost()) placed[i] = std::move(*made);
    });
  });
  std::vector<RowsOnDevice> parts;
  for (std::size_t i = 0; i < count; ++i) {
    if (placed[i] == nullptr) return nullptr;
    parts.push_back({devices[i], firsts[i], Dataset(placed[i])});
  }
  auto state = host.state().withoutNumbers();
  state->device = name_;
  state->divided = std::make_shared<PoolRows>(std::move(parts), host);
  return state;
}

// The other devices get copies, through the host.
MadeData PoolExecutor::adopt(const DeviceDataView& view) {
  const DeviceMatrix& some = view.columns.columns == 0 && view.target ? *view.target : view.columns;
  const std::optional<std::size_t> owner = devices_.ownerOf(some.pointer);
  if (!owner) return devices_.working().empty() ? devices_.noneLeft() : notOurs("columns", some.pointer);
  MadeData adopted = devices_.call(*owner, [&](Executor& executor) { return executor.adopt(view); });
  if (!adopted) return adopted;
  MadeData copy = devices_.call(*owner, [&](Executor& executor) { return executor.hostCopy(Dataset(*adopted)); });
  if (!copy) return copy;
  const Dataset host(*copy);
  return onEach([&](std::size_t device, Executor& executor) {
    return device == *owner ? adopted : executor.select(host, {.runs = {{0, host.rows()}}});
  });
}

MadeData PoolExecutor::select(const Dataset& data, const Selection& selection) {
  if (data.state().divided != nullptr) {
    auto selected = selectOnHost(data.state().divided->host().state(), selection);
    if (!selected) return std::move(selected).error();
    return place(Dataset(std::move(*selected)));
  }
  return onEachOf(data, [&](Executor& executor, const Dataset& own) { return executor.select(own, selection); });
}

Result<HostColumn> PoolExecutor::fetch(const char* what, const DeviceMatrix& column, std::size_t rows,
                                       std::uint64_t stream) {
  const std::optional<std::size_t> owner = devices_.ownerOf(column.pointer);
  if (!owner) return notOurs(what, column.pointer);
  return devices_.call(*owner, [&](Executor& executor) { return executor.fetch(what, column, rows, stream); });
}

MadeData PoolExecutor::hostCopy(const Dataset& data) {
  if (data.state().divided != nullptr) return data.state().divided->host().handle();
  for (const std::size_t device : devices_.working()) {
    const auto replica = replicaOn(data.state(), device);
    if (replica != nullptr) return devices_[device].hostCopy(Dataset(replica));
  }
  return Error{Errc::kMachine, "no device has the data", {}};
}

Status PoolExecutor::claimOutput(const DeviceMatrix& out, std::uint64_t stream) {
  const std::optional<std::size_t> owner = devices_.ownerOf(out.pointer);
  if (!owner) return notOurs("output", out.pointer);
  return devices_.call(*owner, [&](Executor& executor) { return executor.claimOutput(out, stream); });
}

void PoolExecutor::writeOutput(const Task& task, std::size_t offset, const std::byte* from, std::size_t bytes) {
  if (task.device_out == 0) {
    std::memcpy(task.out + offset, from, bytes);
    return;
  }
  const std::optional<std::size_t> owner = devices_.ownerOf(task.device_out);
  if (!owner) throw ErrorException(notOurs("output", task.device_out));
  devices_[*owner].writeOutput(task, offset, from, bytes);
}

Error PoolExecutor::notOurs(const char* what, std::uint64_t address) const {
  return {
      Errc::kUnsupported, fmt::format("{} at {:#x}, which is not memory of a device of {}", what, address, name_), {}};
}

void PoolExecutor::compile(Program::State& state, const CompileOptions& options, const Deadline& deadline) {
  PoolOrder order{.source = state.source, .tier = state.info.tier, .options = options};
  order.options.data = nullptr;
  Result<PoolShares> shares = arena_.execute([&] { return compiler_.make(order, options.data, deadline); });
  if (!shares) throw ErrorException(std::move(shares).error());
  state.on_pool = std::make_shared<PoolProgram>(std::move(*shares));
  state.on_pool->describe(state);
}

Result<Dataset> PoolExecutor::withTargetBehind(const Dataset& data) {
  const Dataset::State& state = data.state();
  if (state.divided != nullptr) return data;
  const std::lock_guard lock(state.copy_mutex);
  if (state.copy_with_target == nullptr) {
    MadeData behind = onEachOf(data, [](Executor& executor, const Dataset& own) -> MadeData {
      Result<Dataset> made = executor.withTargetBehind(own);
      if (!made) return std::move(made).error();
      return made->handle();
    });
    if (!behind) return std::move(behind).error();
    if ((*behind)->replicas == state.replicas) return data;
    state.copy_with_target = std::move(*behind);
  }
  return Dataset(state.copy_with_target);
}

std::size_t PoolExecutor::bestParts(const PopulationView& population, const CompileOptions& options) {
  const std::vector<std::size_t> working = devices_.working();
  if (working.empty()) return 1;
  // About the share of a device.
  const PopulationView share = divide(population, working.size()).front();
  for (const std::size_t device : working) {
    const auto replica = replicaOn(options.data->state(), device);
    if (replica == nullptr) continue;
    const Dataset own(replica);
    CompileOptions for_device = options;
    for_device.data = &own;
    return devices_[device].bestParts(share, for_device);
  }
  return 1;
}

Status PoolExecutor::prepareShare(const Task& task, const std::shared_ptr<PoolShare>& share) {
  Status prepared = guarded([&]() -> Status {
    const Result<Task> own = shareOf(task, *share, devices_, compiler_);
    if (!own) return own.error();
    return devices_.call(share->device, [&](Executor& executor) { return executor.prepare(*own); });
  });
  if (prepared || prepared.error().code != Errc::kMachine) return prepared;
  const Result<PoolShares> others = compiler_.othersOf(*share, prepared.error(), task.deadline);
  if (!others) return others.error();
  for (const std::shared_ptr<PoolShare>& other : *others) {
    if (Status done = prepareShare(task, other); !done) return done;
  }
  return okStatus();
}

Status PoolExecutor::prepare(const Task& task) {
  if (task.data.state().divided != nullptr) {
    return arena_.execute([&] { return RowsRun(devices_, *this, task).prepare(); });
  }
  const PoolShares& shares = task.program.state().on_pool->shares();
  std::vector<Status> prepared(shares.size(), okStatus());
  arena_.execute([&] {
    inParallel(shares.size(),
               [&](std::size_t i) { prepared[i] = guarded([&] { return prepareShare(task, shares[i]); }); });
  });
  const auto failed = std::ranges::find_if(prepared, [](const Status& status) { return !status.ok(); });
  return failed == prepared.end() ? okStatus() : *failed;
}

Result<std::unique_ptr<Flight>> PoolExecutor::start(Task task) {
  if (task.data.state().divided != nullptr) {
    std::vector<double> parameters(task.parameters.begin(), task.parameters.end());
    auto run = [this, task = std::move(task), parameters = std::move(parameters)] {
      Task own = task;
      own.parameters = parameters;
      return runDivided(own);
    };
    return std::unique_ptr<Flight>(std::make_unique<TaskFlight>(arena_, std::move(run)));
  }
  auto flight = std::make_unique<PoolFlight>(devices_, arena_, std::move(task), PoolFlight::Way::kAsync);
  if (Status begun = flight->begin(); !begun) return std::move(begun).error();
  // While the devices compute.
  flight->keepParameters();
  return std::unique_ptr<Flight>(std::move(flight));
}

Result<Losses> PoolExecutor::run(const Task& task) {
  if (task.data.state().divided != nullptr) return runDivided(task);
  PoolFlight flight(devices_, arena_, task, PoolFlight::Way::kBlocking);
  if (Status begun = flight.begin(); !begun) return std::move(begun).error();
  return flight.finish();
}

// Rows of a device that is lost are streamed to the others, with all the others' rows.
Result<Losses> PoolExecutor::runDivided(const Task& task) {
  PoolRows& rows = *task.data.state().divided;
  const auto works = [&](const RowsOnDevice& part) { return !devices_.isLost(part.device); };
  if (std::ranges::all_of(rows.parts(), works)) {
    Result<Losses> losses =
        guarded([&] { return arena_.execute([&] { return RowsRun(devices_, *this, task).run(); }); });
    if (losses || losses.error().code != Errc::kMachine) return losses;
  }
  const Result<Dataset> undivided = rows.undivided([&] { return placeOnEach(rows.host()); });
  if (!undivided) return undivided.error();
  Task again = task;
  again.data = *undivided;
  return run(again);
}

}  // namespace

std::unique_ptr<Executor> makePoolExecutor(const EngineOptions& options, std::vector<PoolDevice> devices) {
  return std::make_unique<PoolExecutor>(options, std::move(devices));
}

}  // namespace srjit

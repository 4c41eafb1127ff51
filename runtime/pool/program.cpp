#include "runtime/pool/program.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

namespace srjit {
namespace {

/// Of two tiers, the slower has the smaller number.
constexpr int speedOf(Tier tier) { return tier == Tier::kCompile ? 2 : tier == Tier::kDirect ? 1 : 0; }

/// Of counters.def.
enum class OfSeveral { kSum, kMost, kOne };
template <class T>
void include(T& all, T own, OfSeveral how) {
  if (how == OfSeveral::kSum) all = static_cast<T>(all + own);
  if (how == OfSeveral::kMost) all = std::max(all, own);
}

struct PoolData final : Residence {
  explicit PoolData(Replicas made) : replicas(std::move(made)) {}
  SubtreeStats subtrees() const override {
    SubtreeStats all;
    for (const auto& replica : replicas) {
      if (replica == nullptr) continue;
      const SubtreeStats own = Dataset(replica).subtrees();
#define SRJIT_SUBTREE_COUNTER(name, c_name) all.name += own.name;
#include "runtime/platform/counters.def"
    }
    return all;
  }

  const Replicas replicas;
};

}  // namespace

PoolDevices::PoolDevices(std::vector<PoolDevice> devices) : devices_(std::move(devices)), lost_(devices_.size()) {}

DeviceNumbers PoolDevices::working() const {
  DeviceNumbers numbers;
  for (std::size_t device = 0; device < size(); ++device) {
    if (!isLost(device)) numbers.push_back(device);
  }
  return numbers;
}

std::optional<std::size_t> PoolDevices::ownerOf(std::uint64_t address) const {
  std::optional<Error> failure;
  for (const std::size_t device : working()) {
    const Result<bool> owns = guarded([&]() -> Result<bool> { return devices_[device].executor->owns(address); });
    if (!owns) failure = owns.error();
    if (owns && *owns) return device;
  }
  if (failure) throw ErrorException(*failure);
  return std::nullopt;
}

// Isolated: a thread that waits for another's device runs no other task of the arena, which might wait for what this
// thread holds.
Status PoolDevices::onEach(DeviceNumbers& devices,
                           const std::function<Status(std::size_t i, Executor& executor)>& body) {
  std::vector<Status> done(devices.size(), okStatus());
  const auto callOne = [&](std::size_t i) {
    done[i] = guarded([&] { return call(devices[i], [&](Executor& executor) { return body(i, executor); }); });
  };
  if (devices.size() == 1) {
    callOne(0);
  } else {
    tbb::this_task_arena::isolate(
        [&] { tbb::parallel_for(std::size_t{0}, devices.size(), callOne, tbb::simple_partitioner()); });
  }
  Status all = okStatus();
  DeviceNumbers left;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const bool has_failed = !done[i] && done[i].error().code == Errc::kMachine;
    if (!has_failed) left.push_back(devices[i]);
    if (!done[i] && (all || (all.error().code == Errc::kMachine && !has_failed))) all = std::move(done[i]);
  }
  devices = std::move(left);
  return all;
}

void PoolDevices::noteFailure(std::size_t device, const Error& error) {
  if (isLost(device) || !devices_[device].executor->isLost()) return;
  const std::lock_guard lock(mutex_);
  if (lost_[device].exchange(true)) return;
  last_ = error;
  const char* const after = working().empty() ? "no device is left" : "the other devices do its share";
  notices_.push_back(fmt::format("device {} is lost: {}; {}", name(device), error.message, after));
}

Error PoolDevices::noneLeft() const {
  const std::lock_guard lock(mutex_);
  return {Errc::kMachine, fmt::format("all devices are lost, the last one with: {}", last_ ? last_->message : ""), {}};
}

std::vector<std::string> PoolDevices::notices() const {
  const std::lock_guard lock(mutex_);
  return notices_;
}

// An expression goes where the middle of its cost is.
std::vector<std::size_t> divideExpressions(const ProgramSource& source, std::span<const double> seconds_of_all) {
  const std::size_t count = source.expressions.size();
  const auto cost = [&](std::size_t e) {
    return static_cast<double>(source.expressions[e].size() * source.lengthFactor(e));
  };
  double all_cost = 0, all_speed = 0;
  for (std::size_t e = 0; e < count; ++e) all_cost += cost(e);
  for (const double seconds : seconds_of_all) all_speed += 1 / seconds;
  std::vector<std::size_t> ends = {0};
  double before = 0, speed = 0;
  std::size_t next = 0;
  for (const double seconds : seconds_of_all.first(seconds_of_all.size() - 1)) {
    speed += 1 / seconds;
    const double end = all_cost * (speed / all_speed);
    while (next < count && before + cost(next) / 2 < end) before += cost(next++);
    ends.push_back(next);
  }
  ends.push_back(count);
  return ends;
}

std::shared_ptr<Residence> residenceOf(Replicas replicas) { return std::make_shared<PoolData>(std::move(replicas)); }

std::span<const std::shared_ptr<const Dataset::State>> replicasOf(const Dataset::State& data) {
  const auto* const placed = dynamic_cast<const PoolData*>(data.residence.get());
  if (placed == nullptr) return {};
  return placed->replicas;
}

Task PoolShare::of(const Task& task) const {
  return {.program = *program,
          .data = Dataset(replicaOn(task.data.state(), device)),
          .parameters = task.parameters.subspan(parameter, source->parameterOffset(source->expressions.size())),
          .loss = task.loss,
          .deadline = task.deadline,
          .is_awaited = task.is_awaited};
}

void PoolShare::addFailures(std::span<const Failure> own, std::vector<Failure>& all) const {
  for (const Failure& failure : own) all.push_back({expression + failure.expression, failure.error});
}

PoolProgram::PoolProgram(std::shared_ptr<const ProgramSource> source, Tier tier, CompileOptions options)
    : source_(std::move(source)), tier_(tier), options_(std::move(options)) {
  options_.data = nullptr;
}

Result<std::shared_ptr<const PoolShares>> PoolProgram::sharesOn(PoolDevices& pool, DeviceNumbers& devices,
                                                                const Dataset* data, const Deadline& deadline) {
  const auto lock = lockUntil(deadline, mutex_);
  const auto found = std::ranges::find(divisions_, devices, &Division::first);
  if (found != divisions_.end()) {
    std::rotate(found, found + 1, divisions_.end());
  } else {
    if (divisions_.size() == kMostDivisions) divisions_.erase(divisions_.begin());
    // The mutex is held: this thread must not run another task of the arena, which could wait for it.
    divisions_.emplace_back(devices, tbb::this_task_arena::isolate([&] { return divide(pool, devices); }));
  }
  std::shared_ptr<const PoolShares>& kept = divisions_.back().second;
  const auto is_missing = [](const PoolShare& share) { return !share.program && share.source->expressions.size() > 0; };
  if (std::ranges::none_of(*kept, is_missing)) return kept;
  const auto shares = std::make_shared<PoolShares>(*kept);
  const Status made = pool.onEach(devices, [&](std::size_t i, Executor&) {
    PoolShare& share = (*shares)[i];
    if (is_missing(share)) share.program = compile(share, pool, data, deadline);
    return okStatus();
  });
  kept = shares;
  if (!made) return made.error();
  return kept;
}

std::shared_ptr<const PoolShares> PoolProgram::divide(const PoolDevices& pool, const DeviceNumbers& devices) const {
  std::vector<double> seconds;
  CompileOptions options = options_;
  options.tier = tier_;
  const std::size_t tokens = std::max<std::size_t>(source_->tokens * source_->lengthFactor(), 1);
  for (const std::size_t device : devices) {
    seconds.push_back(pool[device].estimate(source_->expressions.size(), tokens, options).seconds);
  }
  const std::vector<std::size_t> ends = divideExpressions(*source_, seconds);
  auto shares = std::make_shared<PoolShares>();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    shares->push_back({.device = devices[i],
                       .expression = ends[i],
                       .output = source_->outputOffset(ends[i]),
                       .parameter = source_->parameterOffset(ends[i]),
                       .source = std::make_shared<const ProgramSource>(source_->slice(ends[i], ends[i + 1]))});
  }
  return shares;
}

Program PoolProgram::compile(const PoolShare& share, const PoolDevices& pool, const Dataset* data,
                             const Deadline& deadline) const {
  auto state = std::make_shared<Program::State>();
  state->source = share.source;
  state->device = pool.name(share.device);
  state->info.nodes_before = share.source->tokens;
  state->info.tier = tier_;
  CompileOptions options = options_;
  const Dataset replica(data != nullptr ? replicaOn(data->state(), share.device) : nullptr);
  if (replica.handle() != nullptr) options.data = &replica;
  pool[share.device].compile(*state, options, deadline);
  return Program(std::move(state));
}

std::shared_ptr<const PoolShares> PoolProgram::shares() const {
  const std::lock_guard lock(mutex_);
  return divisions_.back().second;
}

/// Those of all shares(), added to `info`.
struct PoolProgram::Counters {
  ProgramInfo info;
  ProgramStatus status;
};

PoolProgram::Counters PoolProgram::counters(const ProgramInfo& info) const {
  Counters all{info, {}};
  bool is_first = true;
  for (const PoolShare& share : *shares()) {
    if (!share.program) continue;
    const Counters own{share.program->info(), share.program->status()};
#define SRJIT_PROGRAM_COUNTER(name, member, of_several) include(all.member, own.member, OfSeveral::of_several);
#include "runtime/platform/counters.def"
    if (std::exchange(is_first, false) || speedOf(own.status.tier) < speedOf(all.status.tier)) {
      all.status.tier = own.status.tier;
    }
    if (!all.status.error) all.status.error = own.status.error;
  }
  return all;
}

ProgramStatus PoolProgram::status() const { return counters({}).status; }

void PoolProgram::describe(Program::State& state) const {
  state.info = counters(state.info).info;
  for (const PoolShare& share : *shares()) {
    if (share.program) share.addFailures(share.program->failures(), state.failures);
  }
}

}  // namespace srjit

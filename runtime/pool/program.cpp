#include "runtime/pool/program.h"

#include <algorithm>

#include <tbb/task_arena.h>

namespace srjit {
namespace {

/// Of two tiers, the slower has the smaller number.
constexpr int speedOf(Tier tier) { return tier == Tier::kCompile ? 2 : tier == Tier::kDirect ? 1 : 0; }

}  // namespace

// An expression goes where the middle of its cost is.
std::vector<std::size_t> divideExpressions(const ProgramSource& source, std::span<const double> seconds_per_token) {
  const std::size_t count = source.expressions.size();
  const auto cost = [&](std::size_t e) {
    return static_cast<double>(source.expressions[e].size() * source.lengthFactor(e));
  };
  double all_cost = 0, all_speed = 0;
  for (std::size_t e = 0; e < count; ++e) all_cost += cost(e);
  for (const double seconds : seconds_per_token) all_speed += 1 / seconds;
  std::vector<std::size_t> ends = {0};
  double before = 0, speed = 0;
  std::size_t next = 0;
  for (const double seconds : seconds_per_token.first(seconds_per_token.size() - 1)) {
    speed += 1 / seconds;
    const double end = all_cost * (speed / all_speed);
    while (next < count && before + cost(next) / 2 < end) before += cost(next++);
    ends.push_back(next);
  }
  ends.push_back(count);
  return ends;
}

SubtreeStats PoolData::subtrees() const {
  SubtreeStats all;
  for (const auto& replica : replicas) {
    if (replica == nullptr) continue;
    const SubtreeStats own = Dataset(replica).subtrees();
    all.capacity += own.capacity;
    all.kept += own.kept;
    all.bytes += own.bytes;
    all.computed += own.computed;
    all.replaced += own.replaced;
    all.reads += own.reads;
  }
  return all;
}

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
  for (const std::size_t device : devices) seconds.push_back(pool[device].secondsPerToken(*source_, tier_, options_));
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

ProgramStatus PoolProgram::status() const {
  ProgramStatus all;
  bool is_first = true;
  for (const PoolShare& share : *shares()) {
    if (!share.program) continue;
    ProgramStatus own = share.program->status();
    if (is_first || speedOf(own.tier) < speedOf(all.tier)) all.tier = own.tier;
    is_first = false;
    all.compiling = all.compiling || own.compiling;
    all.compiled += own.compiled;
    all.evaluations = std::max(all.evaluations, own.evaluations);
    all.served.interpreted += own.served.interpreted;
    all.served.direct += own.served.direct;
    all.served.compiled += own.served.compiled;
    all.seconds_compiling = std::max(all.seconds_compiling, own.seconds_compiling);
    all.seconds_reading = std::max(all.seconds_reading, own.seconds_reading);
    all.seconds_loading = std::max(all.seconds_loading, own.seconds_loading);
    all.device_seconds = std::max(all.device_seconds, own.device_seconds);
    if (!all.error) all.error = std::move(own.error);
  }
  return all;
}

void PoolProgram::describe(Program::State& state) const {
  for (const PoolShare& share : *shares()) {
    if (!share.program) continue;
    const ProgramInfo& own = share.program->info();
    state.info.nodes_after += own.nodes_after;
    state.info.seconds_passes = std::max(state.info.seconds_passes, own.seconds_passes);
    state.info.seconds_codegen = std::max(state.info.seconds_codegen, own.seconds_codegen);
    state.info.subtrees_read += own.subtrees_read;
    state.info.nodes_spared += own.nodes_spared;
    state.info.recurring += own.recurring;
    state.info.encoded_on_device += own.encoded_on_device;
    for (const Failure& failure : share.program->failures()) {
      state.failures.push_back({share.expression + failure.expression, failure.error});
    }
  }
}

}  // namespace srjit

#include "runtime/pool/program.h"

#include <algorithm>
#include <utility>

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
#define SRJIT_SUBTREE_COUNTER(name, c_name) all.name += own.name;
#include "runtime/platform/counters.def"
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
    seconds.push_back(pool[device].estimate(source_->expressions.size(), tokens, options).first);
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

void PoolProgram::addCounters(ProgramInfo& info, ProgramStatus& status) const {
  const struct {
    ProgramInfo& info;
    ProgramStatus& status;
  } all{info, status};
  bool is_first = true;
  for (const PoolShare& share : *shares()) {
    if (!share.program) continue;
    const struct {
      const ProgramInfo& info;
      const ProgramStatus status;
    } own{share.program->info(), share.program->status()};
#define SRJIT_PROGRAM_COUNTER(name, member, of_several) include(all.member, own.member, OfSeveral::of_several);
#include "runtime/platform/counters.def"
    if (std::exchange(is_first, false) || speedOf(own.status.tier) < speedOf(status.tier))
      status.tier = own.status.tier;
    if (!status.error) status.error = own.status.error;
  }
}

ProgramStatus PoolProgram::status() const {
  ProgramInfo unused{};
  ProgramStatus status;
  addCounters(unused, status);
  return status;
}

void PoolProgram::describe(Program::State& state) const {
  ProgramStatus unused;
  addCounters(state.info, unused);
  for (const PoolShare& share : *shares()) {
    if (share.program) share.addFailures(share.program->failures(), state.failures);
  }
}

}  // namespace srjit

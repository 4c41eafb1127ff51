#include "runtime/pool/program.h"

#include <algorithm>
#include <utility>

#include "runtime/platform/guarded.h"
#include "runtime/pool/division.h"
#include "runtime/pool/parallel.h"

namespace srjit {
namespace {

/// Gives the programs of a share to `take`: its own, or those of its others that are there.
template <class Take>
void forEachProgram(const std::shared_ptr<PoolShare>& share, const Take& take) {
  if (const std::optional<Program> later = share->elsewhere.find(share->device)) return take(*share, *later);
  const std::lock_guard lock(share->mutex);
  if (!share->others) {
    if (share->program) take(*share, *share->program);
    return;
  }
  for (const std::shared_ptr<PoolShare>& other : *share->others) forEachProgram(other, take);
}

/// Of two tiers, the slower has the smaller number.
constexpr int speedOf(Tier tier) { return tier == Tier::kCompile ? 2 : tier == Tier::kDirect ? 1 : 0; }

/// The order of the expressions first .. last - 1 of another.
PoolOrder partOf(const PoolOrder& order, std::size_t first, std::size_t last) {
  PoolOrder part = order;
  part.source = std::make_shared<const ProgramSource>(order.source->slice(first, last));
  part.expression += first;
  part.output += order.source->outputOffset(first);
  part.parameter += order.source->parameterOffset(first);
  return part;
}

}  // namespace

ProgramStatus PoolProgram::status() const {
  ProgramStatus all;
  bool is_first = true;
  const auto take = [&](const PoolShare&, const Program& program) {
    ProgramStatus own = program.status();
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
  };
  for (const std::shared_ptr<PoolShare>& share : shares_) forEachProgram(share, take);
  return all;
}

void PoolProgram::describe(Program::State& state) const {
  const auto take = [&](const PoolShare& share, const Program& program) {
    const ProgramInfo& own = program.info();
    state.info.nodes_after += own.nodes_after;
    state.info.seconds_passes = std::max(state.info.seconds_passes, own.seconds_passes);
    state.info.seconds_codegen = std::max(state.info.seconds_codegen, own.seconds_codegen);
    state.info.subtrees_read += own.subtrees_read;
    state.info.nodes_spared += own.nodes_spared;
    state.info.recurring += own.recurring;
    state.info.encoded_on_device += own.encoded_on_device;
    for (const Failure& failure : program.failures()) {
      state.failures.push_back({share.order.expression + failure.expression, failure.error});
    }
  };
  for (const std::shared_ptr<PoolShare>& share : shares_) forEachProgram(share, take);
}

Result<PoolShares> PoolCompiler::make(const PoolOrder& order, const Dataset* data, const Deadline& deadline) const {
  const std::vector<std::size_t> devices = devices_.working();
  if (devices.empty()) return devices_.noneLeft();
  return makeOn(devices, {}, order, data, deadline);
}

Result<PoolShares> PoolCompiler::othersOf(PoolShare& share, const Error& error, const Deadline& deadline) const {
  const auto lock = lockUntil(deadline, share.mutex);
  if (share.others) return *share.others;
  std::vector<std::size_t> devices = devices_.working();
  if (devices.empty()) return devices_.noneLeft();
  std::erase_if(devices,
                [&](std::size_t device) { return std::ranges::find(share.tried, device) != share.tried.end(); });
  if (devices.empty()) return error;
  Result<PoolShares> made = makeOn(devices, share.tried, share.order, nullptr, deadline);
  if (made) share.others = *made;
  return made;
}

Result<PoolShares> PoolCompiler::makeOn(const std::vector<std::size_t>& devices, const std::vector<std::size_t>& tried,
                                        const PoolOrder& order, const Dataset* data, const Deadline& deadline) const {
  PoolShares shares = divide(devices, tried, order);
  inParallel(shares.size(), [&](std::size_t i) { compile(*shares[i], data, deadline); });
  for (const std::shared_ptr<PoolShare>& share : shares) {
    if (share->program) continue;
    if (share->error->code != Errc::kMachine) return *share->error;
    if (const Result<PoolShares> others = othersOf(*share, *share->error, deadline); !others) return others.error();
  }
  return shares;
}

PoolShares PoolCompiler::divide(const std::vector<std::size_t>& devices, const std::vector<std::size_t>& tried,
                                const PoolOrder& order) const {
  std::vector<double> seconds;
  seconds.reserve(devices.size());
  for (const std::size_t device : devices) {
    seconds.push_back(devices_[device].secondsPerToken(*order.source, order.tier, order.options));
  }
  const std::vector<std::size_t> ends = divideExpressions(*order.source, seconds);
  PoolShares shares;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (ends[i] == ends[i + 1]) continue;
    auto share = std::make_shared<PoolShare>();
    share->device = devices[i];
    share->order = partOf(order, ends[i], ends[i + 1]);
    share->tried = tried;
    share->tried.push_back(devices[i]);
    shares.push_back(std::move(share));
  }
  return shares;
}

void PoolCompiler::compile(PoolShare& share, const Dataset* data, const Deadline& deadline) const {
  const Status made = devices_.call(share.device, [&](Executor&) {
    share.program = compileOn(share.device, share.order, data, deadline);
    return okStatus();
  });
  if (!made) share.error = made.error();
}

Program PoolCompiler::compileOn(std::size_t device, const PoolOrder& order, const Dataset* data,
                                const Deadline& deadline) const {
  Executor& executor = devices_[device];
  auto state = std::make_shared<Program::State>();
  state->source = order.source;
  state->device = devices_.name(device);
  state->info.nodes_before = order.source->tokens;
  state->info.tier = order.tier;
  const auto replica = data != nullptr ? replicaOn(data->state(), device) : nullptr;
  // Kept subtrees are values of expressions; without them everything is computed.
  if (replica != nullptr && !order.source->derivation) {
    (void)guarded([&]() -> Status {
      state->subtrees = executor.subtreesFor(*order.source, Dataset(replica), order.tier);
      return okStatus();
    });
  }
  executor.compile(*state, order.options, deadline);
  return Program(std::move(state));
}

Result<Program> PoolCompiler::programOf(PoolShare& share, const Deadline& deadline) const {
  if (share.program) return *share.program;
  return devices_.call(share.device,
                       [&](Executor&) -> Result<Program> { return programOn(share, share.device, deadline); });
}

Program PoolCompiler::programOn(PoolShare& share, std::size_t device, const Deadline& deadline) const {
  if (device == share.device && share.program) return *share.program;
  return share.elsewhere.get(device, deadline, [&] { return compileOn(device, share.order, nullptr, deadline); });
}

}  // namespace srjit

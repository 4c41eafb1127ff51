#include "runtime/pool/flight.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "runtime/platform/guarded.h"
#include "runtime/pool/parallel.h"

namespace srjit {

Result<Task> shareOf(const Task& task, PoolShare& share, const PoolDevices& devices, const PoolCompiler& compiler) {
  const auto replica = replicaOn(task.data.state(), share.device);
  if (devices.isLost(share.device) || replica == nullptr) {
    return Error{Errc::kMachine, fmt::format("device {} does not have the data", devices.name(share.device)), {}};
  }
  Result<Program> program = compiler.programOf(share, task.deadline);
  if (!program) return std::move(program).error();
  const ProgramSource& source = *share.order.source;
  return Task{
      .program = std::move(*program),
      .data = Dataset(replica),
      .parameters = task.parameters.subspan(share.order.parameter, source.parameterOffset(source.expressions.size())),
      .loss = task.loss,
      .deadline = task.deadline};
}

PoolFlight::PoolFlight(PoolDevices& devices, tbb::task_arena& arena, Task task, Way way)
    : devices_(devices), arena_(arena), compiler_(devices), task_(std::move(task)), way_(way) {
  if (task_.device_out != 0) owner_ = devices_.ownerOf(task_.device_out);
}

Status PoolFlight::begin() {
  if (task_.device_out != 0 && !owner_) return Error{Errc::kMachine, "the device that has the output is lost", {}};
  const PoolShares& shares = task_.program.state().on_pool->shares();
  std::vector<std::vector<PoolPart>> parts(shares.size());
  std::vector<Status> begun(shares.size(), okStatus());
  arena_.execute([&] {
    inParallel(shares.size(),
               [&](std::size_t i) { begun[i] = guarded([&] { return beginShare(shares[i], parts[i]); }); });
  });
  for (const Status& status : begun) {
    if (!status) return status;
  }
  for (std::vector<PoolPart>& some : parts) std::ranges::move(some, std::back_inserter(parts_));
  if (task_.loss) {  // while the devices compute
    all_.values.resize(task_.program.state().source->outputs());
    all_.valid_rows.resize(all_.values.size());
  }
  return okStatus();
}

void PoolFlight::keepParameters() {
  parameters_.assign(task_.parameters.begin(), task_.parameters.end());
  task_.parameters = parameters_;
}

// A failure ends a share, too; finish() deals with it.
bool PoolFlight::ready() {
  return std::ranges::all_of(parts_, [](const PoolPart& part) {
    if (part.done) return true;
    const Result<bool> ready = guarded([&]() -> Result<bool> { return part.flight->ready(); });
    return !ready || *ready;
  });
}

void PoolFlight::wait() {
  for (const PoolPart& part : parts_) {
    if (!part.done) static_cast<void>(guarded([&] { return part.flight->wait(), okStatus(); }));
  }
}

// Devices are waited for outside of the arena, whose threads others may use meanwhile.
Result<Losses> PoolFlight::finish() {
  wait();
  return arena_.execute([&] { return collect(); });
}

Result<Losses> PoolFlight::collect() {
  if (Status finished = finishParts(parts_); !finished) return std::move(finished).error();
  return std::move(all_);
}

Status PoolFlight::finishParts(std::span<PoolPart> parts) {
  std::vector<Status> taken(parts.size(), okStatus());
  inParallel(parts.size(), [&](std::size_t i) { taken[i] = guarded([&] { return take(parts[i]); }); });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::ranges::move(parts[i].failures, std::back_inserter(all_.failures));
    if (taken[i]) continue;
    if (taken[i].error().code != Errc::kMachine) return std::move(taken[i]);
    std::vector<PoolPart> others;
    if (Status begun = beginOthers(*parts[i].share, taken[i].error(), others); !begun) return begun;
    if (Status finished = finishParts(others); !finished) return finished;
  }
  return okStatus();
}

std::size_t PoolFlight::predictionBytes(std::size_t outputs) const {
  return outputs * task_.data.rows() * static_cast<std::size_t>(bytesOf(task_.data.state().precision));
}

Result<PoolPart> PoolFlight::start(const std::shared_ptr<PoolShare>& share) const {
  Result<Task> task = shareOf(task_, *share, devices_, compiler_);
  if (!task) return std::move(task).error();
  PoolPart part{share, {}, nullptr};
  const std::size_t offset = predictionBytes(share->order.output);
  if (!task_.loss && task_.device_out == 0) {
    task->out = task_.out + offset;
  } else if (!task_.loss && share->device == owner_) {
    task->device_out = task_.device_out + offset;
  } else if (!task_.loss) {
    part.predictions = AlignedBuffer(predictionBytes(share->order.source->outputs()));
    task->out = part.predictions.data();
  }
  if (way_ == Way::kBlocking && !task_.loss) {
    Result<Losses> done = devices_.call(share->device, [&](Executor& executor) { return executor.run(*task); });
    if (!done) return std::move(done).error();
    part.done = std::move(*done);
    return part;
  }
  Result<std::unique_ptr<Flight>> flight =
      devices_.call(share->device, [&](Executor& executor) { return executor.start(std::move(*task)); });
  if (!flight) return std::move(flight).error();
  part.flight = std::move(*flight);
  return part;
}

Status PoolFlight::beginShare(const std::shared_ptr<PoolShare>& share, std::vector<PoolPart>& parts) const {
  Result<PoolPart> part = start(share);
  if (part) {
    parts.push_back(std::move(*part));
    return okStatus();
  }
  if (part.error().code != Errc::kMachine) return std::move(part).error();
  return beginOthers(*share, part.error(), parts);
}

Status PoolFlight::beginOthers(PoolShare& share, const Error& error, std::vector<PoolPart>& parts) const {
  const Result<PoolShares> others = compiler_.othersOf(share, error, task_.deadline);
  if (!others) return others.error();
  for (const std::shared_ptr<PoolShare>& other : *others) {
    if (Status begun = beginShare(other, parts); !begun) return begun;
  }
  return okStatus();
}

Status PoolFlight::take(PoolPart& part) {
  const PoolShare& share = *part.share;
  Result<Losses> some = devices_.call(share.device, [&](Executor&) -> Result<Losses> {
    if (part.done) return std::move(*part.done);
    return part.flight->finish();
  });
  if (!some) return std::move(some).error();
  if (part.predictions.size() > 0) {
    const Task own{
        .program = task_.program, .data = task_.data, .parameters = {}, .loss = {}, .device_out = task_.device_out};
    Status written = devices_.call(*owner_, [&](Executor& owner) {
      owner.writeOutput(own, predictionBytes(share.order.output), part.predictions.data(), part.predictions.size());
      return okStatus();
    });
    if (!written) return written;
  }
  if (!some->values.empty()) {  // predictions have none
    const auto first = static_cast<std::ptrdiff_t>(share.order.output);
    std::ranges::copy(some->values, all_.values.begin() + first);
    std::ranges::copy(some->valid_rows, all_.valid_rows.begin() + first);
  }
  for (Failure& failure : some->failures) {
    failure.expression += share.order.expression;
    part.failures.push_back(std::move(failure));
  }
  return okStatus();
}

}  // namespace srjit

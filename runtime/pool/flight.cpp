#include "runtime/pool/flight.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/platform/guarded.h"

namespace srjit {

PoolFlight::PoolFlight(PoolDevices& pool, tbb::task_arena& arena, Task task, DeviceNumbers devices)
    : pool_(pool), arena_(arena), task_(std::move(task)), devices_(std::move(devices)) {
  if (task_.device_out != 0) owner_ = pool_.ownerOf(task_.device_out);
}

Status PoolFlight::start() {
  Status begun = arena_.execute([&] { return pool_.retry(devices_, [&] { return begin(); }); });
  if (begun && task_.loss) {  // while the devices compute
    all_.values.resize(task_.program.state().source->outputs());
    all_.valid_rows.resize(all_.values.size());
  }
  return begun;
}

void PoolFlight::keepParameters() {
  parameters_.assign(task_.parameters.begin(), task_.parameters.end());
  task_.parameters = parameters_;
}

// A failure ends a share, too; finish() deals with it.
bool PoolFlight::ready() {
  return std::ranges::all_of(parts_, [](const Part& part) {
    const Result<bool> ready =
        guarded([&]() -> Result<bool> { return part.flight == nullptr || part.flight->ready(); });
    return !ready || *ready;
  });
}

void PoolFlight::wait() {
  for (const Part& part : parts_) {
    if (part.flight != nullptr) static_cast<void>(guarded([&] { return part.flight->wait(), okStatus(); }));
  }
}

// Devices are waited for outside of the arena, whose threads others may use meanwhile.
Result<Losses> PoolFlight::finish() {
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

Status PoolFlight::begin() {
  if (task_.device_out != 0 && (!owner_ || pool_.isLost(*owner_))) {
    return Error{Errc::kMachine, "the device that has the output is lost", {}};
  }
  auto shares = task_.program.state().on_pool->sharesOn(pool_, devices_, nullptr, task_.deadline);
  if (!shares) return std::move(shares).error();
  shares_ = std::move(*shares);
  parts_.resize(shares_->size());
  Status begun = pool_.onEach(
      devices_, [&](std::size_t i, Executor& executor) { return beginShare((*shares_)[i], executor, parts_[i]); });
  if (!begun) parts_.clear();
  return begun;
}

std::size_t PoolFlight::predictionBytes(std::size_t outputs) const {
  return outputs * task_.data.rows() * static_cast<std::size_t>(bytesOf(task_.data.state().precision));
}

Status PoolFlight::beginShare(const PoolShare& share, Executor& executor, Part& part) const {
  if (!share.program) return okStatus();
  Task task = share.of(task_);
  if (task.loss) {
    auto flight = executor.start(std::move(task));
    if (!flight) return std::move(flight).error();
    part.flight = std::move(*flight);
    return okStatus();
  }
  const std::size_t offset = predictionBytes(share.output);
  if (task_.device_out == 0) {
    task.out = task_.out + offset;
  } else if (share.device == owner_) {
    task.device_out = task_.device_out + offset;
  } else {
    part.predictions = AlignedBuffer(predictionBytes(share.source->outputs()));
    task.out = part.predictions.data();
  }
  Result<Losses> done = executor.run(task);
  if (!done) return std::move(done).error();
  addFailures(share, std::move(done->failures), part);
  return okStatus();
}

Status PoolFlight::collect() {
  Status taken = pool_.onEach(devices_, [&](std::size_t i, Executor&) { return take((*shares_)[i], parts_[i]); });
  if (taken) {
    for (Part& part : parts_) std::ranges::move(part.failures, std::back_inserter(all_.failures));
  }
  parts_.clear();
  return taken;
}

Status PoolFlight::take(const PoolShare& share, Part& part) {
  if (part.predictions.size() > 0) {
    const Task own{
        .program = task_.program, .data = task_.data, .parameters = {}, .loss = {}, .device_out = task_.device_out};
    return pool_.call(*owner_, [&](Executor& owner) {
      owner.writeOutput(own, predictionBytes(share.output), part.predictions.data(), part.predictions.size());
      return okStatus();
    });
  }
  if (part.flight == nullptr) return okStatus();
  Result<Losses> some = part.flight->finish();
  if (!some) return std::move(some).error();
  const auto first = static_cast<std::ptrdiff_t>(share.output);
  std::ranges::copy(some->values, all_.values.begin() + first);
  std::ranges::copy(some->valid_rows, all_.valid_rows.begin() + first);
  addFailures(share, std::move(some->failures), part);
  return okStatus();
}

void PoolFlight::addFailures(const PoolShare& share, std::vector<Failure> failures, Part& part) const {
  for (Failure& failure : failures) failure.expression += share.expression;
  part.failures = std::move(failures);
}

}  // namespace srjit

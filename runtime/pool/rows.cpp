#include "runtime/pool/rows.h"

#include <algorithm>

#include "ir/numbers/loss_sums.h"
#include "ir/numbers/rounding.h"
#include "runtime/platform/guarded.h"
#include "runtime/pool/parallel.h"

namespace srjit {

std::vector<std::size_t> divideRows(std::size_t rows, std::size_t devices) {
  constexpr std::size_t kQuantum = kGroupRows * kSumChains;
  const std::size_t quanta = ceilDivide(rows, kQuantum), parts = std::min(devices, quanta);
  std::vector<std::size_t> firsts;
  for (std::size_t i = 0; i < parts; ++i) firsts.push_back(quanta * i / parts * kQuantum);
  firsts.push_back(rows);
  return firsts;
}

RowsRun::RowsRun(PoolDevices& devices, Executor& pool, const Task& task)
    : devices_(devices),
      pool_(pool),
      compiler_(devices),
      task_(task),
      shares_(task.program.state().on_pool->shares()),
      parts_(task.data.state().divided->parts()),
      chains_(shares_.size()) {}

Result<Losses> RowsRun::run() { return task_.loss ? losses() : predictions(); }

Task RowsRun::taskOf(const Cell& cell) {
  PoolShare& share = *shares_[cell.share];
  const RowsOnDevice& rows = parts_[cell.part];
  const ProgramSource& source = *share.order.source;
  Task task{
      .program = compiler_.programOn(share, rows.device, task_.deadline),
      .data = rows.data,
      .parameters = task_.parameters.subspan(share.order.parameter, source.parameterOffset(source.expressions.size())),
      .loss = task_.loss,
      .deadline = task_.deadline};
  if (task_.loss) {
    task.part = RowsPart{.whole = task_.data,
                         .is_first = cell.part == 0,
                         .is_last = cell.part + 1 == parts_.size(),
                         .chains = &chains_[cell.share]};
  }
  return task;
}

Status RowsRun::prepare() {
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    for (std::size_t share = 0; share < shares_.size(); ++share) {
      const Status prepared = devices_.call(
          parts_[part].device, [&](Executor& executor) { return executor.prepare(taskOf({share, part})); });
      if (!prepared) return prepared;
    }
  }
  return okStatus();
}

Result<std::vector<Losses>> RowsRun::evaluate(std::span<const Cell> cells) {
  std::vector<std::optional<Result<std::unique_ptr<Flight>>>> flights(cells.size());
  inParallel(cells.size(), [&](std::size_t i) {
    flights[i] = devices_.call(parts_[cells[i].part].device,
                               [&](Executor& executor) { return executor.start(taskOf(cells[i])); });
  });
  std::vector<Losses> all;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    Result<std::unique_ptr<Flight>>& flight = *flights[i];
    if (!flight) return std::move(flight).error();
    Result<Losses> some = devices_.call(parts_[cells[i].part].device, [&](Executor&) { return (*flight)->finish(); });
    if (!some) return std::move(some).error();
    all.push_back(std::move(*some));
  }
  return all;
}

// On these threads: a Flight of predictions is a task for others, of which there may be none.
Result<std::vector<Losses>> RowsRun::predict(std::span<const Cell> cells, std::span<AlignedBuffer> out) {
  std::vector<std::optional<Result<Losses>>> done(cells.size());
  inParallel(cells.size(), [&](std::size_t i) {
    done[i] = devices_.call(parts_[cells[i].part].device, [&](Executor& executor) {
      Task task = taskOf(cells[i]);
      task.out = out[i].data();
      return executor.run(task);
    });
  });
  std::vector<Losses> all;
  for (std::optional<Result<Losses>>& some : done) {
    if (!*some) return std::move(*some).error();
    all.push_back(std::move(**some));
  }
  return all;
}

void RowsRun::take(const PoolShare& share, const Losses& some, Losses& all) const {
  for (const Failure& failure : some.failures) {
    all.failures.push_back({share.order.expression + failure.expression, failure.error});
  }
}

// In every step a share goes on to the next device, and a new one begins at the first.
Result<Losses> RowsRun::losses() {
  Losses all;
  all.values.resize(task_.program.state().source->outputs());
  all.valid_rows.resize(all.values.size());
  for (std::size_t step = 0; step + 1 < shares_.size() + parts_.size(); ++step) {
    std::vector<Cell> cells;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      if (step >= part && step - part < shares_.size()) cells.push_back({step - part, part});
    }
    Result<std::vector<Losses>> some = evaluate(cells);
    if (!some) return std::move(some).error();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const PoolShare& share = *shares_[cells[i].share];
      take(share, (*some)[i], all);
      if (cells[i].part + 1 < parts_.size()) continue;
      const auto first = static_cast<std::ptrdiff_t>(share.order.output);
      std::ranges::copy((*some)[i].values, all.values.begin() + first);
      std::ranges::copy((*some)[i].valid_rows, all.valid_rows.begin() + first);
    }
  }
  return all;
}

// One share after the other, so that the copies take little memory.
Result<Losses> RowsRun::predictions() {
  const auto element = static_cast<std::size_t>(bytesOf(task_.data.state().precision));
  Losses all;
  for (std::size_t share = 0; share < shares_.size(); ++share) {
    std::vector<Cell> cells;
    std::vector<AlignedBuffer> out;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      cells.push_back({share, part});
      out.emplace_back(shares_[share]->order.source->outputs() * parts_[part].data.rows() * element);
    }
    const Result<std::vector<Losses>> some = predict(cells, out);
    if (!some) return some.error();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      take(*shares_[share], (*some)[i], all);
      writeRows(cells[i], out[i]);
    }
  }
  return all;
}

void RowsRun::writeRows(const Cell& cell, const AlignedBuffer& predictions) {
  const auto element = static_cast<std::size_t>(bytesOf(task_.data.state().precision));
  const PoolOrder& order = shares_[cell.share]->order;
  const RowsOnDevice& rows = parts_[cell.part];
  const std::size_t bytes = rows.data.rows() * element;
  for (std::size_t output = 0; output < order.source->outputs(); ++output) {
    const std::size_t offset = ((order.output + output) * task_.data.rows() + rows.first) * element;
    pool_.writeOutput(task_, offset, predictions.data() + output * bytes, bytes);
  }
}

}  // namespace srjit

// Data that are too large for each of several devices: rows on each.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/evaluation/executor.h"
#include "runtime/pool/devices.h"
#include "runtime/pool/program.h"

namespace srjit {

/// Some rows on a device.
struct RowsOnDevice {
  std::size_t device, first;
  Dataset data;
};

/// The rows of a data set, divided among devices in order; parts that RowsPart describes. Thread-safe.
class PoolRows {
 public:
  /// `host` has all numbers in host memory, which are kept for selections and for the loss of a device.
  PoolRows(std::vector<RowsOnDevice> parts, Dataset host) : parts_(std::move(parts)), host_(std::move(host)) {}

  std::span<const RowsOnDevice> parts() const noexcept { return parts_; }
  const Dataset& host() const noexcept { return host_; }
  /// The data as one device after the other can read them alone, which `make` makes at the first use.
  template <class Make>
  Result<Dataset> undivided(const Make& make) {
    const std::lock_guard lock(mutex_);
    if (!undivided_) {
      auto made = make();
      if (!made) return std::move(made).error();
      undivided_ = Dataset(std::move(*made));
    }
    return *undivided_;
  }

 private:
  const std::vector<RowsOnDevice> parts_;
  const Dataset host_;
  std::mutex mutex_;
  std::optional<Dataset> undivided_;
};

/// Where rows are divided: the first row of each of at most so many devices, and the end. Multiples of kGroupRows *
/// kSumChains but for the end, about equally far apart, ascending.
std::vector<std::size_t> divideRows(std::size_t rows, std::size_t devices);

/// An evaluation of such data. The chains of a loss go from device to device: while one adds the rows of a share of the
/// expressions, the next adds its rows of the share before. Works on the calling thread's arena.
class RowsRun {
 public:
  /// All must outlive it. `pool` writes the output.
  RowsRun(PoolDevices& devices, Executor& pool, const Task& task);

  /// Errors: kMachine where a device fails.
  Result<Losses> run();
  /// As Executor::prepare().
  Status prepare();

 private:
  /// A share on a part of the rows.
  struct Cell {
    std::size_t share, part;
  };
  Task taskOf(const Cell& cell);
  Result<Losses> losses();
  Result<Losses> predictions();
  /// Evaluates losses of cells at the same time.
  Result<std::vector<Losses>> evaluate(std::span<const Cell> cells);
  /// Likewise predictions, which go to `out`.
  Result<std::vector<Losses>> predict(std::span<const Cell> cells, std::span<AlignedBuffer> out);
  void writeRows(const Cell& cell, const AlignedBuffer& predictions);
  void take(const PoolShare& share, const Losses& some, Losses& all) const;

  PoolDevices& devices_;
  Executor& pool_;
  const PoolCompiler compiler_;
  const Task& task_;
  const PoolShares& shares_;
  const std::span<const RowsOnDevice> parts_;
  std::vector<std::vector<double>> chains_;  ///< of each share
};

}  // namespace srjit

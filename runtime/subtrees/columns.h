// Values of subtrees in the memory of a device: the spare columns of one data set, and the kernels that fill them. This
// is the one header of the room that others include.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/launch/run.h"
#include "runtime/subtrees/kept.h"

namespace srjit {

/// Thread-safe. Belongs to the data set, which it must not outlive; its destructor waits for its kernels.
class DeviceSubtrees final : public Residence {
 public:
  /// Of `data`, which are resident and have spare columns.
  DeviceSubtrees(std::shared_ptr<KernelStore> store, const Dataset::State& data);
  ~DeviceSubtrees() override;

  /// Whether programs of this queue may read the columns, which are filled in its order.
  bool belongsTo(const DeviceQueue& queue) const noexcept { return &store_->queue() == &queue; }
  SubtreeStats subtrees() const override;

  /// What the program of `source` reads, to be evaluated by `tier` on `data`, the data set of these subtrees; null if
  /// nothing pays. Computes first what it pays to keep now. In parallel on the calling thread's arena.
  std::shared_ptr<GraphFilter> open(const ProgramSource& source, const Dataset::State& data, Tier tier,
                                    const DeviceCosts& costs, unsigned threads);

 private:
  /// Puts the kernels on the stream that compute what it pays to keep now; where that fails, less is kept. In parallel
  /// on the calling thread's arena. `data` is the data set.
  void update(const Dataset::State& data, unsigned threads);

  std::vector<bool> write(const Dataset::State& data, std::span<const SubtreeWrite> writes, unsigned threads);

  std::shared_ptr<KernelStore> store_;
  std::shared_ptr<KeptSubtrees> kept_;
  const std::size_t column_bytes_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceRun>> runs_;  ///< that may not be done
};

}  // namespace srjit

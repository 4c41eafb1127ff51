// The work of a DeviceLoss on one GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/interpreter/lanes/arguments.h"
#include "runtime/code/kernel_store.h"
#include "runtime/code/parts.h"
#include "runtime/dataset.h"
#include "runtime/device_loss.h"
#include "runtime/gpu/data.h"
#include "runtime/launch/run.h"

namespace srjit {

/// Kernels, tables and memory for parts of a population. Not thread-safe.
class DeviceLoss::Work {
 public:
  /// Precondition: checkLoss() of the data, which the store's queue has placed. Errors: kInvalid for options out of
  /// range; kUnsupported for a loss that lanes do not finish, for data that are streamed, and for more columns than the
  /// interpreter stages; those of making kernels. Throws CudaFailure; needs a current context, as all members do.
  /// Variable i of the expressions is column columns[i] of the data; of no columns, column i.
  static Result<std::shared_ptr<Work>> create(std::shared_ptr<KernelStore> store, Dataset data,
                                              const DeviceLossOptions& options,
                                              std::vector<std::uint32_t> columns = {});
  /// Waits for all work of the device, unless setDone() was called.
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// As DeviceLoss::submit(). Needs no current context, and throws nothing.
  Status submit(const DevicePopulation& population, const DeviceLossOutputs& out, std::uint64_t stream);
  /// The same with a current context, and throws CudaFailure.
  Status put(const DevicePopulation& population, const DeviceLossOutputs& out, std::uint64_t stream);
  /// Whether lanes finish this loss, which checkLoss() accepts, of these data.
  static bool takes(const LossOptions& loss, const Dataset::State& data);
  /// The owner has waited for all work.
  void setDone() noexcept { is_done_ = true; }

 private:
  Work(std::shared_ptr<KernelStore> store, Dataset data, const DeviceLossOptions& options,
       std::vector<std::uint32_t> columns);

  Status takeKernels();
  void takeMemory();
  void putTables();
  Status check(const DevicePopulation& population, const DeviceLossOutputs& out);
  void submitPart(const BorrowedStream& stream, const TreeArguments& population, const LossArguments& out);

  std::shared_ptr<KernelStore> store_;
  DeviceQueue& queue_;  ///< the store's
  Dataset data_;
  DeviceLossOptions options_;
  std::vector<std::uint32_t> columns_;
  std::size_t element_;
  LossSpec spec_;
  std::size_t part_ = 0;  ///< expressions that are evaluated at once
  InterpreterCode code_;
  InterpreterGeometry geometry_{};
  std::size_t shared_bytes_ = 0;  ///< of the interpreter
  std::shared_ptr<const Module> lanes_;
  Kernel trees_, losses_, interpreter_, totals_;
  DeviceBuffer tables_, memory_;
  CUdeviceptr column_map_ = 0, sums_ = 0, total_sums_ = 0;
  TreeArguments arguments_{};              ///< but for the population
  std::array<std::uint64_t, 16> known_{};  ///< addresses of the last calls, which are of this device
  std::size_t next_known_ = 0;
  bool is_done_ = false;
};

}  // namespace srjit

// Losses of expressions that are in a GPU's memory, computed without a word to the host: for systems that breed there.
//
//   DeviceLoss loss = *engine.deviceLoss(data, {.operators = {Op::kAdd, Op::kMul}, .expressions = 100'000});
//   loss.submit(population, {.losses = address}, stream);  // once for each generation
//
// submit() only puts kernels on the caller's stream, so a CUDA graph may capture it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "ir/op.h"
#include "ir/population.h"
#include "runtime/engine_options.h"

namespace srjit {

/// The largest population that is expected, and its loss.
struct DeviceLossOptions {
  std::vector<Op> operators;       ///< that expressions may have; few make a short interpreter
  std::size_t expressions = 0;     ///< of a call, at most; at least 1
  std::uint32_t most_tokens = 64;  ///< of an expression: 1 to kMostDeviceTokens
  /// A loss that is not scaled and has no constant: of sse, mse, rmse, mae, ... those whose terms kernels have.
  LossOptions loss = {};
  /// Of the GPU's memory, for programs and sums. A population that needs more is evaluated in parts; the least
  /// has up to 32 expressions, and may need more.
  std::size_t bytes = std::size_t{512} << 20;
};

/// Addresses of a GPU's memory that are written, by expression.
struct DeviceLossOutputs {
  std::uint64_t losses = 0;      ///< numbers of `type`; NaN with a fault
  std::uint64_t valid_rows = 0;  ///< int64, as Losses::valid_rows; -1 where they are not counted. 0: not wanted
  std::uint64_t faults = 0;      ///< bytes, DeviceFault. 0: not wanted
  Precision type = Precision::kF32;
};

/// A cheap handle. Its memory is used by one call at a time: calls are made by one thread, and their streams are the
/// same or wait for each other. It must live until the work is done, and until no graph that captured it is launched
/// any more. Its end waits for the device, and so must not come while a stream of the device captures.
class DeviceLoss {
 public:
  /// Puts the work on `stream` (0: the legacy default stream) and returns. The bits of the losses are those of
  /// Engine::loss() of programs with CompileOptions::simplify false. Errors: kInvalid for more expressions than
  /// DeviceLossOptions has, for sizes that do not fit together, and for addresses that are missing or not aligned;
  /// kUnsupported for memory of another device, unless an earlier call has accepted the address; kMachine where the
  /// driver fails.
  Status submit(const DevicePopulation& population, const DeviceLossOutputs& out, std::uint64_t stream) const;

  class Work;
  explicit DeviceLoss(std::shared_ptr<Work> work) : work_(std::move(work)) {}

 private:
  std::shared_ptr<Work> work_;
};

}  // namespace srjit

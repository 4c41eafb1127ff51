// Expressions compiled for the host: small graphs, each with a program for the interpreter or machine code.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <vector>

#include "compiler/host/jit.h"
#include "compiler/host/program.h"
#include "compiler/kernels/parameter_table.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/dataset_state.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/evaluation/ranges.h"
#include "runtime/platform/aligned_buffer.h"
#include "runtime/platform/clock.h"

namespace srjit {

/// The program or the loop of some adjacent expressions: one graph, or one expression as it is written.
struct HostBatch {
  using Numbers = std::ranges::iota_view<std::uint32_t, std::uint32_t>;

  Numbers expressions;
  Numbers outputs;                    ///< root i is output outputs[i]; at least one
  HostCode code = {};                 ///< if null, the batch is interpreted: by the instructions
  std::size_t first_instruction = 0;  ///< of HostBatches
  std::uint32_t instructions = 0;     ///< how many
  std::uint32_t slots = 0;            ///< blocks of scratch memory that these need
  std::size_t parameters = 0;         ///< index of its first parameter in the table
};

/// Batches with their handlers and parameter table. Immutable.
class HostBatches final : public ProgramCode {
 public:
  /// Makes the code of all expressions for the order's tier, in parallel on the calling thread's arena, and links the
  /// handlers: runs the passes for ranges of them (rangesForHost()) and encodes or compiles their graphs, or encodes
  /// each as it is written. Throws OutOfMemory, std::bad_alloc, or an ErrorException if the deadline is over.
  HostBatches(std::shared_ptr<HostJit> jit, const CompileOrder& order);

  ProgramStatus status() const override;
  std::span<const HostBatch> batches() const noexcept { return batches_; }
  std::span<const HostInstruction> instructionsOf(const HostBatch& batch) const noexcept {
    return std::span(instructions_).subspan(batch.first_instruction, batch.instructions);
  }
  std::span<const HostHandler> handlers() const noexcept { return handlers_; }
  /// In order of expression. Batches with a failure are left out.
  const std::vector<Failure>& failures() const noexcept { return failures_; }
  /// The seconds are wall time, divided between passes and codegen in proportion to their core time.
  const ProgramInfo& info() const noexcept { return info_; }
  /// The parameter table with these values.
  AlignedBuffer table(std::span<const double> parameters, Precision precision) const;

 private:
  /// By handlerNumber().
  using UsedHandlers = std::bitset<(kMostOps + 1) * kHandlerMasks>;
  /// What one task makes.
  struct Part;
  void make(const CompileOrder& order);
  void take(std::vector<Part> parts);
  /// Finds the handlers that the programs use, by number. Batches without handlers become failures.
  void link(const UsedHandlers& used);

  const Stopwatch watch_;
  std::shared_ptr<HostJit> jit_;
  std::vector<HostInstruction> instructions_;
  std::vector<HostBatch> batches_;
  std::vector<HostHandler> handlers_;  ///< by handlerNumber(); null where unused
  ParameterTable parameters_;
  std::vector<Failure> failures_;
  ProgramInfo info_{};
};

/// Writes output o of all batches to out + o * rows, in the precision. `table` is that of the batches, and the
/// data have all variables. Throws an ErrorException (kLimit) if the deadline is over before a block
/// of rows. Borrows everything.
void predictOnHost(const HostBatches& batches, const Dataset::State& data, const std::byte* table, unsigned threads,
                   const Deadline& deadline, std::byte* out);

/// A loss, and the kernel that sums it.
struct HostLoss {
  HostLossKernel kernel;
  LossSpec spec;
  LossConstants constants = {};  ///< of moments
};

/// Calls `take` for each output, from several threads of the arena at the same time, with its sums over the rows. Of
/// moments, they are those of fma(f, now.factor, now.offset), at first of f, and `take` may return another
/// conditioning: then it is called again with the sums of that. `times` counts the earlier calls for the output.
/// Otherwise as predictOnHost().
using TakeSums =
    std::function<std::optional<Conditioning>(std::size_t output, LossSums& sums, const Conditioning& now, int times)>;
void sumOnHost(const HostBatches& batches, const Dataset::State& data, const std::byte* table, unsigned threads,
               const Deadline& deadline, const HostLoss& loss, const TakeSums& take);

}  // namespace srjit

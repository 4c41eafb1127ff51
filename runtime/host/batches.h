// Expressions compiled for the host: small graphs, each with a program for the interpreter or machine code.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compiler/host/jit.h"
#include "compiler/host/program.h"
#include "compiler/kernels/parameter_table.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/program_state.h"

namespace srjit {

/// One graph, of some expressions. Root i is output `outputs[i]`.
struct HostBatch {
  std::vector<std::uint32_t> expressions;
  std::vector<std::uint32_t> outputs;  ///< ascending; at least one
  HostProgram program;                 ///< interpreted if `code` is null
  HostCode code;
  std::size_t parameters = 0;  ///< index of its first parameter in the table

  /// Whether adjacent roots are adjacent outputs.
  bool contiguous() const noexcept { return outputs.back() - outputs.front() + 1 == outputs.size(); }
};

/// Batches with their handlers and parameter table. Immutable. The constructor throws OutOfMemory, std::bad_alloc, or
/// an ErrorException if the deadline is over.
class HostBatches final : public ProgramCode {
 public:
  /// Runs the passes and encodes or compiles all expressions, for kInterpret or kCompile, in parallel on the calling
  /// thread's arena.
  HostBatches(std::shared_ptr<HostJit> jit, const ProgramSource& source, Tier tier, const Deadline& deadline);

  ProgramStatus status() const override;
  std::span<const HostBatch> batches() const noexcept { return batches_; }
  std::span<const HostHandler> handlers() const noexcept { return handlers_; }
  const HostJit& jit() const noexcept { return *jit_; }

  /// In order of expression. Batches with a failure are left out.
  const std::vector<Failure>& failures() const noexcept { return failures_; }
  std::size_t nodes() const noexcept { return nodes_; }
  double secondsPasses() const noexcept { return seconds_passes_; }
  double secondsCodegen() const noexcept { return seconds_codegen_; }

  const ParameterTable& parameters() const noexcept { return parameters_; }

 private:
  struct Draft;
  void finish(std::vector<Draft>& drafts, const ProgramSource& source);
  void takeParameters(Draft& draft, const ProgramSource& source);
  void linkHandlers();

  std::shared_ptr<HostJit> jit_;
  std::vector<HostBatch> batches_;
  std::vector<HostHandler> handlers_;  ///< by handlerNumber(); null where unused
  ParameterTable parameters_;
  std::vector<Failure> failures_;
  std::size_t nodes_ = 0;
  double seconds_passes_ = 0, seconds_codegen_ = 0;
};

}  // namespace srjit

// Expressions made ready for the host: small graphs, each with a program for the interpreter or machine code.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compiler/host/jit.h"
#include "compiler/host/program.h"
#include "compiler/kernels/parameter_table.h"
#include "runtime/engine_options.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

/// One graph; root i is expression `expressions[i]`.
struct HostBatch {
  std::vector<std::uint32_t> expressions;
  HostProgram program;  ///< interpreted, if there is no code
  std::optional<HostCode> code;
  std::size_t parameters = 0;  ///< where its parameters begin in the table, in elements

  std::size_t outputs() const noexcept { return expressions.size(); }
  /// Whether the outputs of adjacent roots belong to adjacent expressions.
  bool contiguous() const noexcept { return expressions.back() - expressions.front() + 1 == expressions.size(); }
};

/// What is made ready, and how.
struct HostRequest {
  std::span<const Expression> expressions;
  std::span<const std::size_t> parameter_offsets;  ///< as Program::parameterOffset
  std::vector<std::uint32_t> chosen;               ///< the expressions that are wanted, ascending
  const Pipeline& pipeline;
  Tier tier;  ///< kInterpret or kCompile
};

/// Batches with their handlers and parameter table. Immutable; throws OutOfMemory or std::bad_alloc when made.
class HostBatches {
 public:
  /// Runs the passes and encodes or compiles, in parallel on the calling thread's arena.
  HostBatches(std::shared_ptr<HostJit> jit, const HostRequest& request);

  std::span<const HostBatch> batches() const noexcept { return batches_; }
  std::span<const HostHandler> handlers() const noexcept { return handlers_; }
  const HostJit& jit() const noexcept { return *jit_; }

  /// In order of expression; their batches are left out.
  const std::vector<Failure>& failures() const noexcept { return failures_; }
  std::size_t nodes() const noexcept { return nodes_; }
  double secondsPasses() const noexcept { return seconds_passes_; }
  double secondsCodegen() const noexcept { return seconds_codegen_; }

  const ParameterTable& parameters() const noexcept { return parameters_; }

 private:
  struct Draft;
  void finish(std::vector<Draft>& drafts, const HostRequest& request);
  void takeParameters(Draft& draft, const HostRequest& request);
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

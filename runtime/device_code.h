// What kernels of a launch read besides the data: encoded programs, machine code, and the parameter table they share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/device_queue.h"
#include "runtime/kernel_store.h"
#include "runtime/parameter_table.h"
#include "runtime/program.h"

namespace srjit {

/// Adjacent programs that are staged with the same columns.
struct InterpreterSection {
  std::uint32_t first_program = 0;
  std::uint32_t programs = 0;
  std::uint32_t map_offset = 0;  ///< of its columns in the map
  std::uint32_t staged_columns = 0;
  std::uint32_t slots = 0;
};

/// Programs for the interpreter, one an expression.
struct InterpreterCode {
  OpFamily family = OpFamily::kAll;
  std::vector<InterpreterSection> sections;
  std::vector<std::uint32_t> offsets;  ///< one more than programs: where a program's tokens begin
  DeviceBuffer memory;
  CUdeviceptr tokens = 0, program_offsets = 0, column_map = 0;  ///< in `memory`

  std::size_t programs() const noexcept { return offsets.size() - 1; }
  /// The most tokens of `count` programs that begin at a multiple of `count` in the section.
  std::size_t mostTokens(const InterpreterSection& section, std::size_t count) const;
};

/// A straight-line kernel.
struct CompiledKernel {
  Kernel kernel;
  CUdeviceptr outputs = 0;          ///< in DeviceCode::outputs
  std::size_t first_parameter = 0;  ///< in the table
};

/// Machine code of our own: one kernel for all its expressions (compiler/direct.h).
struct DirectCode {
  Module module;
  Kernel kernel;
  std::size_t groups = 0;
  std::size_t expressions = 0;
  std::size_t first_number = 0;  ///< in the table of parameters; a multiple of 4
  DeviceBuffer memory;
  CUdeviceptr group_table = 0, outputs = 0;  ///< in `memory`
};

/// Immutable. Every expression is in one of: the interpreter's programs, a compiled kernel, the failures.
struct DeviceCode {
  ParameterTable parameters;
  std::optional<InterpreterCode> interpreter;

  std::vector<std::shared_ptr<const Module>> modules;
  std::vector<CompiledKernel> kernels;
  std::vector<std::uint32_t> compiled;  ///< expressions that have a kernel, kernel after kernel
  DeviceBuffer outputs;                 ///< their numbers, u32

  std::optional<DirectCode> direct;

  std::vector<Failure> failures;  ///< in order of expression
  std::optional<Error> trouble;   ///< why expressions that were to be compiled are interpreted
  std::size_t tokens = 0;         ///< of all expressions, as they were given: what costs are reckoned by
  std::size_t nodes = 0;          ///< of all graphs after the passes; how much they share depends on the batches
  double seconds_passes = 0, seconds_codegen = 0;
  double seconds_reading = 0;   ///< of codegen: that finding kernels in the cache and reading them took
  double seconds_loading = 0;   ///< of codegen: that the driver took to load those
  std::size_t made_tokens = 0;  ///< of expressions whose kernels were made for this, not found in the cache
  double made_seconds = 0;      ///< of one core, that making those took

  ServedExpressions served() const noexcept {
    return {.interpreted = interpreter ? interpreter->programs() : 0,
            .direct = direct ? direct->expressions : 0,
            .compiled = compiled.size()};
  }
};

/// What is needed to make code. References must outlive the call.
struct CodeRequest {
  const ProgramSource& source;
  std::span<const std::uint32_t> chosen;  ///< expressions, ascending; directForDevice() takes all
  DeviceQueue& queue;
  KernelStore& store;
  unsigned threads;
};

struct KernelPlan;

/// Encodes the chosen expressions, in parallel on the calling thread's arena. Those that the interpreter cannot run
/// (too many slots or columns) are failures with kUnsupported; those that passes refuse, with kInvalid. Throws
/// CudaFailure, OutOfMemory, std::bad_alloc.
DeviceCode encodeForDevice(const CodeRequest& request);

/// Whether encodeForDevice() failed for want of room in the interpreter, which machine code may have.
inline bool isRefusal(const Failure& failure) { return failure.error.code == Errc::kUnsupported; }

/// Columns that all programs of an interpreter's launch may have between them; where there are more, launches have
/// neighbours that share columns.
std::size_t stagedColumnLimit(const DeviceLimits& limits, Precision precision);

/// Makes kernels of `kind` for the chosen expressions, whose `plan` has its graphs, and encodes the others. First the
/// calling thread reads and loads what the cache has, one module after another; then the rest is compiled, in parallel.
/// A group whose kernel spills, or that is refused, is made again in halves; an expression that fails alone is
/// interpreted, or a failure. Stops early, with code for nothing, once `cancelled`.
DeviceCode compileForDevice(const CodeRequest& request, const KernelPlan& plan, const KernelKind& kind,
                            const std::atomic<bool>& cancelled);

/// Kernels that are neither loaded nor in the cache.
struct MissingKernels {
  std::size_t kernels = 0;
  std::size_t tokens = 0;  ///< of their expressions
};

/// What compileForDevice() would have to compile, as far as can be told before the assembler has said which kernels
/// spill: runs the passes, in parallel likewise, and looks for the kernels. Stops early, with all of them for an
/// answer, once `worth` is false of those that are missing so far, or once `cancelled`.
MissingKernels findMissing(const CodeRequest& request, const KernelKind& kind,
                           const std::function<bool(const MissingKernels&)>& worth, const std::atomic<bool>& cancelled);

/// Rows a thread of compiled kernels, as measured on an H200 (docs/performance.md). More overlap more instructions, but
/// take twice the registers, twice the time to assemble, and more than the instruction cache holds.
inline constexpr unsigned kCompiledRowsPerThread = 4;

}  // namespace srjit

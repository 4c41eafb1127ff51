// What kernels of a launch read besides the data: encoded programs, machine code, and the parameter table they share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compiler/kernels/parameter_table.h"
#include "runtime/code/kernel_store.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/gpu/queue.h"

namespace srjit {

/// Adjacent programs that are staged with the same columns, and use `slots` slots at most. Sections of the same columns
/// may take turns in the order of the expressions: program p is not that of expression p.
struct InterpreterSection {
  std::uint32_t first_program = 0;
  std::uint32_t programs = 0;
  std::uint32_t map_offset = 0;  ///< of its columns in the map
  std::uint32_t staged_columns = 0;
  std::uint32_t slots = 0;
};

/// Where the caller's parameters begin of the expression that an entry of Dag::parameters() belongs to; 0 of a literal.
/// `members` are the expressions of the graph.
inline std::size_t offsetOf(const ParameterSource& parameter, const ProgramSource& source,
                            std::span<const std::uint32_t> members) {
  return parameter.isLiteral() ? 0 : source.parameterOffset(members[parameter.expression]);
}

/// Programs for the interpreter, one per expression, which has all outputs of it.
struct InterpreterCode {
  OpFamily family = OpFamily::kAll;
  std::vector<InterpreterSection> sections;
  std::vector<std::uint32_t> offsets;  ///< one more than programs: where a program's tokens begin
  std::size_t most_tokens = 0;         ///< of a program, where only the device knows the offsets
  DeviceBuffer memory;
  CUdeviceptr tokens = 0, program_offsets = 0, column_map = 0;  ///< in `memory`

  std::size_t programs() const noexcept { return offsets.size() - 1; }
  /// The most tokens of `count` programs that begin at a multiple of `count` in the section.
  std::size_t mostTokens(const InterpreterSection& section, std::size_t count) const {
    if (offsets.empty()) return most_tokens * std::min<std::size_t>(count, section.programs);
    std::uint32_t most = 0;
    const std::size_t end = section.first_program + section.programs;
    for (std::size_t first = section.first_program; first < end; first += count) {
      most = std::max(most, offsets[std::min(first + count, end)] - offsets[first]);
    }
    return most;
  }
};

/// A straight-line kernel.
struct CompiledKernel {
  Kernel kernel;
  CUdeviceptr outputs = 0;          ///< in CompiledCode::outputs
  std::size_t first_parameter = 0;  ///< in the table
};

/// Machine code by LLVM: at least one kernel.
struct CompiledCode {
  std::vector<std::shared_ptr<const Module>> modules;
  std::vector<CompiledKernel> kernels;
  std::size_t expressions = 0;  ///< that have a kernel
  DeviceBuffer outputs;         ///< the numbers of their outputs, kernel after kernel, u32
};

/// Machine code by the direct tier: one kernel for all its expressions (compiler/direct/emitter.h).
struct DirectCode {
  Module module;
  Kernel kernel;
  std::size_t groups = 0;
  bool has_subroutines = false;  ///< DirectImage::has_subroutines
  std::size_t expressions = 0;   ///< with a derivation, outputs
  std::size_t first_number = 0;  ///< in the table of parameters; a multiple of 4
  DeviceBuffer memory;
  CUdeviceptr group_table = 0, outputs = 0;  ///< in `memory`
};

/// The code of a program. Invariant: every expression that it was made for is in exactly one of its parts, or among its
/// failures; no kernel writes results of a failure, except for expressions that were not valid, which are the constant
/// NaN. Immutable once made. Cancelled code has neither parts nor all failures, and is not evaluated.
struct DeviceCode {
  ParameterTable parameters;  ///< of all parts
  std::optional<InterpreterCode> interpreter;
  std::optional<CompiledCode> compiled;
  std::optional<DirectCode> direct;
  std::vector<Failure> failures;  ///< in order of expression
  // How it was made, for the program's info and status, and for the costs of tiers. No evaluation depends on it.
  ProgramInfo info{};      ///< nodes_before are those that costs are per; how much graphs share depends on the batches
  ProgramStatus status{};  ///< seconds of reading and loading; why expressions that were to be compiled are interpreted
  std::optional<Error> direct_gaps;  ///< which expressions have no direct code, and why; of direct code only
  std::size_t made_tokens = 0;       ///< of expressions whose kernels were made for this, not found in the cache
  double made_seconds = 0;           ///< of one core, that making those took

  ServedExpressions served() const noexcept {
    return {.interpreted = interpreter ? interpreter->programs() : 0,
            .direct = direct ? direct->expressions : 0,
            .compiled = compiled ? compiled->expressions : 0};
  }
};

}  // namespace srjit

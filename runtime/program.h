// A batch of expressions that an Engine has made ready.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "ir/error.h"
#include "runtime/engine_options.h"
#include "runtime/results.h"

namespace srjit {

/// Facts about a Program, for curious users and the command.
struct ProgramInfo {
  Tier tier;  ///< kInterpret or kCompile; on a GPU what was asked for, and ProgramStatus tells what serves
  std::size_t nodes_before;  ///< tokens of all expressions
  std::size_t nodes_after;   ///< live nodes of all graphs after the passes, without those of kept subtrees
  double seconds_passes;
  double seconds_codegen;         ///< encoding, or LLVM on a CPU; what a GPU compiles is in ProgramStatus
  std::size_t subtrees_read = 0;  ///< columns of kept subtrees that the program reads
  std::size_t nodes_spared = 0;   ///< nodes of graphs that it does not compute for that reason
};

/// How many expressions of a program each kind of code evaluates; those that failed are in none.
struct ServedExpressions {
  std::size_t interpreted = 0, direct = 0, compiled = 0;
};

/// What has become of a Program so far.
struct ProgramStatus {
  Tier tier = Tier::kInterpret;   ///< what the next evaluation uses, if it is like the last one
  bool compiling = false;         ///< whether machine code is being made, or looked for, in the background
  std::size_t compiled = 0;       ///< expressions that have machine code of their own
  std::uint64_t evaluations = 0;  ///< since it was made
  ServedExpressions served = {};  ///< by the evaluation that began last; on a CPU by all
  double seconds_compiling = 0;   ///< that passed until the machine code was there
  double seconds_reading = 0;     ///< of these, that finding kernels in a GPU's cache and reading them took
  double seconds_loading = 0;     ///< of these, that the driver took to load those
  /// Of the kernels of the evaluation that finished last, as the device's clock measured it: copies and waits between
  /// chunks of rows do not count. 0 before, and on a CPU.
  double device_seconds = 0;
  std::optional<Error> error = {};  ///< why there is no machine code, not for all expressions, or not for these data
};

/// A cheap handle to shared, immutable state (Engine::compile). Thread-safe.
class Program {
 public:
  std::size_t size() const noexcept;
  /// Parameters of all expressions one after another: expression e's begin at parameterOffset(e); the last offset
  /// (e = size()) is their number.
  std::size_t parameterOffset(std::size_t expression) const noexcept;
  /// Expressions that could not be made ready, in order.
  std::span<const Failure> failures() const noexcept;
  const ProgramInfo& info() const noexcept;
  ProgramStatus status() const;

  struct State;
  explicit Program(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace srjit

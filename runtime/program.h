// A batch of expressions that an Engine has compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "runtime/engine_options.h"
#include "runtime/results.h"

namespace srjit {

/// Statistics of a Program's compilation.
struct ProgramInfo {
  Tier tier;  ///< kInterpret or kCompile; on a GPU the requested tier, while ProgramStatus::tier is the one in use
  std::size_t nodes_before;  ///< tokens of all expressions
  std::size_t nodes_after;   ///< live nodes of all graphs after the passes, without those of kept subtrees; of what an
                             ///< interpreter takes as it is written, tokens
  double seconds_passes;     ///< passes; also encoding, where a GPU's interpreter serves, since one walk does both
  double seconds_codegen;    ///< encoding or LLVM on a CPU; linking and upload of interpreted programs on a GPU, whose
                             ///< compilation times ProgramStatus has
  std::size_t subtrees_read = 0;  ///< columns of kept subtrees that the program reads
  std::size_t nodes_spared = 0;   ///< graph nodes not computed because of these
  /// Expressions whose programs for a GPU's interpreter are copies of those of equal expressions, encoded for the
  /// engine's program before. For statistics: only populations of 16 tokens or more per expression, without a pipeline
  /// of their own, look for such programs, and memory for those of the program before is limited.
  std::size_t recurring = 0;
};

/// Number of expressions that each kind of code evaluates; failed expressions are in none, but those of token arrays
/// that are not valid are there as the constant NaN.
struct ServedExpressions {
  std::size_t interpreted = 0, direct = 0, compiled = 0;

  friend bool operator==(const ServedExpressions&, const ServedExpressions&) = default;
};

/// The current state of a Program.
struct ProgramStatus {
  Tier tier = Tier::kInterpret;  ///< tier of the next evaluation, if it is like the last one
  bool compiling = false;  ///< whether machine code is being compiled, or searched for in the cache, in the background
  std::size_t compiled = 0;       ///< expressions that have machine code of their own
  std::uint64_t evaluations = 0;  ///< since compile(); 0 on a CPU
  ServedExpressions served = {};  ///< by the latest evaluation to start; on a CPU by all
  double seconds_compiling = 0;   ///< wall time until the machine code was ready
  double seconds_reading = 0;     ///< of these, waiting for kernels that are found and read in the cache
  double seconds_loading = 0;     ///< of these, loading kernels into the driver
  /// Kernel time of the latest evaluation to finish, by the device's clock, without copies and waits between chunks of
  /// rows. 0 before the first, and on a CPU.
  double device_seconds = 0;
  /// Why machine code is missing for some or all expressions, or for these data. Under Tier::kDirect also that it has
  /// no code for some expressions (kUnsupported; the text counts expressions from 1); Tier::kAuto has other code for
  /// those, and does not say so.
  std::optional<Error> error = {};
};

/// A cheap handle to shared, immutable state (Engine::compile). Thread-safe.
class Program {
 public:
  std::size_t size() const noexcept;
  /// Parameters of all expressions are concatenated: those of expression e start at parameterOffset(e); the last offset
  /// (e = size()) is their total number.
  std::size_t parameterOffset(std::size_t expression) const noexcept;
  /// Several vectors of start values for Engine::fit(), behind one another: `given`, and `count` - 1 that are drawn
  /// around it (fit::drawStarts()). `numbers` are the expressions' numbers in a larger population, one for each;
  /// none: from 0 on. Errors: kInvalid if `given` has not the size of all parameters, for a `count` of
  /// 0, and for another number of `numbers`. Throws std::bad_alloc if memory runs out.
  Result<std::vector<double>> drawStarts(std::span<const double> given, std::size_t count, std::uint64_t seed,
                                         std::span<const std::size_t> numbers = {}) const;
  /// Expressions that failed to compile, in order.
  std::span<const Failure> failures() const noexcept;
  const ProgramInfo& info() const noexcept;
  /// Throws std::bad_alloc if memory runs out for the text of `error`.
  ProgramStatus status() const;

  struct State;
  explicit Program(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace srjit

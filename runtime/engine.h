// The public interface: an Engine evaluates Programs on Datasets.
//
//   Engine engine = *Engine::create({});                         // a device and options
//   Dataset data = *engine.upload({columns, target});            // columns resident, once
//   Program program = engine.compile(expressions);               // a batch made ready
//   Losses losses = *engine.loss(program, data, parameters, {LossKind::kMse});
//   Pending<Losses> later = *engine.submitLoss(program, data, parameters, {LossKind::kMse});  // and do something else
//
// Spans in, spans out. A bad expression in a batch is a Failure of that expression, never an error of the batch. All
// classes are cheap handles to shared, immutable state (Engine: internally synchronised); every const member may be
// called from several threads at once. Results do not depend on the number of threads, the tier or the batch.
//
// fork(): neither the threads of an engine nor its device come along. In the child every call of an engine that was
// made before is an error of kMachine, and so is every expression of a Program that it makes there; what was in flight
// ends in the parent. What the parent made may be destroyed in the child, if no other thread used it at the fork;
// nothing is freed on the device. Whoever wants engines in children makes them there, and none before the fork.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ir/error.h"
#include "ir/expression.h"
#include "runtime/cache_stats.h"
#include "runtime/data_view.h"
#include "runtime/engine_options.h"

namespace srjit {

/// Values of subtrees that are kept with a data set (EngineOptions::subtree_bytes).
struct SubtreeStats {
  std::size_t capacity = 0;    ///< columns that there is room for
  std::size_t kept = 0;        ///< columns that have values now
  std::uint64_t bytes = 0;     ///< of the columns that there is room for
  std::uint64_t computed = 0;  ///< columns that were computed, since the upload
  std::uint64_t replaced = 0;  ///< of those, columns that were given to another subtree
  std::uint64_t reads = 0;     ///< columns that programs read, summed over programs
};

class Dataset {
 public:
  std::size_t rows() const noexcept;
  std::size_t columns() const noexcept;
  SubtreeStats subtrees() const;

  struct State;
  explicit Dataset(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

/// Why one expression of a batch has no result.
struct Failure {
  std::size_t expression;  ///< index in the batch
  Error error;
};

/// Facts about a Program, for curious users and the command.
struct ProgramInfo {
  Tier tier;  ///< kInterpret or kCompile; on a GPU what was asked for, and ProgramStatus tells what serves
  std::size_t nodes_before;  ///< tokens of all expressions
  std::size_t nodes_after;   ///< nodes of all graphs after the passes, without those of kept subtrees
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

/// One loss per expression, in order; NaN for an expression that failed.
struct Losses {
  std::vector<double> values;
  /// Rows with a finite prediction; 0 of an expression that failed. Under NanPolicy::kPropagate they are not counted:
  /// a finite loss proves that they are all rows, and of any other kNotCounted stands here.
  std::vector<std::uint64_t> valid_rows;
  static constexpr std::uint64_t kNotCounted = ~std::uint64_t{0};
  std::vector<Failure> failures;  ///< in order of expression; includes those of the program
};

/// An evaluation in flight. Keeps alive what it needs, except the span for predictions, which must outlive it: its
/// destructor waits. Movable; one thread at a time.
template <class Value>
class Pending {
 public:
  /// Whether result() would return at once.
  bool ready() const { return state_->ready(); }
  void wait() const { state_->wait(); }
  /// Waits. To be called once.
  Result<Value> result() && { return state_->result(); }

  struct State {
    virtual ~State() = default;
    virtual bool ready() = 0;
    virtual void wait() = 0;
    virtual Result<Value> result() = 0;
  };
  explicit Pending(std::unique_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::unique_ptr<State> state_;
};

class Engine {
 public:
  /// Errors: kInvalid for a device name that is none, kMachine for a device that is not there.
  static Result<Engine> create(const EngineOptions& options = {});

  /// Copies and pads the columns. Errors: kInvalid for unequal lengths, no rows, a bad target or bad weights (with the
  /// row, from 1, and the number as given); kMachine without memory.
  Result<Dataset> upload(const DataView& data) const;

  /// A data set of the columns where they are, without a copy; target and weights are copied. Errors: as above;
  /// kUnsupported unless the engine's device is the GPU that holds them; kInvalid for another precision or strides that
  /// are no multiples of it.
  Result<Dataset> adopt(const DeviceDataView& data) const;

  /// Makes a batch ready. Never fails as a whole: see Program::failures(). A pass that throws, or whose graph does not
  /// fit the expressions, is a failure of those that share a graph with the cause. With CompileOptions::data of this
  /// engine, values of subtrees that recurred in the programs before may be computed on the device first.
  Program compile(std::span<const Expression> expressions, const CompileOptions& options = {}) const;

  /// Predictions of all expressions: out[e * rows + r]. `parameters` as Program::parameterOffset says. A failed
  /// expression's predictions are NaN. The element type must be the engine's precision. Errors: kInvalid for wrong
  /// sizes, for a program or data of an engine of another precision or math mode, and for a program that was made for
  /// other data.
  Result<std::vector<Failure>> evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                        std::span<float> out) const;
  Result<std::vector<Failure>> evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                        std::span<double> out) const;

  /// One loss per expression; no predictions are stored. Errors: as evaluate's; kInvalid for data without a target.
  Result<Losses> loss(const Program& program, const Dataset& data, std::span<const double> parameters,
                      const LossOptions& options = {}) const;

  /// Makes ready all that the first evaluate() (without `loss`) or loss() of this kind would otherwise: kernels of the
  /// tier that was asked for, and copies on the device. Direct code of a program is shaped for the number of rows that
  /// it is made for first, which only speed depends on. Errors: as theirs.
  Status prepare(const Program& program, const Dataset& data, const std::optional<LossOptions>& loss) const;

  /// The same, begun now: host work of the caller overlaps it. Parameters are copied before these return. Several may
  /// be in flight; on a GPU losses are done in the order of submission.
  Result<Pending<std::vector<Failure>>> submitEvaluate(const Program& program, const Dataset& data,
                                                       std::span<const double> parameters, std::span<float> out) const;
  Result<Pending<std::vector<Failure>>> submitEvaluate(const Program& program, const Dataset& data,
                                                       std::span<const double> parameters, std::span<double> out) const;
  Result<Pending<Losses>> submitLoss(const Program& program, const Dataset& data, std::span<const double> parameters,
                                     const LossOptions& options = {}) const;

  /// As given, but `threads` is how many are used and `device` the one that was chosen.
  const EngineOptions& options() const noexcept;

  /// Of the kernels of GPUs; all 0 for the CPU.
  CacheStats cacheStats() const;

  struct State;
  explicit Engine(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
};

}  // namespace srjit

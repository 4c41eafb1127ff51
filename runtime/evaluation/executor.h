// The interface of what evaluates: the processor, a GPU, or several of them. Precondition of all calls: the Engine has
// checked the arguments.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tbb/task_arena.h>

#include "runtime/cache_stats.h"
#include "runtime/data_view.h"
#include "runtime/device_loss.h"
#include "runtime/evaluation/dataset_state.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/evaluation/survey.h"
#include "runtime/platform/aligned_buffer.h"
#include "runtime/platform/deadline.h"
#include "runtime/results.h"

namespace srjit {

/// One evaluation of a program whose variables the data have. Here losses and predictions
/// are those of the outputs of a program's source.
struct Task {
  Program program;
  Dataset data;
  std::span<const double> parameters;    ///< borrowed until start() returns
  std::byte* out = nullptr;              ///< predictions, in the engine's precision; unless they go to device_out, or
  std::optional<LossOptions> loss = {};  ///< a loss
  std::uint64_t device_out = 0;          ///< predictions in the memory of the executor's GPU; 0: not there
  Deadline deadline = {};                ///< of the work, and of making code for it
  bool is_awaited = false;               ///< the caller finishes the flight at once; parameters are borrowed until then
};

/// The sums of a task with kPlainSums, or of moments, where they are: Losses would be a copy. As long as they are
/// there, the memory of the evaluation is not used again. The executor must outlive them.
struct Sums {
  /// Channel after channel (LossSpec) those of all outputs, for the owner to change; unspecified where one failed.
  std::span<double> values;
  std::vector<Failure> failures;
  std::shared_ptr<void> memory;  ///< of the values
};

inline Sums sumsOf(Losses losses) {
  const auto memory = std::make_shared<Losses>(std::move(losses));
  return {memory->values, std::move(memory->failures), memory};
}

/// A task in flight.
class Flight {
 public:
  /// Waits until the task no longer uses its arguments.
  virtual ~Flight() = default;
  virtual bool ready() = 0;
  virtual void wait() = 0;
  /// Waits. Called once. For predictions, only failures are filled in. Failures are those that Program::failures() does
  /// not have, in any order; values and predictions of failed expressions are unspecified.
  virtual Result<Losses> finish() = 0;
  /// Whether finish() gives the losses of a task. If not, as of moments on a GPU, sums() gives the sums that losses are
  /// computed from.
  virtual bool hasLosses() const { return true; }
  /// The same for a task with kPlainSums: sumsOf(flight). Sums without `memory` lie in the flight, and end with it.
  virtual Result<Sums> sums() {
    Result<Losses> losses = finish();
    if (!losses) return std::move(losses).error();
    return sumsOf(std::move(*losses));
  }
};

/// The loss of tasks for derived programs: sums as they are. Weights are in the graphs, and no row is left out but
/// there.
inline const LossOptions kPlainSums{LossKind::kSum, NanPolicy::kPropagate};

inline Result<Sums> sumsOf(std::shared_ptr<Flight> flight) {
  Result<Sums> sums = flight->sums();
  if (sums && sums->memory == nullptr) sums->memory = std::move(flight);
  return sums;
}

/// A call of `run`, by the thread that waits for a task that is awaited. Other tasks are run by a thread of the arena
/// or by who waits, whoever is first: none depends on a thread that the system may refuse to start.
using RunTask = std::function<Result<Losses>(const Task& task)>;
std::unique_ptr<Flight> flightOf(tbb::task_arena& arena, Task task, RunTask run);

/// What a population costs.
struct Estimate {
  double seconds = 1;     ///< only the ratio between two executors is meaningful
  std::size_t parts = 1;  ///< into which divide() should cut it, if it is evaluated once, to end soonest
};

/// Runs programs on one kind of machine. Thread-safe. May throw what guarded() catches.
class Executor {
 public:
  /// `threads` as Engine::create() has resolved it.
  explicit Executor(unsigned threads) : arena_(static_cast<int>(threads)) {}
  virtual ~Executor() = default;

  /// Runs `body` on the engine's threads.
  template <class Body>
  auto execute(const Body& body) {
    return arena_.execute(body);
  }

  /// As Engine::upload() and adopt().
  virtual Result<std::shared_ptr<const Dataset::State>> upload(const DataView& data) = 0;
  virtual Result<std::shared_ptr<const Dataset::State>> adopt(const DeviceDataView& data) = 0;
  /// The data set that upload() makes of the selected numbers of `data`, which are in its precision, and on this
  /// executor's device or, as Dataset::State::create() leaves them, in host memory. Errors: as Engine::rows() and
  /// withWeights().
  virtual Result<std::shared_ptr<const Dataset::State>> select(const Dataset& data, const Selection& selection) = 0;
  /// A copy of one column of `rows` rows in a GPU's memory, which the stream writes, if it is not 0. `what` is its
  /// name in messages. Errors: as Engine::withWeights().
  virtual Result<AlignedBuffer> fetch(const char* what, const DeviceMatrix& column, std::size_t rows,
                                      std::uint64_t stream) = 0;

  /// Makes ready a caller's memory of the GPU for a Task's output: writes there wait for the work that is in `stream`
  /// now. Errors: kUnsupported for memory that is not this executor's device's.
  virtual Status claimOutput(const DeviceMatrix& out, std::uint64_t stream) = 0;
  /// Whether this address is memory of this executor's device.
  virtual bool owns(std::uint64_t /*address*/) const { return false; }
  /// Copies to the output of a task, `offset` bytes behind its begin, and waits.
  virtual void writeOutput(const Task& task, std::size_t offset, const std::byte* from, std::size_t bytes) = 0;

  /// Generates the code of state.source; adds failures and fills in the info, whose tier is the requested one. With
  /// options.data, on this executor's device, the code may read values kept with these data. Throws an ErrorException
  /// (kLimit) if that takes until the deadline, as all that works on a Task does.
  virtual void compile(Program::State& state, const CompileOptions& options, const Deadline& deadline) = 0;
  /// Of preparing and evaluating this number of expressions, with these tokens in all. `options` have the tier, and the
  /// rows and data if they are known.
  virtual Estimate estimate(std::size_t /*expressions*/, std::size_t tokens, const CompileOptions& /*options*/) const {
    return {static_cast<double>(tokens)};
  }

  /// Data with the numbers of `data`, whose target and weights, if any, are the columns behind the others: `data`
  /// itself, or always the same copy.
  virtual Result<Dataset> withTargetBehind(const Dataset& data) { return data; }

  /// Makes code and memory ready for the task.
  virtual Status prepare(const Task& task) = 0;
  virtual Result<std::unique_ptr<Flight>> start(Task task) = 0;
  /// As start() and finish().
  Result<Losses> run(Task task) {
    task.is_awaited = true;
    auto flight = start(std::move(task));
    if (!flight) return std::move(flight).error();
    return (*flight)->finish();
  }

  /// Whether this executor can now encode such a population on its device, as it is written.
  virtual bool encodesAsWritten(const PopulationView& /*population*/, const Dataset& /*data*/,
                                const LossOptions& /*loss*/, const CompileOptions& /*options*/) {
    return false;
  }
  /// Starts the losses of such a one. The population and the parameters are read before this returns; losses of the
  /// expressions that the survey leaves to the host are unspecified. Errors: kUnsupported where the data have too many
  /// columns for it.
  virtual Result<std::unique_ptr<Flight>> startAsWritten(const PopulationView& /*population*/,
                                                         const PopulationSurvey& /*survey*/, const Dataset& /*data*/,
                                                         std::span<const double> /*parameters*/,
                                                         const LossOptions& /*loss*/) {
    return Error{Errc::kUnsupported, "populations as they are written, on a processor", {}};
  }

  /// As Engine::deviceLoss(), of data that checkLoss() accepts.
  virtual Result<DeviceLoss> deviceLoss(const Dataset& /*data*/, const DeviceLossOptions& /*options*/) {
    return Error{Errc::kUnsupported, "expressions in a GPU's memory, by an engine that is not on one GPU", {}};
  }

  virtual CacheStats cacheStats() const { return {}; }
  /// Asks the device whether it still works, after a failure.
  virtual bool isLost() const { return false; }
  /// What happened since the engine was made that a user should know: Engine::notices().
  virtual std::vector<std::string> notices() const { return {}; }

 protected:
  tbb::task_arena arena_;
};

/// The sums that kernels compute. Derived programs have the weights in their graphs.
inline LossSpec lossSpecOf(const Task& task) {
  return lossSpec(*task.loss, task.data.state().has_weights && !task.program.state().source->derivation);
}

inline bool isOfMoments(const Task& task) { return task.loss && isOfMoments(lossSpecOf(task).term); }

/// Computes the entries of one output in `losses` from its sums.
inline void takeLoss(Losses& losses, std::size_t output, const LossSums& sums, const Dataset::State& data,
                     const LossOptions& options) {
  losses.values[output] = lossValue(sums, data.target_variance, options);
  losses.valid_rows[output] = validRows(sums, options.nan);
}

}  // namespace srjit

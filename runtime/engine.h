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

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ir/error.h"
#include "ir/expression.h"
#include "runtime/cache_stats.h"
#include "runtime/data_view.h"
#include "runtime/dataset.h"
#include "runtime/engine_options.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

class Engine {
 public:
  /// Errors: kInvalid for a device name that is none, kMachine for a device that is not there.
  static Result<Engine> create(const EngineOptions& options = {});

  /// Copies and pads the columns. Errors: kInvalid for unequal lengths, no rows, a bad target or bad weights (with the
  /// row, from 1, and the number as given), or names that are not one per column; kMachine without memory.
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

// The public interface: an Engine evaluates Programs on Datasets.
//
//   Engine engine = *Engine::create({});                         // a device and options
//   Dataset data = *engine.upload({columns, target});            // columns stay resident
//   Program program = engine.compile(expressions);               // a compiled batch
//   Losses losses = *engine.loss(program, data, parameters, {LossKind::kMse});
//   Pending<Losses> later = *engine.submitLoss(program, data, parameters, {LossKind::kMse});  // and do something else
//
// Spans in, spans out. A bad expression in a batch is a Failure of that expression, never an error of the batch. All
// classes are cheap handles to shared, immutable state (Engine: internally synchronised); every const member may be
// called from several threads at once. Results do not depend on the number of threads, the tier or the batch. Calls
// that give a Result or a Status throw nothing; exhausted memory is an Error of kMachine.
//
// Several GPUs (EngineOptions::device): one of them that is lost, or that has too little memory, leaves its share to
// the others in the same call; notices() tells of lost ones, and results stay the same. If none is left, it is an
// error. "The engine's GPU" below is then any of them. Columns that are adopted on one are copied to the others by way
// of the host, and so is output of the others. In Math::kFast, GPUs of different architectures may give different bits.
//
// Limits (EngineOptions::limits) bound each call, for expressions from elsewhere. A call beyond a limit gives an error
// of kLimit that names the limit and the number found. An expression of more than max_nodes tokens is a Failure of that
// expression, which then has no parameters (Program::parameterOffset). More than max_call_nodes tokens in all
// expressions of a call, and more than max_seconds, are errors of the call: of compile() of Expressions, a Failure of
// each. A call's tokens count once for each vector of parameters, and its derivatives one by one. The engine looks at
// the time between units of work: the graphs of some expressions, the compilation of a kernel, a block of rows on a
// CPU, the launch of a chunk of rows on a GPU, a pass of a fit; it waits for work that a device has begun. The time of
// a submitted evaluation begins with the submission; results that are ready by then may be taken at any time. A fit
// that has made a pass keeps the best parameters. Code and data remain, and the engine stays usable.
//
// fork(): a child process inherits neither the threads of an engine nor its device. In the child every call of an
// engine that the parent created fails with kMachine, and so does every expression of a Program that such an engine
// compiles there. Evaluations in flight finish in the parent. Objects of the parent may be destroyed in the child, if
// no other thread used them at the fork; nothing is freed on the device. To use engines in a child, create them there,
// and none in the parent before the fork.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ir/error.h"
#include "ir/expression.h"
#include "ir/population.h"
#include "runtime/cache_stats.h"
#include "runtime/data_view.h"
#include "runtime/dataset.h"
#include "runtime/device_loss.h"
#include "runtime/engine_options.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

class Engine {
 public:
  /// Errors: kInvalid for a malformed device name, and for a list that has a device twice; kMachine for a device that
  /// does not exist.
  static Result<Engine> create(const EngineOptions& options = {});

  /// What this engine does without, in sentences for a user: why "auto" did not take cuda:0 although there is a driver,
  /// that the processor has no fused multiply-add, or which of several devices were lost since. Empty if nothing is
  /// missing; only the end changes. Throws std::bad_alloc.
  std::vector<std::string> notices() const;

  /// Copies and pads the columns. Errors: kInvalid for unequal lengths, no rows, a bad target or bad weights (with the
  /// row, from 1, and the number as given), or names that are not one per column; kMachine if memory runs out.
  Result<Dataset> upload(const DataView& data) const;

  /// Uses the columns in place, without a copy, on the GPU that has them; target and weights are copied. Errors: as
  /// above; kUnsupported unless the engine's device is the GPU that holds them; kInvalid for another precision, or for
  /// strides that are not multiples of the element's size.
  Result<Dataset> adopt(const DeviceDataView& data) const;

  /// Data sets of the numbers of `data`, which are copied where they are: columns of resident data stay on the device,
  /// and only target and weights are read from there. (If the copy does not fit there, it is streamed, as by upload(),
  /// and goes to the host.) Results are those of upload() of the same numbers, bit for bit. Names are kept; `data` may
  /// be destroyed afterwards. The cost is that of the copies, and of the sums over target and weights on the host.
  /// Adopted columns whose rows are not adjacent numbers are copied with a call of the driver for each column and run
  /// of rows, or for each row if their stride is not positive; rows() of all of them gives data without such strides.
  /// Errors of all four: kInvalid for data of another device or precision, and if the weights of the rows are all zero;
  /// kMachine if memory runs out.
  ///
  /// The rows first .. first + count - 1. Errors: kInvalid unless there are such rows, at least one.
  Result<Dataset> rows(const Dataset& data, std::size_t first, std::size_t count) const;
  /// `groups` different groups of kRowsPerGroup adjacent rows, drawn with the seed and without replacement, each set of
  /// groups with the same probability; in the order of `data`. The last group of `data` may have fewer rows. The same
  /// rows, groups and seed give the same groups on every machine and in every version
  /// (runtime/evaluation/dataset_state.h has the algorithm). Errors: kInvalid unless 0 < groups <= data.rowGroups().
  Result<Dataset> sample(const Dataset& data, std::size_t groups, std::uint64_t seed) const;
  /// All rows, with other weights than before, or with weights that `data` do not have. Errors: kInvalid as for the
  /// weights of upload(), and for data without a target.
  Result<Dataset> withWeights(const Dataset& data, const ColumnView& weights) const;
  /// The same with weights in the memory of the engine's GPU, which are read before this returns, after the work that
  /// is in `stream` now (0: none). Errors: also those of adopt() for weights.
  Result<Dataset> withWeights(const Dataset& data, const DeviceMatrix& weights, std::uint64_t stream = 0) const;

  /// Compiles a batch. Never fails as a whole, since every Expression is well-formed: see Program::failures(). A pass
  /// that throws, or returns a graph that does not match the expressions, is a failure of the expressions that share a
  /// graph with the cause. With CompileOptions::data of this engine, values of subtrees that recurred in earlier
  /// programs may first be computed on the device. Memory that runs out while code is made is a failure of every
  /// expression. Throws std::bad_alloc if it runs out for the program itself: for its list of the expressions or that
  /// of its failures.
  Program compile(std::span<const Expression> expressions, const CompileOptions& options = {}) const;
  /// The same of token arrays, which are read during the call. An expression that is not valid is a failure, whose
  /// `where` has the number of the token at fault, from 1. This overload gives a Result, unlike that of expressions:
  /// nobody has checked the arrays, and offsets that do not fit have no expressions that could fail one by one. Errors:
  /// those of checkArrays().
  Result<Program> compile(const PopulationView& population, const CompileOptions& options = {}) const;

  /// For losses of expressions that are in the memory of the engine's GPU (runtime/device_loss.h): takes memory and
  /// kernels. Errors: kInvalid as for loss(), and for options out of range; kUnsupported unless the engine is on one
  /// GPU, in a build without clang 19, for a loss that is scaled, custom or has a constant, for targets so large or
  /// small that they need scaled units, for data that are not resident, and for more columns than the interpreter
  /// stages; kMachine if memory runs out.
  Result<DeviceLoss> deviceLoss(const Dataset& data, const DeviceLossOptions& options) const;

  /// Predictions of all expressions: out[e * rows + r]. Program::parameterOffset() defines the layout of `parameters`.
  ///
  /// Here and wherever a Program is evaluated, `parameters` may be several vectors of this layout, behind one another,
  /// as evolution strategies and restarts have them: there are then results for as many times the expressions, of the
  /// first vector, then of the second, and so on, from one launch. The first call with a number of vectors makes a
  /// program of that number of copies, which is kept.
  ///
  /// A failed expression's predictions are NaN. The element type must be the engine's precision. Errors: kInvalid for
  /// wrong sizes, for a program or data of an engine of another precision or math mode, and for a program compiled for
  /// other data (CompileOptions::data).
  Result<std::vector<Failure>> evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                        std::span<float> out) const;
  Result<std::vector<Failure>> evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                        std::span<double> out) const;
  /// The same with output in the memory of the engine's GPU: adjacent numbers of any shape. They
  /// are written after the work that is in `stream` now (0: none), and are there when this returns. Errors: also
  /// kUnsupported unless the engine's device is the GPU that holds them.
  Result<std::vector<Failure>> evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                        const DeviceMatrix& out, std::uint64_t stream = 0) const;

  /// One loss per expression; no predictions are stored. Errors: as for evaluate(); kInvalid for data without a target.
  Result<Losses> loss(const Program& program, const Dataset& data, std::span<const double> parameters = {},
                      const LossOptions& options = {}) const;

  /// One loss per expression and its derivatives, of all expressions in one pass over the data. Derivatives are exact
  /// but for rounding: graphs of their own (passes/gradient/derivation.h), made at the first call for these columns and
  /// options, and kept with the program. At a kink or jump they are those of one side, and a branch that is not taken,
  /// but not finite, makes them NaN. Errors: as for loss().
  Result<Gradients> gradient(const Program& program, const Dataset& data, std::span<const double> parameters = {},
                             const GradientOptions& options = {}) const;

  /// Derivatives of predictions: that of expression e by its parameter p at
  /// out[(program.parameterOffset(e) + p) * rows + r], or by variable v at out[(e * columns of the data + v) * rows +
  /// r]. Errors: as for evaluate().
  Result<std::vector<Failure>> jacobian(const Program& program, const Dataset& data, std::span<const double> parameters,
                                        std::span<float> out, DerivativesBy by = DerivativesBy::kParameters) const;
  Result<std::vector<Failure>> jacobian(const Program& program, const Dataset& data, std::span<const double> parameters,
                                        std::span<double> out, DerivativesBy by = DerivativesBy::kParameters) const;
  /// The same in the memory of the engine's GPU, as evaluate() has it.
  Result<std::vector<Failure>> jacobian(const Program& program, const Dataset& data, std::span<const double> parameters,
                                        const DeviceMatrix& out, std::uint64_t stream = 0,
                                        DerivativesBy by = DerivativesBy::kParameters) const;

  /// Fits the parameters of every expression to the target, all of them together: each iteration is one pass over the
  /// data for all fits that have not ended (runtime/fit/levenberg_marquardt.h has the method). Losses of squared errors
  /// are fitted by least squares; their scaled forms, too, as expressions a + b f; others by reweighted steps,
  /// which FitOptions::loss says more of. `starts` has one or more vectors of all parameters behind one another; the
  /// start with the smallest loss in the end wins. An expression ends with a FitStatus of its own; that it could not be
  /// fitted is no error. Where the device or its memory fails after the first pass, the fits that go on end with
  /// kFailed, and losses.failures has the error; nothing that was fitted is lost. Rows that are not finite follow
  /// options.loss.nan, as of gradient(). Errors: as for loss(); kInvalid for kSum and kCorrelation, and for starts that
  /// are no multiple of the parameters.
  Result<Fits> fit(const Program& program, const Dataset& data, std::span<const double> starts,
                   const FitOptions& options = {}) const;

  /// Does in advance what the first evaluate() (without `loss`) or loss() of this kind would do: makes kernels of the
  /// requested tier and copies on the device. Direct code of a program is laid out for the number of rows of its first
  /// use; only speed depends on that. Errors: as for evaluate() and loss().
  Status prepare(const Program& program, const Dataset& data, const std::optional<LossOptions>& loss) const;

  /// Asynchronous evaluate() and loss(): the caller's host work overlaps them. Parameters are copied before these
  /// return. Several may be in flight; on a GPU losses complete in the order of submission.
  Result<Pending<std::vector<Failure>>> submitEvaluate(const Program& program, const Dataset& data,
                                                       std::span<const double> parameters, std::span<float> out) const;
  Result<Pending<std::vector<Failure>>> submitEvaluate(const Program& program, const Dataset& data,
                                                       std::span<const double> parameters, std::span<double> out) const;
  Result<Pending<Losses>> submitLoss(const Program& program, const Dataset& data,
                                     std::span<const double> parameters = {}, const LossOptions& options = {}) const;

  /// The same on a thread of its own. `starts` are copied; errors of the arguments are the result's. To end it early,
  /// use options.stop; without, the destructor of the Pending waits for the whole fit.
  Result<Pending<Fits>> submitFit(const Program& program, const Dataset& data, std::span<const double> starts,
                                  const FitOptions& options = {}) const;

  Result<Pending<Gradients>> submitGradient(const Program& program, const Dataset& data,
                                            std::span<const double> parameters = {},
                                            const GradientOptions& options = {}) const;
  Result<Pending<std::vector<Failure>>> submitJacobian(const Program& program, const Dataset& data,
                                                       std::span<const double> parameters, std::span<float> out,
                                                       DerivativesBy by = DerivativesBy::kParameters) const;
  Result<Pending<std::vector<Failure>>> submitJacobian(const Program& program, const Dataset& data,
                                                       std::span<const double> parameters, std::span<double> out,
                                                       DerivativesBy by = DerivativesBy::kParameters) const;

  /// compile() and submitLoss() of expressions that are evaluated once, in one call. On a GPU it may be quicker than
  /// the two: a large population is divided into parts, and the device evaluates one while the next is prepared. The
  /// bits are the same. Arrays and `parameters` are read before this returns. As with compile(), expressions that fail
  /// are failures, with their numbers in the whole population. `options.expected_rows` and `options.data` are those of
  /// `data`, whatever is given. Errors: those of checkArrays(), compile()'s lack of memory, and those of submitLoss().
  Result<Pending<Losses>> submitLoss(const PopulationView& population, const Dataset& data,
                                     std::span<const double> parameters = {}, const LossOptions& loss = {},
                                     const CompileOptions& options = {}) const;
  /// The same, and waits.
  Result<Losses> loss(const PopulationView& population, const Dataset& data, std::span<const double> parameters = {},
                      const LossOptions& loss = {}, const CompileOptions& options = {}) const;

  /// This engine with other limits, for some calls: device, data, programs and cache are the same. Errors: kInvalid for
  /// limits that are none.
  Result<Engine> withLimits(const Limits& limits) const;

  /// The options of create(), with `threads` and `device` as resolved.
  const EngineOptions& options() const noexcept;

  /// Counters of the kernel cache.
  CacheStats cacheStats() const;

  struct State;
  explicit Engine(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
};

}  // namespace srjit

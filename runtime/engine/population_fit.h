// The fits of one call of Engine::fit(), iterated together: one launch for a trial of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include <tbb/enumerable_thread_specific.h>

#include "passes/gradient/derivation.h"
#include "runtime/engine/tasks.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/fit/levenberg_marquardt.h"
#include "runtime/fit/remake_rule.h"

namespace srjit {

/// The fit of one expression from one start.
struct FitEntry {
  fit::ParameterFit fit;
  std::shared_ptr<const Error> error;  ///< null: none
  std::size_t expression = 0, start = 0;
  // Of the rows that count with the best parameters so far: the sum of the weights, and how many.
  double weights = 0;
  std::uint64_t valid = 0;
  /// Of a fit that was refined: the diagonal of (J'J)^-1 by parameter, and the rank of J.
  std::vector<double> inverse_diagonal = {};
  std::size_t rank = 0;
};

/// Parameters to try after a fit has ended.
struct FitCandidate {
  std::vector<double> parameters;
  bool is_more_exact = false;  ///< LevenbergMarquardt::tryCandidate()
  double expected = 0;         ///< the loss, but for the rounding of predictions; not tried where one is near it
};
struct FitRefinement {
  FitEntry* entry;
  bool is_ill_conditioned;
  double loss_before;
  std::vector<FitCandidate> candidates = {};
};

/// Fits of all expressions of `base.program` to `base.data`, whose target is behind its columns. A scaled loss is
/// fitted as one of squared errors of expressions with two parameters more, a + b f. Borrows the engine.
///
/// If targets are beyond the ordinary (LossConstants::scale), linear parameters are fitted in the target's scaled unit:
/// as p times a power of two, so that squares of their columns and of those of other parameters are in range together.
///
/// Normal equations are too inexact for linear parameters whose columns are nearly combinations of each other, as those
/// of a polynomial over years. Such fits are refined when they have ended: least squares of the columns themselves
/// (fit::ScaledQr) give other parameters, which are taken if their loss, evaluated as any, is smaller. So is the best
/// constant, where the expression has an offset and ended above.
class PopulationFit {
 public:
  /// Throws an ErrorException (kLimit) if the sums of all starts are more than a call may have.
  PopulationFit(Engine::State& engine, Task base, std::span<const double> starts, const FitOptions& options);
  PopulationFit(const PopulationFit&) = delete;
  PopulationFit& operator=(const PopulationFit&) = delete;
  ~PopulationFit();

  /// Errors: of the first pass. One of a later pass ends the fits that go on, each with this error as a failure.
  Result<Fits> run();

 private:
  /// A fit that goes on, and where its expression is in derived_: looked up once per program, not in each pass.
  struct Active {
    FitEntry* entry;
    std::size_t first_output = 0, outputs = 0, first_parameter = 0;
  };

  std::size_t givenParameters(std::size_t expression) const;
  double weightSum() const { return data_.weight_sum * data_.weight_scale; }
  double unitOf(std::size_t expression, std::uint32_t parameter) const;
  void startOf(std::size_t expression, std::span<const double> start, std::vector<double>& all) const;
  void makeEntries(std::span<const double> starts);
  Result<Sums> pass();
  void makeProgram();
  ProgramSource sourceOfActive() const;
  void fail(const Failure& failure);
  void take(Sums& sums);
  void dropEnded();
  void takeSums(fit::LevenbergMarquardt& method, FitEntry& entry, std::span<double> outputs) const;
  LossSums takeMeans(const FitEntry& entry, std::span<double> outputs) const;
  void nextParameters(const Active& active);
  FitEntry* winnerOf(std::size_t expression) const;
  std::size_t startCount() const;
  double sumOf(const FitEntry& entry) const;
  // After the fits have ended:
  void refine();
  bool isAboveConstant(const FitEntry& entry) const;
  bool isRefinable(const FitEntry& entry) const;
  std::size_t offsetOf(const fit::ParameterFit& fit) const;
  std::vector<FitRefinement> refinements() const;
  void addConstant(FitRefinement& refined) const;
  Status addLeastSquares(std::span<FitRefinement> refined) const;
  Status addSolutions(const std::vector<FitRefinement*>& part) const;
  void addSolutions(FitRefinement& refined, std::span<double> columns, std::size_t rows) const;
  Status tryCandidates(std::span<FitRefinement> refined, std::size_t number);
  void takeLosses(Fits& fits) const;
  Fits fits();
  void write(fit::LevenbergMarquardt& method, const FitEntry& entry, Fits& fits) const;

  Engine::State& engine_;
  const Task base_;
  const Program::State& program_;
  const Dataset::State& data_;
  const Derivation derivation_;
  const FitOptions options_;
  tbb::enumerable_thread_specific<fit::LevenbergMarquardt> methods_;  ///< by thread
  std::vector<Failure> failures_;                                     ///< of expressions that have no fit
  std::shared_ptr<const ProgramSource> source_;                       ///< of the expressions that are fitted
  /// By expression: the parameters that are fitted in the target's scaled unit. Empty if that is its own.
  std::vector<std::vector<std::uint32_t>> in_units_;
  /// Of entries_, by the thread that made them: an allocation for each of their arrays makes threads wait for each
  /// other.
  tbb::enumerable_thread_specific<std::pmr::monotonic_buffer_resource> memory_;
  std::vector<FitEntry*> entries_;       ///< those of expression e from e * starts on; null: it fails
  std::vector<Active> active_;           ///< those that go on
  std::vector<FitEntry*> in_program_;    ///< of derived_, by expression
  std::vector<std::uint8_t> goes_on_;    ///< of active_, after a pass
  std::vector<std::uint8_t> refinable_;  ///< of entries_, of those that have ended
  std::optional<Program> derived_;       ///< of in_program_
  fit::RemakeRule remake_rule_;          ///< of derived_
  std::vector<double> parameters_;       ///< of derived_, whatever they are for fits that have ended
};

}  // namespace srjit

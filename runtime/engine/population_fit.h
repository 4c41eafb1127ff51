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
  /// Of a fit that goes on, in the derived program: looked up once per program, not in each pass.
  std::size_t first_output = 0, outputs = 0, first_parameter = 0;
};

/// Fits of all expressions of `base.program` to `base.data`, whose target is behind its columns. A scaled loss is
/// fitted as one of squared errors of expressions with two parameters more, a + b f. Borrows the engine.
///
/// If targets are beyond the ordinary (LossConstants::scale), linear parameters are fitted in the target's scaled unit:
/// as p times a power of two, so that squares of their columns and of those of other parameters are in range together.
///
/// Normal equations are too inexact for linear parameters whose columns are nearly combinations of each other, as those
/// of a polynomial over years. Such fits are refined when they have ended: least squares of the columns themselves, and
/// the best constant (fit::Refinement), give other parameters, which are taken if their loss is smaller.
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
  template <class Take>
  void takeSums(FitEntry& entry, std::span<double> outputs, const Take& take) const;
  LossSums takeMeans(const FitEntry& entry, std::span<double> outputs) const;
  void nextParameters(const FitEntry& entry);
  FitEntry* winnerOf(std::size_t expression) const;
  std::size_t startCount() const;
  double sumOf(const FitEntry& entry) const;
  // After the fits have ended:
  friend class FitRefiner;
  void refine();
  bool isAboveConstant(const FitEntry& entry) const;
  bool isRefinable(const FitEntry& entry) const;
  /// The squared length of a column of ones.
  double squaredOnes() const { return derivation_.skips_invalid ? 1 : weightSum(); }
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
  std::vector<FitEntry*> active_;        ///< those that go on
  std::vector<FitEntry*> in_program_;    ///< of derived_, by expression
  std::vector<std::uint8_t> goes_on_;    ///< of active_, after a pass
  std::vector<std::uint8_t> refinable_;  ///< of entries_, of those that have ended
  std::optional<Program> derived_;       ///< of in_program_
  fit::RemakeRule remake_rule_;          ///< of derived_
  std::vector<double> parameters_;       ///< of derived_, whatever they are for fits that have ended
};

/// Passes the sums of a trial to `take`, which says whether they are the best so far; then keeps their rows. Where rows
/// are left out, sums of different rows are comparable as means.
template <class Take>
void PopulationFit::takeSums(FitEntry& entry, std::span<double> outputs, const Take& take) const {
  LossSums rows;
  if (derivation_.skips_invalid) rows = takeMeans(entry, outputs);
  if (!take(outputs.first(outputs.size() - derivation_.counts())) || !derivation_.skips_invalid) return;
  entry.weights = rows.weights;
  entry.valid = rows.valid;
}

}  // namespace srjit
